package selector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// TestServingClasses proves that an inventory, which looks at what changes alone, has the
// classes, the index and the decisions of a view that is made anew.
func TestServingClasses(t *testing.T) {
	const mark = "example.org/default"
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{
			{Name: "Serves", Expression: "class.spec.size > 1"},
			{Name: "Driver", Expression: "class.spec.driver == claim.spec.driver && class.spec.size <= claim.spec.most"},
		}
		s.Classes.Partition = &v1beta1.Partition{Claim: "claim.spec.driver", Class: "class.spec.driver"}
		k.OfferWhen = "class.spec.size != 3"
	})
	plain := postgres()
	plain.Name, plain.Spec.Claims.Resource = "plain.example.org", "plain.example.org"
	e.kind.Spec.ClaimKinds = append(e.kind.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: plain.Name})
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims, plain)
	r := rand.New(rand.NewPCG(17, 1)) //nolint:gosec // It has to be reproducible.
	class := func() *inventory.Class {
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
	classes := inventory.NewClasses(kind, nil)
	for step := range 2000 {
		c := class()
		if r.IntN(4) == 0 {
			classes = classes.Without("", c.Name)
		} else {
			classes = classes.With(c)
		}
		i.ChangeClass(classes, "", c.Name)
		assert.Equal(t, classes.All(), i.Snapshot()[plain.Name].Classes[0].All(), "We should keep others' classes apart (%d)", step)
		view := i.Snapshot()[e.claims.Name]
		fresh := NewView(view.Kind, []*inventory.Classes{classes})
		require.Equal(t, fresh.Classes[0].All(), view.Classes[0].All(), "We should serve the same classes (%d)", step)
		require.Equal(t, fresh.DefaultsBySeat(), view.DefaultsBySeat(), "We should have the same defaults (%d)", step)
		indexed := fresh.Offer
		indexed.MakeIndex()
		require.Equal(t, indexed, view.Offer, "We should index the same (%d)", step)
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

// TestBudget proves who pays for expressions that cost too much.
func TestBudget(t *testing.T) {
	numbers := make([]any, 200)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	const costly = "claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c < 1000)))"
	refused := map[string]struct {
		reason  string
		world   *expressive
		classes int
	}{
		"OneEvaluation": {"We should refuse a claim that makes a class costly", newExpressive(fits("claim.spec.n.all(a, claim.spec.n.all(b, a + b < class.spec.size))")), 1},
		"Many":          {"We should refuse a claim that makes many classes costly together", newExpressive(fits("claim.spec.n.all(a, a > class.spec.size || a < 100)")), 5000},
		"Claim":         {"We should refuse a claim that is costly itself", newExpressive(fits(costly)), 1},
		"ClassKind": {"We should do so for an expression of a class kind, too", newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
			s.Fits = []v1beta1.Fit{{Name: "Costly", Expression: costly}}
		}), 1},
		"Score": {"We should refuse a claim that makes scores costly", newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Choice.Strategy, s.Choice.Score = v1beta1.LowestScore, "claim.spec.n.filter(a, a < class.spec.size).size()"
		}), 5000},
		"BindWhen": {"We should refuse it as soon as it is read", newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Claims.When = costly
		}), 1},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			for i := range tc.classes {
				tc.world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": int64(1000)})
			}
			view := tc.world.view()
			d := &Decider{Live: func(context.Context, *View, claim.Claim) (*View, error) {
				t.Error("We should not read classes for a claim that is refused.")
				return nil, nil
			}}
			in := view.Kind.Read("team", "db", map[string]any{"spec": all(map[string]any{"n": numbers})})
			got, err := d.Decide(t.Context(), view, in, Admit)
			require.NoError(t, err, "Nobody else is at fault, so that Deny holds under Ignore.")
			require.Len(t, got.Claim.Problems, 1, tc.reason)
			assert.Equal(t, "spec.n", got.Claim.Problems[0].Field, "We should name the long field.")
			assert.Nil(t, got.Class)
		})
	}
	t.Run("DrawnAmongMany", func(t *testing.T) {
		world, cheap := newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)")), newExpressive(fits("true"))
		for i := range 1000 {
			size := int64(1000)
			if i%2 == 0 {
				size = 0
			}
			world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": size})
			if size > 0 {
				cheap.with(fmt.Sprintf("class-%d", i), map[string]any{"size": size})
			}
		}
		view := world.view()
		for i := range 20 {
			name := fmt.Sprintf("db-%d", i)
			object := func() map[string]any { return map[string]any{"spec": all(map[string]any{"n": numbers})} }
			got, err := new(Decider).Decide(t.Context(), view, view.Kind.Read("team", name, object()), Admit)
			require.NoError(t, err)
			other := cheap.view()
			want, err := new(Decider).Decide(t.Context(), other, other.Kind.Read("team", name, object()), Admit)
			require.NoError(t, err)
			require.NotNil(t, got.Class)
			assert.Equal(t, want.Class.Name, got.Class.Name, "We should draw the class that is drawn without a limit.")
			assert.Positive(t, got.Skipped, "We should not judge the classes that cannot be drawn.")
		}
	})
	t.Run("CostlyClasses", func(t *testing.T) {
		const count = 1000
		for name, change := range map[string]func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec){
			"Draw": fits("class.spec.n.all(a, class.spec.n.all(b, a + b < claim.spec.size))"),
			"Score": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Choice.Strategy, s.Choice.Score = v1beta1.LowestScore, "class.spec.n.map(a, class.spec.n.map(b, a + b + claim.spec.size)).size()"
			},
		} {
			world := newExpressive(change)
			for i := range count {
				world.with(fmt.Sprintf("costly-%d", i), map[string]any{"n": numbers})
			}
			world.with("zz-good", map[string]any{"n": []any{}})
			d, err := world.decide(t, all(map[string]any{"size": int64(1000)}))
			require.NoError(t, err)
			require.NotNil(t, d.Class, name)
			assert.Equal(t, "zz-good", d.Class.Name, "A class should pay for itself, however many there are: %s", name)
			assert.Equal(t, count, d.Skipped+int(d.Dropped[d.View.Kind.free]))
			assert.Zero(t, d.Unjudged)
		}
	})
	t.Run("CostlyClassBesideLongClaim", func(t *testing.T) {
		world := newExpressive(fits("class.spec.n.all(a, class.spec.n.all(b, a + b < claim.spec.size)) && claim.spec.note != ''")).
			with("costly", map[string]any{"n": numbers[:60]}).with("good", map[string]any{"n": numbers[:2]})
		d, err := world.decide(t, all(map[string]any{"size": int64(1000), "note": strings.Repeat("x", 2000)}))
		require.NoError(t, err)
		require.Empty(t, d.Claim.Problems, "One class should not refuse a claim for its longer fields.")
		require.NotNil(t, d.Class)
		assert.Equal(t, "good", d.Class.Name)
		assert.Equal(t, reasonCostly+"=1", d.DroppedText())
	})
	t.Run("TooManyClasses", func(t *testing.T) {
		world := newExpressive(fits("claim.spec.size > class.spec.size + 1 || claim.spec.size * 2 > class.spec.size * 2 + 1"))
		for i := range 20_000 {
			world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": int64(1000)})
		}
		_, err := world.decide(t, all(map[string]any{"size": int64(10)}))
		require.ErrorContains(t, err, "simplify them", "We should say that it is nobody's fault but the registration's.")
	})
	t.Run("Class", func(t *testing.T) {
		world := newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
			s.OfferWhen = "class.spec.n.all(a, class.spec.n.all(b, class.spec.n.all(c, a + b + c < 1000)))"
		}).with("costly", map[string]any{"n": numbers}).with("cheap", map[string]any{"n": numbers[:3]})
		d, err := world.decide(t, all(map[string]any{}))
		require.NoError(t, err)
		require.NotNil(t, d.Class)
		assert.Equal(t, "cheap", d.Class.Name, "We should drop a class that costs too much, and no other")
		assert.Equal(t, "NotOffered=1", d.DroppedText())
	})
	t.Run("Default", func(t *testing.T) {
		world := newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
			s.OfferWhen = "class.status.n.all(a, class.status.n.all(b, class.status.n.all(c, a + b + c < 1000)))"
			s.Default = v1beta1.Source{Expression: "class.spec.size == 1"}
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
		assert.Equal(t, 600, e.Decision.Candidates+e.Decision.Skipped, "We should judge the first that may be drawn.")
		assert.Len(t, e.Candidates, 600, "We should explain all.")
	})
}

// TestUnlinked proves that claims wait where kinds do not know yet what they need of each other.
func TestUnlinked(t *testing.T) {
	e := newExpressive(fits("class.spec.driver == claim.spec.driver"))
	e.kind.Spec.Fits = []v1beta1.Fit{{Name: "Size", Expression: "class.spec.size < claim.spec.size"}}
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}
	knowing, ignorant := inventory.NewClassKind(e.kind, gvk, false, e.claims), inventory.NewClassKind(e.kind, gvk, false)
	for name, tc := range map[string]struct {
		claims *ClaimKind
		kind   *inventory.ClassKind
		fault  bool
	}{
		"Linked":   {NewClaimKind(e.claims, e.kind), knowing, false},
		"Classes":  {NewClaimKind(e.claims, e.kind), ignorant, true},
		"Claims":   {NewClaimKind(e.claims), knowing, true},
		"Unneeded": {NewClaimKind(postgres(), e.kind), ignorant, false},
	} {
		v := NewView(tc.claims, []*inventory.Classes{inventory.NewClasses(tc.kind, nil)})
		assert.Equal(t, tc.fault, v.Fault != nil, name)
		if tc.fault {
			assert.Equal(t, v1beta1.ReasonNotSynced, v.Fault.Reason, name)
			assert.Contains(t, v.Fault.Text, "read again")
		}
	}
}

// TestUnlinkedApart proves that what the classes of a view that waits can serve does not matter
// to another view, although both have the same classes until it is linked.
func TestUnlinkedApart(t *testing.T) {
	e := newExpressive(fits("class.spec.size > 1"))
	plain := postgres()
	plain.Name, plain.Spec.Claims.Resource = "plain.example.org", "plain.example.org"
	e.kind.Spec.ClaimKinds = append(e.kind.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: plain.Name})
	ignorant := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false)
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClaimKind(NewClaimKind(plain, e.kind))
	i.Open()
	classes := inventory.NewClasses(ignorant, nil)
	for _, name := range []string{"a", "b"} {
		classes = classes.With(ignorant.NewClass(&metav1.ObjectMeta{Name: name}, nil))
		i.ChangeClass(classes, "", name)
	}
	require.NotNil(t, i.Snapshot()[e.claims.Name].Fault)
	require.Nil(t, i.Snapshot()[plain.Name].Fault)
	assert.Equal(t, classes.All(), i.Snapshot()[plain.Name].Classes[0].All())
}

// TestListedAgain proves that a list judges no class again that has not changed.
func TestListedAgain(t *testing.T) {
	e := newExpressive(fits("class.spec.size > 1"))
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	class := func(name string) *inventory.Class {
		return kind.NewClass(&metav1.ObjectMeta{Name: name}, map[string]any{"spec": map[string]any{"size": int64(2)}})
	}
	a, b := class("a"), class("b")
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{a, b}))
	i.Open()
	view := i.views[e.claims.Name]
	require.Equal(t, 2, view.Classes[0].Len())
	view.Classes = []*inventory.Classes{view.Classes[0].Without("", "a")} // As if it had been judged otherwise, which no judgement would repeat.
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{a, b, class("c")}))
	got := i.Snapshot()[e.claims.Name].Classes[0]
	assert.Nil(t, got.Find("", "a"), "We should not judge a class again that has not changed.")
	assert.NotNil(t, got.Find("", "b"))
	assert.NotNil(t, got.Find("", "c"), "We should judge a class that is new.")
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{class("a"), b}))
	assert.NotNil(t, i.Snapshot()[e.claims.Name].Classes[0].Find("", "a"), "We should judge a class that has changed.")
}

// TestClassChangesMeanwhile proves that a claim sees a class as it was at one moment.
func TestClassChangesMeanwhile(t *testing.T) {
	e := newExpressive(fits("class.spec.driver == claim.spec.driver && class.spec.size + claim.spec.zero == 2"))
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	class := func(driver string, size int64) *inventory.Class {
		meta := &metav1.ObjectMeta{Name: "class", Labels: map[string]string{"all": "yes"}}
		return kind.NewClass(meta, map[string]any{"spec": map[string]any{"driver": driver, "size": size}})
	}
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{class("a", 1)}))
	i.Open()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil { // No version has both.
			i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{class("b", 2)}))
			i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{class("a", 1)}))
		}
	}()
	decided := map[bool]int{}
	for n := 0; n < 3000 || len(decided) < 2; n++ { // The other goroutine may start late.
		view := i.Snapshot()[e.claims.Name]
		object := map[string]any{"metadata": map[string]any{"name": "db"}, "spec": all(map[string]any{"driver": "a", "zero": int64(0)})}
		d, err := new(Decider).Decide(ctx, view, view.Kind.Read("team", "db", object), Admit)
		require.NoError(t, err)
		require.Nil(t, d.Class, "We should not mix two versions of a class")
		decided[d.DroppedText() == ""]++
	}
}
