package selector

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

const plans, storage = "plans.example.org", "storageclasses.storage.k8s.io"

// planned is a ClaimKind whose claims name a plan.
func planned(name string, expressions ...v1beta1.Expression) *v1beta1.ClaimKind {
	k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
	k.Spec.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: plans, NameExpression: "claim.spec.planId"}}
	k.Spec.Reference.Path = ".spec.classRef"
	for i, e := range expressions {
		k.Spec.Classes.Fits = append(k.Spec.Classes.Fits, v1beta1.Fit{Name: fmt.Sprintf("Fit%d", i), Expression: e})
	}
	return k
}

func plan(tier string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"tier": tier, "size": int64(3)}}
}

func TestUnionRelated(t *testing.T) {
	tiers := planned("tiers.example.org", "class.metadata.name == related.plan.spec.tier")
	both := planned("both.example.org", "class.metadata.name == related.plan.spec.size && namespace.metadata.labels.tenant == 'a'")
	both.Spec.Classes.Related = append(both.Spec.Classes.Related,
		v1beta1.Related{Name: "storage", Resource: storage, Version: "v1", NameExpression: "related.plan.spec.storage"},
		v1beta1.Related{Name: "other", Resource: plans, NameExpression: "'other'"})
	both.Spec.Classes.Fits = append(both.Spec.Classes.Fits, v1beta1.Fit{Name: "Other", Expression: "related.other.metadata.name == related.storage.metadata.name"})
	text := func(kinds ...*v1beta1.ClaimKind) (all []string) {
		var compiled []*ClaimKind
		for _, k := range kinds {
			require.Nil(t, NewClaimKind(k).fault)
			compiled = append(compiled, NewClaimKind(k))
		}
		for _, r := range UnionRelated(compiled...) {
			all = append(all, fmt.Sprint(r.Key(), r.Fields.Paths(), r.MetadataOnly()))
		}
		return all
	}
	assert.Equal(t, []string{"plans.example.org [spec.tier] false"}, text(tiers), "We should say what is looked at.")
	assert.Equal(t, []string{
		"namespaces [metadata.labels[tenant]] true",
		"plans.example.org [metadata.name spec.size spec.storage spec.tier] false",
		"storageclasses.storage.k8s.io/v1 [metadata.name] true",
	}, text(tiers, both), "We should join what several kinds, and several names of one kind, look at.")
	assert.Empty(t, text(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "none"}}), "We should need nothing without expressions.")
}

func TestObjects(t *testing.T) {
	kind := &rules.Kind{Resource: plans, Fields: expression.NewFields(fields.Path{"spec", "tier"})}
	gold, iron := kind.Fields.Project(plan("gold")), kind.Fields.Project(plan("iron"))
	none := inventory.NewObjects(kind, true, nil)
	one := none.With("team", "p", gold)
	assert.Equal(t, []int{0, 1}, []int{none.Len(), one.Len()}, "We should leave alone what others hold.")
	assert.Same(t, gold, one.Find("team", "p"))
	assert.Nil(t, one.Find("other", "p"), "We should tell namespaces apart.")
	assert.Nil(t, one.Find("team", "q"))
	assert.Same(t, one, one.With("team", "p", kind.Fields.Project(map[string]any{"spec": map[string]any{"tier": "gold", "size": int64(7)}})),
		"We should see no change where nobody looks.")
	two := one.With("team", "p", iron)
	assert.Same(t, iron, two.Find("team", "p"))
	assert.Same(t, gold, one.Find("team", "p"))
	assert.Same(t, two, two.Without("other", "p"), "We should see no change where nothing was.")
	assert.Zero(t, two.Without("team", "p").Len())
	assert.Same(t, gold, inventory.NewObjects(kind, true, map[types.NamespacedName]*expression.Object{{Namespace: "team", Name: "p"}: gold}).Find("team", "p"))
	assert.Nil(t, (*inventory.Objects)(nil).Find("team", "p"), "We should find nothing where nothing is known.")
}

func TestInventoryRelated(t *testing.T) {
	const name = "claims.example.org"
	k := NewClaimKind(planned(name, "class.metadata.name == related.plan.spec.tier"))
	other := NewClaimKind(planned("sized.example.org", "related.plan.spec.size > 1"))
	kindOf := func(k *ClaimKind) *rules.Kind { return k.RelatedKinds()[0] }
	objects := func(k *rules.Kind, tier string) *inventory.Objects {
		return inventory.NewObjects(k, false, map[types.NamespacedName]*expression.Object{{Name: "p"}: k.Fields.Project(plan(tier))})
	}
	i := NewInventory()
	i.Open()
	i.SetClaimKind(k)
	view := func() *View { return i.Snapshot()[name] }
	fault := func() string {
		if view().Fault == nil {
			return ""
		}
		assert.Equal(t, v1beta1.ReasonRelatedMissing, view().Fault.Reason)
		assert.Same(t, view().Fault, view().RelatedMissing)
		return view().Fault.Text
	}
	assert.Equal(t, `the objects of "plans.example.org", at which expressions of claim kind "claims.example.org" look, are not known yet: `+
		`the API server has not listed them yet`, fault(), "We should bind no claim before we know what it names.")

	i.SetRelatedMissing(rules.Key{Resource: plans}, "no right")
	assert.Contains(t, fault(), "not known yet: no right", "We should say why.")

	i.SetRelated(objects(kindOf(k), "gold"))
	require.Empty(t, fault(), "We should bind claims once we know what they name.")
	first := view()
	assert.Equal(t, "gold", tierOf(t, first), "We should have the objects in the view.")

	i.SetRelated(objects(kindOf(k), "iron"))
	assert.Equal(t, []string{"gold", "iron"}, []string{tierOf(t, first), tierOf(t, view())}, "We should make a new view for other objects, and leave the old one alone.")

	i.SetRelatedMissing(rules.Key{Resource: plans}, "no answer")
	assert.Empty(t, fault(), "We should go on with the last known objects.")
	assert.Equal(t, "iron", tierOf(t, view()))

	i.SetClaimKind(other)
	require.NotNil(t, i.Snapshot()[other.Name].Fault, "We should not take a field that is not held for one that is absent.")
	assert.Contains(t, i.Snapshot()[other.Name].Fault.Text, "no answer")
	assert.Empty(t, fault(), "We should leave claim kinds alone that look at what is held.")

	union := UnionRelated(k, other)[0]
	i.SetRelated(objects(union, "lead"))
	assert.Empty(t, fault())
	assert.Nil(t, i.Snapshot()[other.Name].Fault)
	assert.Equal(t, "lead", tierOf(t, view()))

	before := view()
	i.SetRelated(inventory.NewObjects(&rules.Kind{Resource: "unheard.of", Fields: expression.NewFields()}, false, nil))
	assert.Same(t, before, view(), "We should make no new view for what a kind does not need.")

	i.DeleteRelated(rules.Key{Resource: plans})
	assert.Contains(t, fault(), "not listed them yet", "We should forget what we are told to.")
}

func tierOf(t *testing.T, v *View) string {
	t.Helper()
	o := v.Related(plans, "").Find("", "p")
	require.NotNil(t, o)
	tier, _ := o.Lookup(fields.Path{"spec", "tier"})
	text, _ := tier.(string)
	return text
}

// The objects of a kind change without a new index of the classes.
func TestInventoryRelatedSharesClasses(t *testing.T) {
	k := NewClaimKind(planned("claims.example.org", "class.metadata.name == related.plan.spec.tier"))
	related := k.RelatedKinds()[0]
	i := NewInventory()
	i.SetClaimKind(k)
	i.SetRelated(inventory.NewObjects(related, false, nil))
	i.Open()
	before := i.Snapshot()[k.Name]
	i.SetRelated(inventory.NewObjects(related, false, nil).With("", "p", related.Fields.Project(plan("gold"))))
	after := i.Snapshot()[k.Name]
	assert.NotSame(t, before, after)
	assert.Equal(t, indexOf(before), indexOf(after))
	assert.NotNil(t, after.With(nil).Related(plans, ""), "We should keep the objects with classes that were read live.")
}

func BenchmarkObjects(b *testing.B) {
	kind := &rules.Kind{Resource: plans, Fields: expression.NewFields(fields.Path{"spec", "tier"})}
	const count = 10_000
	read := func() *inventory.Objects {
		all := map[types.NamespacedName]*expression.Object{}
		for i := range count {
			p := plan([]string{"gold", "iron"}[i%2])
			p["status"] = map[string]any{"text": fmt.Sprintf("%01000d", i)}
			all[types.NamespacedName{Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("plan-", i)}] = kind.Fields.Project(p)
		}
		return inventory.NewObjects(kind, true, all)
	}
	b.Run("Memory", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			o := read()
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/object")
			runtime.KeepAlive(o)
		}
	})
	o := read()
	b.Run("Find", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			o.Find("team-7", "plan-7")
		}
	})
	b.Run("With", func(b *testing.B) {
		tiers := []*expression.Object{kind.Fields.Project(plan("gold")), kind.Fields.Project(plan("iron"))}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			o = o.With("team-7", "plan-7", tiers[i%2])
		}
	})
}

// TestRelatedOfCluster proves that a namespace does not matter to an object that has none.
func TestRelatedOfCluster(t *testing.T) {
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: plans, NameExpression: "claim.spec.plan", NamespaceExpression: "'platform'"}}
		s.Claims.When = "related.plan.spec.ready"
	}).with("a", map[string]any{})
	view := e.view()
	kind := view.Kind.RelatedKinds()[0]
	view = view.WithRelated([]*inventory.Objects{inventory.NewObjects(kind, false, map[types.NamespacedName]*expression.Object{
		{Name: "gold"}: kind.Fields.Project(map[string]any{"spec": map[string]any{"ready": true}}),
	})})
	d, err := new(Decider).Decide(t.Context(), view, view.Kind.Read("team", "db", map[string]any{"spec": all(map[string]any{"plan": "gold"})}), Later)
	require.NoError(t, err)
	require.Empty(t, d.Claim.Problems)
	require.NotNil(t, d.Class)
	assert.Equal(t, "gold", d.facts.names["plan"])
}
