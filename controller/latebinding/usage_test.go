package latebinding

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

func TestBoundClaimsUse(t *testing.T) {
	classKind := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: []v1beta1.Capacity{{Name: "size"}}, ClaimKinds: controllertest.Links(lateKind)}}
	kind := selector.NewClaimKind(lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Spec.Classes.Usage = []v1beta1.Usage{{Name: "size", Expression: "claim.spec.size"}}
	}), classKind)
	kind.Tally = &selector.Tally{}
	w := newLateWatchOf(t, kind)
	golds := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	classes := labelled(golds, "gold")
	snapshot := selector.Snapshot{lateKind: selector.NewView(kind, []*inventory.Classes{classes})}
	room := func() selector.Room { return snapshot.Room("team-a", classes.Find("", "gold")) }
	bound := func(uid int, size string) {
		addClaim(t, w, claimJSON(uid, `{"size":`+size+`,"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`))
	}
	bound(1, `5`)
	bound(2, `"1Ki"`)
	bound(3, `"much"`)
	assert.Equal(t, selector.Room{{Used: 1030, NamespaceUsed: 1030}}, room(), "A claim whose usage cannot be told should count as 1.")
	freed := snapshot.Freed(snapshot[lateKind])
	bound(1, `5`)
	assert.Equal(t, freed, snapshot.Freed(snapshot[lateKind]), "Nothing should be free because a claim changed.")
	bound(1, `7`)
	bound(2, `1`)
	assert.Equal(t, selector.Room{{Used: 9, NamespaceUsed: 9}}, room())
	assert.Greater(t, snapshot.Freed(snapshot[lateKind]), freed)
	for uid := range 4 {
		w.Remove(&claimSeen{seenVersion: seenVersion{uid: uidOf(uid), namespace: "team-a"}})
	}
	assert.Equal(t, selector.Room{}, room(), "A claim that is gone should use nothing.")
}

// TestRecount changes an object that claims name, after it has been counted how much they use.
func TestRecount(t *testing.T) {
	classKind := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: []v1beta1.Capacity{{Name: "size"}}, ClaimKinds: controllertest.Links(lateKind)}}
	kind := selector.NewClaimKind(lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Spec.Classes.Related = []v1beta1.Related{
			{Name: "plans", Resource: "plans.example.org", Selector: &v1beta1.LabelSelector{}},
			{Name: "plan", Resource: "plans.example.org", NameExpression: "claim.spec.plan"},
		}
		k.Spec.Classes.Usage = []v1beta1.Usage{{
			Name: "size", Expression: "related.plan.spec.size * claim.spec.nodes * (related.plans.exists(p, p.spec.size > 0) ? 1 : 0)",
		}}
	}), classKind)
	kind.Tally = &selector.Tally{}
	golds := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	classes := labelled(golds, "gold")
	snapshot := selector.Snapshot{lateKind: selector.NewView(kind, []*inventory.Classes{classes})}
	others := 0
	plan := func(size int64) {
		of := kind.RelatedKinds()[0]
		object := of.Fields.Project(map[string]any{"spec": map[string]any{"size": size}})
		all := map[types.NamespacedName]*expression.Object{{Namespace: "team-a", Name: "small"}: object}
		for i := range others {
			all[types.NamespacedName{Namespace: "team-a", Name: fmt.Sprint(i)}] = object
		}
		snapshot[lateKind] = snapshot[lateKind].WithRelated([]*inventory.Objects{inventory.NewObjects(of, true, all)})
	}
	w := newLateWatchOf(t, kind)
	w.views = func() selector.Snapshot { return snapshot }
	used := func() int64 { return snapshot.Room("team-a", classes.Find("", "gold"))[0].Used }
	recount := func() {
		w.state.bound.recounts.next = time.Time{}
		w.recount(t.Context())
	}
	w.Replace(nil)
	bound := func(uid int, plan string, nodes int) {
		addClaim(t, w, claimJSON(uid, fmt.Sprintf(`{"plan":%q,"nodes":%d,"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`, plan, nodes)))
	}
	for i := range 2*lookBatch + 1 {
		bound(i, "small", 1+i%2)
	}
	const nodes = 3*lookBatch + 1
	assert.EqualValues(t, 2*lookBatch+1, used(), "A claim should count as 1 before its plan is known.")
	plan(10)
	recount()
	assert.EqualValues(t, 10*nodes, used(), "We should count the claims again once the plan is known.")
	freed := snapshot.Freed(snapshot[lateKind])
	plan(20)
	w.state.bound.recounts.next = time.Now().Add(time.Hour)
	w.recount(t.Context())
	assert.EqualValues(t, 10*nodes, used(), "We should rest after a recount.")
	recount()
	assert.EqualValues(t, 20*nodes, used(), "We should count the claims again when the plan changes.")
	assert.Equal(t, freed, snapshot.Freed(snapshot[lateKind]), "Nothing should be free because claims use more.")
	bound(0, "large", 1)
	assert.EqualValues(t, 20*(nodes-1)+1, used(), "A claim that changes should count by its new plan.")
	plan(1)
	recount()
	assert.EqualValues(t, nodes, used())
	assert.Greater(t, snapshot.Freed(snapshot[lateKind]), freed, "Claims that wait should learn that there is room.")

	seen, err := w.read(claimJSON(1, `{"plan":"small","nodes":2,"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`))
	require.NoError(t, err)
	plan(5)
	recount()
	w.Put(seen) // It was read before the plan changed.
	recount()
	assert.EqualValues(t, 5*(nodes-1)+1, used(), "We should count again a claim that was read before the plan changed.")

	others = v1beta1.MaxRelatedListed
	plan(7)
	recount()
	bound(1, "small", 1)
	const most = 2*lookBatch + 2
	bound(most, "small", 9)
	assert.EqualValues(t, 5*(nodes-1)+1+1, used(), "A list that is too long should change nothing, and a new claim count as 1.")
	others = 0
	plan(5)
	recount()
	assert.EqualValues(t, 5*(nodes-1)+1-5+45, used(), "We should count again once the list is short enough.")
	for uid := range most + 1 {
		w.Remove(&claimSeen{seenVersion: seenVersion{uid: uidOf(uid), namespace: "team-a"}})
	}
	assert.Zero(t, used(), "A claim that is gone should use nothing.")
}
