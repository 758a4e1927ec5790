package selector

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// BenchmarkChoose takes as long for a few matches among a million classes as among a hundred.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []struct{ classes, matches int }{{100_000, 1}, {100_000, 10}, {100_000, 10_000}, {100, 10}, {1_000_000, 10}} {
		b.Run(fmt.Sprintf("classes=%d/matches=%d", n.classes, n.matches), func(b *testing.B) {
			kind := newKind("as.example.org", "Class", postgres().Name)
			var classes []*inventory.Class
			for i := range n.classes {
				meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%06d", i), Labels: map[string]string{"region": fmt.Sprint(i % 20)}}
				if i < n.matches {
					meta.Labels["first"] = "yes"
				}
				classes = append(classes, kind.NewClass(meta, nil))
			}
			view := newView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes)})
			asking := claim.Claim{Namespace: "team", Name: "db", Selector: labels.SelectorFromSet(labels.Set{"first": "yes"})}
			require.Equal(b, n.matches, choose(view, asking, 0).Candidates)
			b.ReportAllocs()
			decider, in := &Decider{}, claim.Intake{Claim: asking}
			for b.Loop() {
				_, _ = decider.Decide(b.Context(), view, in, DryRun)
			}
		})
	}
}
