package selector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// TestServingClasses proves that an inventory, which looks at what changes alone, has the
// classes, the index and the decisions of a view that is made anew.
func TestServingClasses(t *testing.T) {
	const mark = "example.org/default"
	e := newExpressive(func(s *v1alpha1.ClaimKindSpec, k *v1alpha1.ClassKindSpec) {
		s.Fits = []v1alpha1.Fit{
			{Name: "Serves", Expression: "class.spec.size > 1"},
			{Name: "Driver", Expression: "class.spec.driver == claim.spec.driver && class.spec.size <= claim.spec.most"},
		}
		s.Partition = &v1alpha1.Partition{Claim: "claim.spec.driver", Class: "class.spec.driver"}
		k.OfferWhen = "class.spec.size != 3"
	})
	plain := postgres()
	plain.Name, plain.Spec.Resource = "plain.example.org", "plain.example.org"
	e.kind.Spec.ClaimKinds = append(e.kind.Spec.ClaimKinds, plain.Name)
	kind := NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims, plain)
	r := rand.New(rand.NewPCG(17, 1)) //nolint:gosec // It has to be reproducible.
	class := func() *Class {
		spec := map[string]any{"driver": string("abc"[r.IntN(3)])}
		if r.IntN(8) > 0 {
			spec["size"] = int64(r.IntN(5))
		}
		meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%d", r.IntN(20)), Labels: map[string]string{"all": "yes"}}
		if r.IntN(3) == 0 {
			meta.Annotations = map[string]string{mark: "true"}
		}
		return kind.NewClass(meta, map[string]any{"spec": spec})
	}
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClaimKind(NewClaimKind(plain, e.kind))
	i.Open()
	classes := NewClasses(kind, nil)
	for step := range 2000 {
		if c := class(); r.IntN(4) == 0 {
			classes = classes.Without("", c.Name)
		} else {
			classes = classes.With(c)
		}
		i.SetClasses(classes)
		assert.Equal(t, classes.All(), i.Snapshot()[plain.Name].Classes[0].All(), "We should keep others' classes apart (%d)", step)
		view := i.Snapshot()[e.claims.Name]
		fresh := NewView(view.Kind, []*Classes{classes})
		require.Equal(t, fresh.Classes[0].All(), view.Classes[0].All(), "We should serve the same classes (%d)", step)
		require.Equal(t, fresh.DefaultsBySeat(), view.DefaultsBySeat(), "We should have the same defaults (%d)", step)
		require.Equal(t, newIndex(fresh.Classes, fresh.derivation).byKey, view.index.byKey, "We should index the same (%d)", step)
		spec := map[string]any{"driver": string("abc"[r.IntN(3)]), "most": int64(r.IntN(5))}
		if r.IntN(2) == 0 {
			spec = all(spec)
		}
		object := map[string]any{"metadata": map[string]any{"name": "db"}, "spec": spec}
		var texts [2]string
		for n, v := range []*View{view, fresh} {
			d, err := new(Decider).Decide(t.Context(), v, v.Kind.Read("team", "db", object), Admit)
			require.NoError(t, err)
			texts[n] = fmt.Sprint(d.Class, d.Candidates, d.DroppedText(), d.Warning(), d.Reason())
		}
		require.Equal(t, texts[1], texts[0], "We should decide the same (%d)", step)
	}
}

// TestBudget proves that expressions that cost too much end the decision, however the cost
// comes together, and do not drop classes.
func TestBudget(t *testing.T) {
	numbers := make([]any, 200)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	cases := map[string]struct {
		reason  string
		world   *expressive
		classes int
	}{
		"OneEvaluation": {"We should end one that costs too much", newExpressive(fits("claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c < class.spec.size)))")), 1},
		"Many":          {"We should end many that cost too much together", newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)")), 5000},
		"Claim":         {"We should end what looks at the claim alone", newExpressive(fits("claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c < 1000)))")), 1},
		"Score": {"We should end scores that cost too much", newExpressive(func(s *v1alpha1.ClaimKindSpec, _ *v1alpha1.ClassKindSpec) {
			s.Strategy, s.Score = v1alpha1.LowestScore, "claim.spec.n.filter(a, a < class.spec.size).size()"
		}), 5000},
		"BindWhen": {"We should end what is evaluated as soon as the claim is read", newExpressive(func(s *v1alpha1.ClaimKindSpec, _ *v1alpha1.ClassKindSpec) {
			s.BindWhen = "claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c < 1000)))"
		}), 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range tc.classes {
				tc.world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": int64(1000)})
			}
			view, read := tc.world.view(), false
			d := &Decider{Live: func(_ context.Context, v *View, _ Claim) (*View, error) {
				read = true
				return v, nil
			}}
			in := view.Kind.Read("team", "db", map[string]any{"spec": all(map[string]any{"n": numbers})})
			_, err := d.Decide(t.Context(), view, in, Admit)
			require.ErrorIs(t, err, expression.ErrBudget, tc.reason)
			assert.Contains(t, err.Error(), "simplify them")
			assert.False(t, read, "We should not read classes that nobody can judge")
		})
	}
	t.Run("Class", func(t *testing.T) {
		world := newExpressive(func(_ *v1alpha1.ClaimKindSpec, s *v1alpha1.ClassKindSpec) {
			s.OfferWhen = "class.spec.n.all(a, class.spec.n.all(b, class.spec.n.all(c, a + b + c < 1000)))"
		}).with("costly", map[string]any{"n": numbers}).with("cheap", map[string]any{"n": numbers[:3]})
		d, err := world.decide(t, all(map[string]any{}))
		require.NoError(t, err)
		require.NotNil(t, d.Class)
		assert.Equal(t, "cheap", d.Class.Name, "We should drop a class that costs too much, and no other")
		assert.Equal(t, "NotOffered=1", d.DroppedText())
	})
	t.Run("Default", func(t *testing.T) {
		world := newExpressive(func(_ *v1alpha1.ClaimKindSpec, s *v1alpha1.ClassKindSpec) {
			s.OfferWhen = "class.status.n.all(a, class.status.n.all(b, class.status.n.all(c, a + b + c < 1000)))"
			s.Default = v1alpha1.Source{Expression: "class.spec.size == 1"}
		}).with("costly", map[string]any{"size": int64(1)})
		world.classes[0]["status"] = map[string]any{"n": numbers}
		class := world.view().Classes[0].All()[0]
		assert.NotEmpty(t, class.OfferErr)
		assert.True(t, class.Default, "We should not let the status move a seat by what it costs")
	})
	t.Run("Explain", func(t *testing.T) {
		world := newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)"))
		for i := range 600 {
			world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": int64(1000)})
		}
		view := world.view()
		in := view.Kind.Read("team", "db", map[string]any{"spec": all(map[string]any{"n": numbers})})
		e, err := new(Decider).Explain(t.Context(), view, in)
		require.NoError(t, err)
		assert.Len(t, e.Candidates, e.Decision.Candidates, "We should explain what costs less than the budget once")
		assert.Len(t, e.Candidates, 600)
	})
}

// TestUnlinked proves that claims wait where kinds do not know yet what they need of each other.
func TestUnlinked(t *testing.T) {
	e := newExpressive(fits("class.spec.driver == claim.spec.driver"))
	e.kind.Spec.Fits = []v1alpha1.Fit{{Name: "Size", Expression: "class.spec.size < claim.spec.size"}}
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}
	knowing, ignorant := NewClassKind(e.kind, gvk, false, e.claims), NewClassKind(e.kind, gvk, false)
	for name, tc := range map[string]struct {
		claims *ClaimKind
		kind   *ClassKind
		fault  bool
	}{
		"Linked":   {NewClaimKind(e.claims, e.kind), knowing, false},
		"Classes":  {NewClaimKind(e.claims, e.kind), ignorant, true},
		"Claims":   {NewClaimKind(e.claims), knowing, true},
		"Unneeded": {NewClaimKind(postgres(), e.kind), ignorant, false},
	} {
		v := NewView(tc.claims, []*Classes{NewClasses(tc.kind, nil)})
		assert.Equal(t, tc.fault, v.Fault != nil, name)
		if tc.fault {
			assert.Equal(t, v1alpha1.ReasonNotSynced, v.Fault.Reason, name)
			assert.Contains(t, v.Fault.Text, "read again")
		}
	}
	assert.False(t, knowing.Same(ignorant))
	assert.False(t, NewClaimKind(e.claims).Same(NewClaimKind(e.claims, e.kind)))
}

// TestUnlinkedApart proves that what the classes of a view that waits can serve does not matter
// to another view, although both have the same classes until it is linked.
func TestUnlinkedApart(t *testing.T) {
	e := newExpressive(fits("class.spec.size > 1"))
	plain := postgres()
	plain.Name, plain.Spec.Resource = "plain.example.org", "plain.example.org"
	e.kind.Spec.ClaimKinds = append(e.kind.Spec.ClaimKinds, plain.Name)
	ignorant := NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false)
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClaimKind(NewClaimKind(plain, e.kind))
	i.Open()
	classes := NewClasses(ignorant, nil)
	for _, name := range []string{"a", "b"} {
		classes = classes.With(ignorant.NewClass(&metav1.ObjectMeta{Name: name}, nil))
		i.SetClasses(classes)
	}
	require.NotNil(t, i.Snapshot()[e.claims.Name].Fault)
	require.Nil(t, i.Snapshot()[plain.Name].Fault)
	assert.Equal(t, classes.All(), i.Snapshot()[plain.Name].Classes[0].All())
}

// TestClassChangesMeanwhile proves that a claim sees a class as it was at one moment.
func TestClassChangesMeanwhile(t *testing.T) {
	e := newExpressive(fits("class.spec.driver == claim.spec.driver && class.spec.size + claim.spec.zero == 2"))
	kind := NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	class := func(driver string, size int64) *Class {
		meta := &metav1.ObjectMeta{Name: "class", Labels: map[string]string{"all": "yes"}}
		return kind.NewClass(meta, map[string]any{"spec": map[string]any{"driver": driver, "size": size}})
	}
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClasses(NewClasses(kind, []*Class{class("a", 1)}))
	i.Open()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil { // No version has both.
			i.SetClasses(NewClasses(kind, []*Class{class("b", 2)}))
			i.SetClasses(NewClasses(kind, []*Class{class("a", 1)}))
		}
	}()
	decided := map[bool]int{}
	for range 3000 {
		view := i.Snapshot()[e.claims.Name]
		object := map[string]any{"metadata": map[string]any{"name": "db"}, "spec": all(map[string]any{"driver": "a", "zero": int64(0)})}
		d, err := new(Decider).Decide(ctx, view, view.Kind.Read("team", "db", object), Admit)
		require.NoError(t, err)
		require.Nil(t, d.Class, "We should not mix two versions of a class")
		decided[d.DroppedText() == ""]++
	}
	assert.Positive(t, decided[true], "We should see the one version")
	assert.Positive(t, decided[false], "We should see the other")
}
