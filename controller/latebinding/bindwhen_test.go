package latebinding

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

// claims.when has the claims of a kind wait for an expression. They may name a plan.
func bindWhen(text v1beta1.Expression) func(*v1beta1.ClaimKind) {
	return func(k *v1beta1.ClaimKind) {
		k.Spec.Claims.When = text
		if strings.Contains(string(text), "related.") {
			k.Spec.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: "plans.example.org", NameExpression: "claim.spec.plan"}}
		}
	}
}

// relate has the inventory know these objects, by name, as the watches of related kinds do.
func (r *lateReplica) relate(t *testing.T, objects map[types.NamespacedName]map[string]any) {
	t.Helper()
	kinds := selector.NewClaimKind(r.kind).RelatedKinds()
	require.Len(t, kinds, 1)
	projected := map[types.NamespacedName]*expression.Object{}
	for name, o := range objects {
		projected[name] = kinds[0].Fields.Project(o)
	}
	r.registration.Inventory.SetRelated(inventory.NewObjects(kinds[0], true, projected))
}

// rounds waits until the binder has looked at all claims.
func (r *lateReplica) rounds(t testing.TB) {
	t.Helper()
	w, k := r.claims.watches()[lateKind], r.kindBinder(t)
	eventually(t, "We should look at all claims.", func(c *assert.CollectT) {
		view := k.view()
		w.own(func(s *claimState) { assert.True(c, view != nil && s.rounds.view == view && s.waiting.due.Len() == 0) })
	})
}

// notify sends the events of claims that have waited long enough by then.
func (r *lateReplica) notify(t testing.TB) {
	t.Helper()
	r.rounds(t)
	k := r.kindBinder(t)
	k.notify(t.Context(), k.view(), time.Now().Add(noticeDelay+time.Second))
}

func TestDelayedBinding(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/early", `{}`)
	s.set(t, "team-a/ready", `{"node":"a","classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/fails", `{"node":5}`)
	r := newLateReplica(t, s, lateClaimKind(bindWhen("has(claim.spec.node) && claim.spec.node.size() > 0")))
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Waiting: 2})
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 1})
	s.set(t, "team-a/early", wantsGold)
	eventually(t, "We should inform the author of a claim for which the expression fails.", func(c *assert.CollectT) {
		r.notify(t)
		notes := s.notes(v1beta1.EventNoMatchingClass)
		assert.Len(c, notes, 1)
		assert.Contains(c, notes["team-a/fails"], "spec.claims.when")
	})
	assert.Equal(t, map[string]string{"team-a/early": "", "team-a/ready": "gold", "team-a/fails": ""}, s.classes(),
		"We should bind no claim that is not to be bound yet.")
	s.set(t, "team-a/early", `{"node":"b","classSelector":{"matchLabels":{"tier":"gold"}}}`)
	r.awaitCounts(t, ClaimCounts{Bound: 2, Waiting: 1})
	assert.Equal(t, map[string]int{"team-a/early": 1, "team-a/ready": 1}, s.patches)
}

// TestBindingOverDefaults replaces references with which the schema fills claims.
func TestBindingOverDefaults(t *testing.T) {
	const ours = `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":%q},"classSelector":{"matchLabels":{"tier":%q}}}`
	s := newClaimServer(t)
	s.set(t, "team-a/filled", fmt.Sprintf(ours, "default", "gold"))
	s.set(t, "team-a/chosen", fmt.Sprintf(ours, "silver", "gold"))
	s.set(t, "team-a/same", fmt.Sprintf(ours, "default", "plain"))
	s.set(t, "team-a/other", `{"classRef":{"name":"default"},"classSelector":{"matchLabels":{"tier":"plain"}}}`)
	s.set(t, "team-a/none", fmt.Sprintf(ours, "default", "none"))
	r := newLateReplica(t, s, lateClaimKind(bindWhen("claim.spec.classRef.name == 'default'")))
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 4})
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold", "default tier=plain"))
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 2, Waiting: 3})
	eventually(t, "We should complete what has the same name alone.", func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Equal(c, map[string]int{"team-a/filled": 1, "team-a/other": 1}, s.patches)
	})
	r.notify(t)
	assert.Equal(t, map[string]string{
		"team-a/filled": "gold", "team-a/chosen": "silver", "team-a/same": "default", "team-a/other": "default", "team-a/none": "default",
	}, s.classes())
	assert.Equal(t, 2, s.tried(), "We should write no reference that is there already.")
	kind, _, _ := unstructured.NestedString(s.claims["team-a/other"].Object, "spec", "classRef", "kind")
	assert.Equal(t, "Gold", kind)
}

// TestBindWhenStaysTrue has an expression that is true for a claim that was bound, too.
func TestBindWhenStaysTrue(t *testing.T) {
	s := newClaimServer(t)
	const spec = `{"n":%d,"classRef":{"name":"x"},"classSelector":{"matchLabels":{"tier":"gold"}}}`
	s.set(t, "team-a/claim", fmt.Sprintf(spec, 1))
	r := newLateReplica(t, s, lateClaimKind(bindWhen("has(claim.spec.classRef)"), func(k *v1beta1.ClaimKind) { k.Spec.Choice.Strategy = v1beta1.RoundRobin }))
	r.registration.Inventory.SetClasses(labelled(r.golds, "a tier=gold", "b tier=gold", "c tier=gold"))
	r.lead(t)
	for n := 1; n <= 2; n++ {
		eventually(t, "We should bind it.", func(c *assert.CollectT) { assert.Equal(c, n, s.tried()) })
		r.rounds(t)
		time.Sleep(lateRound / 2) // We cannot wait for what does not happen.
		require.Equal(t, n, s.tried(), "We should not bind it again until somebody else changes it.")
		s.set(t, "team-a/claim", fmt.Sprintf(spec, n+1))
	}
	eventually(t, "We should bind it again then.", func(c *assert.CollectT) { assert.Equal(c, 3, s.tried()) })
}

// TestLateNamespaceOfClassKind has a claim wait until its Namespace is one that a class kind is for.
func TestLateNamespaceOfClassKind(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/claim", wantsGold)
	s.set(t, "other/claim", wantsGold)
	r := newLateReplica(t, s, lateClaimKind())
	classKind := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}
	classKind.Spec.ClaimKinds = controllertest.Links(lateKind)
	classKind.Spec.Fits = []v1beta1.Fit{{Name: "Tenant", Expression: "labelSelectorMatches(class.spec.tenants, namespaceObject.metadata.labels)"}}
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}
	r.golds = inventory.NewClassKind(classKind, gvk, false, r.kind)
	compiled := selector.NewClaimKind(r.kind, classKind)
	compiled.Tally = r.registration.Tallies.Tally(compiled)
	compiled.Serial = 1
	r.registration.Inventory.SetClaimKind(compiled)
	r.follow(t, r.kind, compiled)
	gold := r.golds.NewClass(&metav1.ObjectMeta{Name: "gold", Labels: map[string]string{"tier": "gold"}},
		map[string]any{"spec": map[string]any{"tenants": map[string]any{"matchLabels": map[string]any{"tenant": "a"}}}})
	r.registration.Inventory.SetClasses(inventory.NewClasses(r.golds, []*inventory.Class{gold}))
	label := func(tenant string) {
		kinds := compiled.RelatedKinds()
		require.Len(t, kinds, 1)
		objects := map[types.NamespacedName]*expression.Object{}
		for name, tenant := range map[string]string{"team-a": tenant, "other": "b"} {
			objects[types.NamespacedName{Name: name}] = kinds[0].Fields.Project(
				map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"tenant": tenant}}})
		}
		r.registration.Inventory.SetRelated(inventory.NewObjects(kinds[0], false, objects))
	}
	label("c")
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Waiting: 2})
	r.rounds(t)
	assert.Equal(t, map[string]string{"team-a/claim": "", "other/claim": ""}, s.classes(), "We should bind no claim of other tenants.")
	label("a")
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 1})
	assert.Equal(t, map[string]string{"team-a/claim": "gold", "other/claim": ""}, s.classes(), "We should bind when the label changes.")
}

// TestCostlyClaim has an expression cost too much for one claim, until a plan changes.
func TestCostlyClaim(t *testing.T) {
	s := newClaimServer(t)
	list := strings.Repeat("1,", 900) + "1"
	s.set(t, "team-a/claim", `{"plan":"small","list":[`+list+`]}`)
	r := newLateReplica(t, s, lateClaimKind(bindWhen("related.plan.spec.cheap || claim.spec.list.all(a, claim.spec.list.all(b, a == b))")))
	plan := types.NamespacedName{Namespace: "team-a", Name: "small"}
	r.registration.Inventory.SetClasses(controllertest.NewClasses(r.golds, map[string][]string{"main": {"default", "true"}}))
	r.relate(t, map[types.NamespacedName]map[string]any{plan: {"spec": map[string]any{"cheap": false}}})
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Waiting: 1})
	eventually(t, "We should inform its author.", func(c *assert.CollectT) {
		r.notify(t)
		assert.Contains(c, s.notes(v1beta1.EventNoMatchingClass)["team-a/claim"], "cost")
	})
	assert.Zero(t, s.tried())
	r.relate(t, map[types.NamespacedName]map[string]any{plan: {"spec": map[string]any{"cheap": true}}})
	r.awaitCounts(t, ClaimCounts{Bound: 1})
}

// TestFitsOfClassKinds has a class kind look at the claims.
func TestFitsOfClassKinds(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/small", `{"size":1,"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/large", `{"size":9,"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	k := lateClaimKind()
	r := newLateReplica(t, s, k)
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Waiting: 2})
	golds := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: lateKind}}, Fits: []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.size < 5"}},
	}}
	linked := r.recompiled(k, golds)
	r.registration.Inventory.SetClaimKind(linked)
	kind := inventory.NewClassKind(golds, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false, k)
	r.registration.Inventory.SetClasses(labelled(kind, "gold tier=gold"))
	assert.Nil(t, r.kindBinder(t).view(), "We should bind no claim of which we do not know enough.")
	for range 2 {
		before := r.claims.watches()[lateKind]
		r.follow(t, k, linked)
		r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 1})
		assert.Equal(t, map[string]string{"team-a/small": "gold", "team-a/large": ""}, s.classes())
		if before.kind == linked {
			assert.Same(t, before, r.claims.watches()[lateKind], "We should list the claims only once.")
		}
	}
}
