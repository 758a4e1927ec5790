package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMeterRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		cost   Cost
		want   bool
	}{
		"Little":       {"We should let an input take the budget.", Cost{CPU: CPU, Bytes: Bytes}, false},
		"Long":         {"We should let a long input take more.", Cost{Length: 2 << 20, CPU: CPU + 2*CPUPerMiB, Bytes: 17 << 20}, false},
		"TooMuchCPU":   {"We should refuse more time than the budget.", Cost{CPU: CPU + time.Millisecond}, true},
		"TooManyBytes": {"We should refuse more memory than the budget.", Cost{Bytes: Bytes + 1}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, judged := &Meter{target: "a", maxCPU: 1}, &testing.T{}
			m.add(judged, tc.cost, nil)
			assert.Equal(t, tc.want, judged.Failed(), tc.reason)
		})
	}
}
