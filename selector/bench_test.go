package selector

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// BenchmarkChoose takes as long for a few matches among a million classes as among a hundred. It holds what that costs against bounds.
func BenchmarkChoose(b *testing.B) {
	const none = time.Second
	first, three := labels.Set{"first": "yes"}, labels.Set{"region": "1", "tier": "2", "zone": "3"}
	for _, row := range []struct {
		name                   string
		asks                   labels.Set
		classes, matches, many int
		bound                  time.Duration
	}{
		{"Matches", first, 100, 10, 1000, none},
		{"Matches", first, 100_000, 1, 1000, none},
		{"Matches", first, 100_000, 10, 1000, 20 * time.Microsecond},
		{"Matches", first, 100_000, 10_000, 1, none},
		{"Matches", first, 1_000_000, 10, 1000, none},
		{"ThreeLabels", three, 1000, 1, 1000, 8 * time.Microsecond},
		{"ThreeLabels", three, 10_000, 14, 100, 80 * time.Microsecond},
		{"Change", nil, 100_000, 0, 1000, 100 * time.Microsecond},
	} {
		b.Run(fmt.Sprintf("%s/classes=%d/matches=%d", row.name, row.classes, row.matches), func(b *testing.B) {
			before := held()
			w := newChanging(row.classes, row.matches)
			heap, work := float64(held()-before)/float64(row.classes), w.next
			if row.asks != nil {
				in := claim.Claim{Namespace: "team", Name: "db", Selector: labels.SelectorFromSet(row.asks)}
				work = deciding(b, w.View, claim.Intake{Claim: in}, row.matches)
			}
			b.ReportAllocs()
			reportCPU(b, row.bound, row.many, work)
			b.ReportMetric(heap, "B/class")
		})
	}
	b.Run("Equality/classes=10000", func(b *testing.B) {
		e := newExpressive(fits("class.spec.driver == claim.spec.driver"))
		for i := range 10_000 {
			e.with(fmt.Sprint("class-", i), map[string]any{"driver": fmt.Sprint(i)})
		}
		v := e.view()
		in := v.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"driver": "7"})})
		reportCPU(b, cost.CPU, 100, deciding(b, v, in, 1))
	})
}

// reportCPU of some work: the least of the thread in 15 tries to do it many times.
func reportCPU(b *testing.B, bound time.Duration, many int, work func()) {
	for b.Loop() {
		least := cost.LeastCPU(15, 0, func() {
			for range many {
				work()
			}
		}) / time.Duration(many)
		if b.ReportMetric(least.Seconds()*1e6, "µs"); least > bound {
			b.Errorf("%v is more than %v", least, bound)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(bound.Seconds()*1e6, "µs-bound")
}

// held is the size of the heap without garbage.
func held() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// changing classes have as many changes since the index was made as half of those that may be.
type changing struct {
	*View
	kind *inventory.ClassKind
	// matches are the first classes, which have one label more.
	matches, changes int
}

func newChanging(count, matches int) *changing {
	w, all := &changing{kind: newKind("as.example.org", "Class"), matches: matches}, make([]*inventory.Class, count)
	for i := range all {
		all[i] = w.class(i)
	}
	w.View = NewView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(w.kind, all)})
	for range int(math.Sqrt(float64(count))) / 2 {
		w.next()
	}
	return w
}

func (w *changing) class(i int) *inventory.Class {
	set := map[string]string{"region": fmt.Sprint(i % 20), "tier": fmt.Sprint(i / 20 % 5), "zone": fmt.Sprint(i / 100 % 7)}
	if set["changed"] = fmt.Sprint((w.changes + 999) / 1000); i < w.matches {
		set["first"] = "yes"
	}
	return w.kind.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("class-%07d", i), Labels: set}, nil)
}

// next class changes.
func (w *changing) next() {
	from := w.Classes[0]
	w.changes++
	c := w.class(w.changes * 37 % from.Len())
	w.Change(from, from.With(c), "", c.Name)
}

func deciding(b *testing.B, v *View, in claim.Intake, candidates int) func() {
	d, err := new(Decider).Decide(b.Context(), v, in, Mode{DryRun: true})
	require.NoError(b, err)
	require.Equal(b, candidates, d.Candidates)
	return func() { _, _ = new(Decider).Decide(b.Context(), v, in, Mode{DryRun: true}) }
}
