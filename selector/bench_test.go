package selector

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// choosing is a case of BenchmarkChoose. It differs in one dimension from the baseline:
// a claim by one label that 10 of 100,000 classes of one kind have.
type choosing struct {
	classes, kinds, matches, terms int
	strategy                       v1beta1.Strategy
	unopinionated                  bool
}

var baseline = choosing{classes: 100_000, kinds: 1, matches: 10, terms: 1, strategy: v1beta1.WeightedRandom}

func BenchmarkChoose(b *testing.B) {
	views := map[[2]int]*View{} // of so many classes of so many kinds
	run := func(name string, change func(*choosing)) {
		b.Run(name, func(b *testing.B) {
			c := baseline
			change(&c)
			size := [2]int{c.classes, c.kinds}
			if views[size] == nil {
				clear(views) // Otherwise a million would slow the garbage collector.
				var offered []*inventory.Classes
				for i := range c.kinds {
					offered = append(offered, inventory.NewClasses(crowd(fmt.Sprintf("k%02ds.example.org", i), c.classes/c.kinds, i, c.kinds)))
				}
				views[size] = newView(NewClaimKind(postgres()), offered)
			}
			registration := postgres()
			registration.Spec.Choice.Strategy = c.strategy
			kind := NewClaimKind(registration)
			if kind.Strategy.Counted {
				kind.Tally = &Tally{}
			}
			view := *views[size]
			view.Kind = kind
			asking := claim.Claim{Namespace: "team", Name: "db"}
			if !c.unopinionated {
				text := fmt.Sprintf("first-%d=yes", c.matches)
				for _, term := range []string{"region", "tier in (gold,platinum)", "team", "first-100=yes", "tier!=silver", "!nothing", "first-1000"}[:c.terms-1] {
					text += "," + term
				}
				var err error
				asking.Selector, err = labels.Parse(text)
				require.NoError(b, err)
			}
			require.Equal(b, c.matches, choose(&view, asking, 0).Candidates)
			b.ReportAllocs()
			decider, in := &Decider{}, claim.Intake{Claim: asking}
			for b.Loop() {
				_, _ = decider.Decide(b.Context(), &view, in, DryRun)
			}
		})
	}
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		run(fmt.Sprintf("matches=%d", n), func(c *choosing) { c.matches = n })
	}
	for _, n := range []int{1, 2, 4, 8} {
		run(fmt.Sprintf("terms=%d", n), func(c *choosing) { c.terms = n })
	}
	for _, s := range []v1beta1.Strategy{v1beta1.Random, v1beta1.WeightedRandom, v1beta1.HighestWeight, v1beta1.LeastClaims, v1beta1.RoundRobin} {
		run("strategy="+string(s), func(c *choosing) { c.strategy = s })
	}
	run("selector=none", func(c *choosing) { c.unopinionated = true })
	for _, n := range []int{10, 50} {
		run(fmt.Sprintf("kinds=%d", n), func(c *choosing) { c.kinds = n })
	}
	for _, n := range []int{100, 1000, 10_000, 100_000, 1_000_000} {
		run(fmt.Sprintf("classes=%d", n), func(c *choosing) { c.classes = n })
	}
}

// BenchmarkChange replaces one class of one kind by a version with another label, or with another weight, until claims see it.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000, 100_000, 1_000_000} {
		kind, classes := crowd("as.example.org", n, 0, 1)
		for _, what := range []string{"label", "weight"} {
			b.Run(fmt.Sprintf("classes=%d/%s", n, what), func(b *testing.B) {
				inv := NewInventory()
				inv.Open()
				inv.SetClaimKind(NewClaimKind(postgres()))
				x := inventory.NewClasses(kind, classes)
				var versions [2]*inventory.Class
				for i, team := range []string{"red", "blue"} {
					m := &metav1.ObjectMeta{Name: "class-000050", Labels: map[string]string{"tier": "other", "region": "region-1", "team": team}}
					if what == "weight" {
						m.Labels["team"], m.Annotations = "red", map[string]string{weightAnnotation: fmt.Sprint(i)}
					}
					versions[i] = kind.NewClass(m, nil)
				}
				inv.SetClasses(x)
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					i++
					x = x.With(versions[i%2])
					inv.ChangeClass(x, "", "class-000050")
				}
			})
		}
	}
}

// BenchmarkNewView builds everything, as after a list. It reports the memory that a
// class takes then: its labels, name and places in the index.
func BenchmarkNewView(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			before := heapBytes()
			kind, classes := crowd("as.example.org", n, 0, 1)
			view := newView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes)})
			held := heapBytes() - before
			b.ReportAllocs()
			for b.Loop() {
				newView(view.Kind, []*inventory.Classes{inventory.NewClasses(kind, classes)})
			}
			b.ReportMetric(float64(held)/float64(view.Len()), "B/class")
		})
	}
}

func heapBytes() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // No machine has that much.
}

// crowd is n classes of one of several kinds, with three labels each. Of the classes of all kinds together, the first 10, 100 and so on
// have a label that says so, and ten are golden and default.
func crowd(name string, n, i, kinds int) (*inventory.ClassKind, []*inventory.Class) {
	kind := newKind(name, "Class", postgres().Name)
	var classes []*inventory.Class
	for j := range n {
		rank := j*kinds + i
		meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%06d", j), Labels: map[string]string{
			"tier": "other", "region": fmt.Sprintf("region-%d", rank%20), "team": fmt.Sprintf("team-%d", rank%100),
		}}
		if rank < 10 {
			meta.Labels["tier"] = "gold"
			meta.Annotations = map[string]string{defaultAnnotation: "true"}
		}
		for first := 1; first <= 10_000; first *= 10 {
			if rank < first {
				meta.Labels[fmt.Sprint("first-", first)] = "yes"
			}
		}
		classes = append(classes, kind.NewClass(meta, nil))
	}
	return kind, classes
}

// BenchmarkExpressions is what expressions cost a claim: among 100,000 classes, of which 10 equal it, and for 100 candidates.
func BenchmarkExpressions(b *testing.B) {
	run := func(name string, e *expressive, spec map[string]any, candidates int) {
		b.Run(name, func(b *testing.B) {
			e.indexed = true
			view := e.view()
			object := map[string]any{"metadata": map[string]any{"name": "db", "namespace": "team"}, "spec": spec}
			in, decider := view.Kind.Read("team", "db", object), &Decider{}
			b.ReportAllocs()
			for b.Loop() {
				d, err := decider.Decide(b.Context(), view, in, Admit)
				if err != nil || d.Candidates != candidates {
					b.Fatal(err, d.Candidates)
				}
			}
		})
	}
	crowded := func(n int, expressions ...string) *expressive {
		e := newExpressive(fits(expressions...))
		for i := range n {
			e.with(fmt.Sprintf("class-%d", i), map[string]any{"driver": fmt.Sprintf("driver-%d", i/10), "size": int64(i)})
		}
		return e
	}
	run("none", crowded(100), all(map[string]any{}), 100)
	run("equality", crowded(100_000, "class.spec.driver == claim.spec.driver"), all(map[string]any{"driver": "driver-7"}), 10)
	run("class", crowded(100_000, "class.spec.driver == 'driver-7'"), all(map[string]any{}), 10)
	run("comparison", crowded(100, "class.spec.size >= claim.spec.size"), all(map[string]any{"size": int64(0)}), 100)
	run("unindexed-10000", crowded(10_000, "class.spec.size >= claim.spec.size"), all(map[string]any{"size": int64(9000)}), 1000)
}

// hostile is 10,000 classes with 64 labels each. No two classes share a label, and the keys are long and begin alike.
func hostile() []*inventory.Class {
	kind := newKind("as.example.org", "Class", postgres().Name)
	classes := make([]*inventory.Class, 10_000)
	for i := range classes {
		meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%06d", i), Labels: map[string]string{}}
		for j := range v1beta1.MaxSelectorRequirements {
			meta.Labels[hostileKey(j)] = fmt.Sprint(1_000_000_000 + i)
		}
		classes[i] = kind.NewClass(meta, nil)
	}
	return classes
}

func hostileKey(i int) string {
	return strings.Repeat("a", 100) + fmt.Sprintf(".example.org/key-%02d", i)
}

// worst are the selectors that take longest for each of those classes.
func worst() map[string]string {
	many := func(n int, format func(i int, key string) string) string {
		terms := make([]string, n)
		for i := range terms {
			terms[i] = format(i, hostileKey(i))
		}
		return strings.Join(terms, ",")
	}
	every := func(format func(i int, key string) string) string {
		return many(v1beta1.MaxSelectorRequirements, format)
	}
	values := func(from, n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint(1_000_000_000 + from + i)
		}
		return strings.Join(all, ",")
	}
	return map[string]string{
		"Exists":      every(func(_ int, key string) string { return key }),
		"NotExists":   every(func(i int, _ string) string { return fmt.Sprintf("!a%d", i) }),
		"NotIn":       every(func(i int, key string) string { return fmt.Sprintf("%s notin (%s)", key, values(16*i, 4)) }),
		"GreaterThan": many(v1beta1.MaxSelectorComparisons, func(_ int, key string) string { return key + ">999999999" }),
		"Values":      fmt.Sprintf("%s notin (%s)", hostileKey(0), values(0, v1beta1.MaxSelectorValues)),
		"Everything":  "",
	}
}

func BenchmarkWorst(b *testing.B) {
	kind, classes := NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(newKind("as.example.org", "Class"), hostile())}
	view, bare := newView(kind, classes), NewView(kind, classes)
	for name, text := range worst() {
		s, err := labels.Parse(text)
		require.NoError(b, err)
		for name, view := range map[string]*View{name: view, name + "/NoIndex": bare} {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				b.ReportMetric(float64(len(text)), "input-B")
				asking := claim.Claim{Namespace: "team", Name: "db", Selector: s}
				n, decider := 0, &Decider{}
				before := cpu()
				for b.Loop() {
					d, _ := decider.Decide(b.Context(), view, claim.Intake{Claim: asking}, DryRun)
					n = d.Candidates
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(n), "candidates")
			})
		}
	}
}

// BenchmarkDefaults looks up the default class of one namespace, for the guard and for a
// claim without a selector, while other namespaces have theirs.
func BenchmarkDefaults(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		view := ownDefaults(n)
		b.Run(fmt.Sprintf("guard/namespaces=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view.DefaultsOf(inventory.Seat{ClaimKind: view.Kind.Name, Namespace: "team-0"})
			}
		})
		b.Run(fmt.Sprintf("claim/namespaces=%d", n), func(b *testing.B) {
			decider, in := &Decider{}, claim.Intake{Claim: claim.Claim{Namespace: "team-0", Name: "db"}}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = decider.Decide(b.Context(), view, in, DryRun)
			}
		})
	}
}

// cpu is the CPU time of this process, which does not depend on others.
func cpu() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}
