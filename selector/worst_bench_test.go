package selector

import (
	"fmt"
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

// hostile is 10,000 classes with 64 labels each. No two classes share a label, and the
// keys are long and begin alike.
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
