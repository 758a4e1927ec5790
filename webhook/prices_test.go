package webhook

import (
	"fmt"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// measured is the most that one of some inputs cost.
type measured struct {
	count  int
	cpu    time.Duration
	bytes  uint64
	length int
}

func (m *measured) String() string {
	return fmt.Sprintf("%d inputs, at most %v of CPU (for %d bytes) and %d KiB of memory", m.count, m.cpu, m.length, m.bytes>>10)
}

// add an input, which may take 20 ms of CPU, 5 ms more a MiB, and 32 MiB of memory.
func (m *measured) add(t *testing.T, length int, work func()) bool {
	const most = 32 << 20
	allowed, runs := cost.CPU+cost.CPUPerMiB*time.Duration(length)/(1<<20), uint64(0)
	before := allocated()
	cpu := cost.LeastCPU(3, allowed, func() { runs++; work() })
	bytes := uint64(0)
	if cost.Measures {
		bytes = (allocated() - before) / runs
	}
	if m.count++; cpu > m.cpu {
		m.cpu, m.length = cpu, length
	}
	m.bytes = max(m.bytes, bytes)
	return assert.LessOrEqual(t, cpu, allowed, "An input should not cost more CPU.") &&
		assert.LessOrEqual(t, bytes, uint64(most), "It should not take more memory.")
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
