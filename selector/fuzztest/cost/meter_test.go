package cost

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzMeter is what a target looks like to a Meter.
func FuzzMeter(f *testing.F) {
	dir := f.TempDir()
	f.Setenv(Directory, dir)
	m := NewMeter(f)
	var kept []byte
	f.Add([]byte("a\x00\""), "b\n", byte(7), int64(-3), true)
	f.Fuzz(func(t *testing.T, a []byte, b string, c byte, d int64, e bool) {
		if race {
			t.Skip("Costs are not measured under the race detector.")
		}
		runs := 0
		m.Measure(t, 1<<20, func() {
			runs++
			kept = make([]byte, 2<<20)
		}, a, b, c, d, e)
		if runs == 1 { // It is not the largest so far.
			return
		}
		assert.Len(t, kept, 2<<20)
		l, err := Read(dir, "FuzzMeter")
		require.NoError(t, err)
		assert.InDelta(t, 2<<20, l.Bytes.Bytes, 64<<10, "We should count what was allocated.")
		assert.InDelta(t, 2.0/9, l.Bytes.BytesShare(), 0.01, "We should hold it against eight times the length and a MiB.")
		assert.Equal(t, "go test fuzz v1\n[]byte(\"a\\x00\\\"\")\nstring(\"b\\n\")\nbyte('\\a')\nint64(-3)\nbool(true)\n", l.Bytes.Input,
			"We should write the input as package testing reads it.")
	})
}

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

func TestReadAddsUp(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"FuzzA-1.json":  `{"CPU":{"CPU":5,"Input":"slow"},"Bytes":{"Bytes":1}}`,
		"FuzzA-2.json":  `{"CPU":{"CPU":4},"Bytes":{"Bytes":2,"Input":"large"}}`,
		"FuzzAB-3.json": `{"CPU":{"CPU":9},"Bytes":{"Bytes":9}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	l, err := Read(dir, "FuzzA")
	require.NoError(t, err)
	assert.Equal(t, Largest{CPU: Cost{CPU: 5, Input: "slow"}, Bytes: Cost{Bytes: 2, Input: "large"}}, l, "We should take the largest of each process, of that target alone.")
}
