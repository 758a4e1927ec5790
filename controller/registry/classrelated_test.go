package registry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

const poolsName = "pools.example.org"

// pools is a class kind whose classes name a plan, which is valid until the time that is its tier.
func pools(claimKind string, namespaced bool) *inventory.ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: poolsName}}
	k.Spec.ClaimKinds = controllertest.Links(claimKind)
	k.Spec.Related = []v1beta1.Related{{
		Name: "plan", Resource: plansResource, NameExpression: "class.spec.plan", ValidUntil: "object.spec.tier",
	}}
	k.Spec.Weight = v1beta1.Source{Expression: "has(classRelated.plan) ? classRelated.plan.spec.size : 0"}
	return inventory.NewClassKind(k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, namespaced)
}

// listed classes of a kind, as its watch would publish them.
func (w *relatedWorld) listed(kind *inventory.ClassKind) {
	w.t.Helper()
	entry := &registered{kind: kind}
	entry.watch = &classWatch{name: kind.Name}
	w.ClassKinds.kinds[kind.Name] = entry
	w.RelatedKinds.needOfClasses(kind.Name, kind)
	class := kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "a"}, map[string]any{"spec": map[string]any{"plan": "p"}})
	w.ClassKinds.publish(entry, inventory.NewClasses(kind, []*inventory.Class{class}), nil)
}

// TestClassesAwaitRelated has classes offered once the objects are known that they name, and a score expire within a second.
func TestClassesAwaitRelated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = "as.example.org"
		w := newRelatedWorld(t)
		w.server.Set(func(s *controllertest.PlanServer) { s.Plans["p"] = "" })
		w.names(a, "")
		w.listed(pools(a, true))
		weight := func() int64 {
			t.Helper()
			view := w.Inventory.Snapshot()[a]
			require.NotEmpty(t, view.Classes)
			require.Nil(t, view.Fault)
			return view.Classes[0].All()[0].Weight
		}
		s := w.ClassKinds.State(poolsName)
		assert.Equal(t, v1beta1.ReasonNotSynced, s.Reason)
		assert.Contains(t, s.Message, "the objects that they name are not known")
		assert.Nil(t, s.Classes)
		view := w.Inventory.Snapshot()[a]
		assert.Empty(t, view.Classes, "We should not offer what we cannot judge.")
		require.Len(t, view.Unread, 1, "We should say that we decide without them.")
		assert.Equal(t, v1beta1.ReasonNotSynced, view.Unread[0].Reason)

		w.run()
		w.reconcile()
		assert.Equal(t, v1beta1.ReasonServed, w.ClassKinds.State(poolsName).Reason)
		assert.Equal(t, State{Reason: v1beta1.ReasonServed, Message: "the objects that classes name are known", Known: true},
			w.RelatedKinds.ClassesRelatedState(poolsName))
		assert.Equal(t, int64(3), weight(), "The weight should be that of the plan.")

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.derive(ctx) }()
		until := time.Now().Add(10 * time.Second)
		w.server.Event("MODIFIED", "p", until.UTC().Format(time.RFC3339))
		time.Sleep(9 * time.Second)
		assert.Equal(t, int64(3), weight(), "The plan should be valid until then.")
		assert.Equal(t, v1beta1.ReasonServed, w.RelatedKinds.ClassesRelatedState(poolsName).Reason)
		time.Sleep(2 * time.Second)
		assert.Zero(t, weight(), "An expired plan should be absent within a second.")
		s = w.RelatedKinds.ClassesRelatedState(poolsName)
		assert.True(t, s.Known)
		assert.Equal(t, v1beta1.ReasonRelatedExpired, s.Reason, "We should count what is expired.")
		assert.Contains(t, s.Message, "1 are expired")
		w.server.Event("MODIFIED", "p", "")
		synctest.Wait()
		assert.Equal(t, int64(3), weight(), "A renewed plan should count.")
		stop()
		require.NoError(t, <-done)

		w.ClassKinds.removed(poolsName, &registered{})
		w.end()
	})
}

// TestClassesWithoutNamespace name no object that has one, and the state says so.
func TestClassesWithoutNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = "as.example.org"
		w := newRelatedWorld(t)
		w.names(a, "")
		w.listed(pools(a, false))
		w.run()
		w.reconcile()
		s := w.RelatedKinds.ClassesRelatedState(poolsName)
		assert.Equal(t, v1beta1.ReasonNamespaceUnknown, s.Reason)
		assert.Contains(t, s.Message, "set spec.related[plan].namespaceExpression")
		assert.Zero(t, w.Inventory.Snapshot()[a].Classes[0].All()[0].Weight)
		w.ClassKinds.removed(poolsName, &registered{})
		w.end()
	})
}

// TestRelatedOfClassesNotPermitted hurts its own class kind, and no claim of the others.
func TestRelatedOfClassesNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = "as.example.org"
		w := newRelatedWorld(t)
		w.server.Refuse(403, metav1.StatusReasonForbidden)
		k := controllertest.NewClaimKind(a)
		w.cache.ClaimKinds = append(w.cache.ClaimKinds, *k)
		_, err := w.reconcileClaimKind(t.Context(), a)
		require.NoError(t, err)
		w.listed(pools(a, true))
		w.run()
		w.reconcile()
		s := w.ClassKinds.State(poolsName)
		assert.Equal(t, v1beta1.ReasonNotPermitted, s.Reason)
		assert.Contains(t, s.Message, "label a ClusterRole")
		view := w.Inventory.Snapshot()[a]
		assert.Nil(t, view.Fault, "We should decide without these classes.")
		require.Len(t, view.Unread, 1)
		assert.Equal(t, v1beta1.ReasonNotPermitted, view.Unread[0].Reason)
		w.ClassKinds.removed(poolsName, &registered{})
		w.end()
	})
}
