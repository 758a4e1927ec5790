// Package cost compares the cost of one input of a fuzz target with a budget: the author
// of a claim or a class can do more harm than crash us.
package cost

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// The budget of one input, and so of one review.
const (
	CPU          = 20 * time.Millisecond
	CPUPerMiB    = 5 * time.Millisecond
	Bytes        = 1 << 20
	BytesPerByte = 8

	// instrumented code, which shows the fuzzer where it has been, takes up to this
	// many times as long. The worst inputs are measured again without.
	instrumented = 3

	// Directory is the environment variable with the directory for the costs. If it is empty, they are not written.
	Directory = "CLASSBIND_FUZZ_COSTS"
)

// Cost of an input.
type Cost struct {
	// Length of the input in bytes.
	Length int
	// CPU time of the thread.
	CPU time.Duration
	// Bytes that were allocated.
	Bytes uint64
	// Input in the form of a file in testdata/fuzz.
	Input string
}

// CPUShare of the budget for an input of that length.
func (c Cost) CPUShare() float64 {
	return float64(c.CPU) / (float64(CPU) + float64(CPUPerMiB)*float64(c.Length)/(1<<20))
}

// BytesShare of the budget for an input of that length.
func (c Cost) BytesShare() float64 {
	return float64(c.Bytes) / float64(Bytes+BytesPerByte*c.Length)
}

// Largest costs of a target.
type Largest struct {
	CPU, Bytes Cost
}

// Add the largest costs of another run.
func (l *Largest) Add(o Largest) {
	if o.CPU.CPUShare() > l.CPU.CPUShare() {
		l.CPU = o.CPU
	}
	if o.Bytes.BytesShare() > l.Bytes.BytesShare() {
		l.Bytes = o.Bytes
	}
}

// Meter of one fuzz target, for one goroutine.
type Meter struct {
	target  string
	maxCPU  float64 // as a multiple of the CPU budget
	largest Largest
	sample  [1]metrics.Sample
	// ofCPU reports whether allocations have no budget.
	ofCPU bool
}

// OfCPU returns the meter without a budget for allocations, for work that makes garbage in proportion to its CPU, and holds none of it.
func (m *Meter) OfCPU() *Meter {
	m.ofCPU = true
	return m
}

// NewMeter of a target.
func NewMeter(t testing.TB) *Meter {
	t.Helper()
	m := &Meter{target: t.Name(), maxCPU: 1}
	if Fuzzing() {
		m.maxCPU = instrumented
	}
	m.sample[0].Name = "/gc/heap/allocs:bytes"
	return m
}

// Sizes are how often an attack repeats something.
func Sizes() []int {
	if Fuzzing() {
		return []int{3, 65}
	}
	return []int{3, 65, 4000, 85_000}
}

// Fuzzing reports whether the fuzzer is making up inputs: then large seeds would slow it down.
func Fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// Measure the work that an input makes, and fail the test if it takes more than the budget of its length. Work that seems to be the most so
// far is repeated: the least that it takes is its cost, whatever else the machine does.
func (m *Meter) Measure(t *testing.T, length int, work func(), input ...any) {
	t.Helper()
	if race {
		work()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bytes, began := m.allocated(), threadTime()
	work()
	c := Cost{Length: length, CPU: threadTime() - began, Bytes: m.allocated() - bytes}
	if m.ofCPU {
		c.Bytes = 0
	}
	if c.CPUShare() <= m.largest.CPU.CPUShare() && c.BytesShare() <= m.largest.Bytes.BytesShare() {
		return
	}
	const tries, most, hopeless = 3, 20, 10
	for i := 0; i < tries || c.CPUShare() > m.maxCPU && i < most; i++ {
		if c.CPUShare() > hopeless*m.maxCPU {
			break
		}
		var before, after runtime.MemStats // Exact, and slow.
		runtime.ReadMemStats(&before)
		began := threadTime()
		work()
		c.CPU = min(c.CPU, threadTime()-began)
		runtime.ReadMemStats(&after)
		c.Bytes = min(c.Bytes, after.TotalAlloc-before.TotalAlloc)
	}
	m.add(t, c, input)
}

// LeastCPU is the least that some work takes. It is done once, and so many times while that is more than enough. With the race detector, it
// is done once, and counts as nothing.
func LeastCPU(tries int, enough time.Duration, work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Duration(math.MaxInt64)
	for try := 0; try < tries && least > enough; try++ {
		began := threadTime()
		work()
		if least = min(least, threadTime()-began); !Measures {
			return 0
		}
	}
	return least
}

func (m *Meter) add(t *testing.T, c Cost, input []any) {
	t.Helper()
	if c.CPUShare() > m.largest.CPU.CPUShare() || c.BytesShare() > m.largest.Bytes.BytesShare() {
		if dir := os.Getenv(Directory); dir != "" {
			c.Input = corpusFile(input)
			m.largest.Add(Largest{CPU: c, Bytes: c})
			if err := m.write(dir); err != nil {
				t.Fatal(err)
			}
		} else {
			m.largest.Add(Largest{CPU: c, Bytes: c})
		}
	}
	if c.CPUShare() > m.maxCPU {
		t.Errorf("%v of CPU for %d bytes: %.1f times the budget of %v and %v a MiB", c.CPU, c.Length, c.CPUShare(), CPU, CPUPerMiB)
	}
	if c.BytesShare() > 1 {
		t.Errorf("%d bytes allocated for %d: %.1f times the budget of %d and %d times the length",
			c.Bytes, c.Length, c.BytesShare(), Bytes, BytesPerByte)
	}
}

// allocated until now, without the allocations of the processors' caches.
func (m *Meter) allocated() uint64 {
	metrics.Read(m.sample[:])
	return m.sample[0].Value.Uint64()
}

// write the largest costs that this process has seen.
func (m *Meter) write(dir string) error {
	text, err := json.Marshal(m.largest)
	if err != nil {
		return fmt.Errorf("cannot encode the largest costs: %w", err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%d", m.target, os.Getpid()))
	if err := os.WriteFile(name+".new", text, 0o600); err != nil { //nolint:gosec // Who runs the fuzzer names the folder.
		return fmt.Errorf("cannot write the largest costs: %w", err)
	}
	if err := os.Rename(name+".new", name+".json"); err != nil { //nolint:gosec // Who runs the fuzzer names the folder.
		return fmt.Errorf("cannot write the largest costs: %w", err)
	}
	return nil
}

// Read the largest costs of a target that several processes have written.
func Read(dir, target string) (l Largest, err error) {
	names, err := filepath.Glob(filepath.Join(dir, target+"-*.json"))
	if err != nil {
		return l, fmt.Errorf("cannot look for the largest costs: %w", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name) //nolint:gosec // It is one of those that were found.
		if err != nil {
			return l, fmt.Errorf("cannot read the largest costs: %w", err)
		}
		var of Largest
		if err := json.Unmarshal(text, &of); err != nil {
			return l, fmt.Errorf("cannot decode the largest costs in %q: %w", name, err)
		}
		l.Add(of)
	}
	return l, nil
}

// corpusFile is how package testing writes the arguments of a target.
func corpusFile(arguments []any) string {
	var b strings.Builder
	b.WriteString("go test fuzz v1\n")
	for _, a := range arguments {
		switch a := a.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", a)
		case byte:
			fmt.Fprintf(&b, "byte(%q)\n", a)
		case string:
			fmt.Fprintf(&b, "string(%q)\n", a)
		default:
			fmt.Fprintf(&b, "%T(%v)\n", a, a)
		}
	}
	return b.String()
}
