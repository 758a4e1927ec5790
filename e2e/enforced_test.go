package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/webhook/capacity"
)

const hardWindow = 2 * time.Second

// hardWorld has classes of a kind whose capacity is enforced, with these annotations.
func hardWorld(t *testing.T, group, claims string, classes map[string]string, flags ...string) *world {
	w := newWorld(t, controlplane.Options{})
	w.serve(t, append(flags, "--in-flight-window="+hardWindow.String())...)
	w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
	manifest := lateVendor(group) + claimKind("claims."+group, claims) + classKind("classes."+group,
		"{claimKinds: [{name: claims."+group+"}], capacity: {enforcement: Hard, perNamespace: {annotation: per-namespace}}}")
	for name, annotations := range classes {
		manifest += class(group, "Class", name, "annotations: {"+annotations+"}, ")
	}
	w.apply(t, manifest)
	for name := range classes {
		w.awaitLedger(t, group, name, func(col *attempt, l *v1beta1.Ledger) { assert.True(col, l.Spec.Open) })
	}
	return w
}

func (w *world) awaitLedger(t *testing.T, group, class string, check func(*attempt, *v1beta1.Ledger)) {
	eventually(t, func(col *attempt) {
		l := &v1beta1.Ledger{}
		require.NoError(col, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", class)}, l))
		check(col, l)
	})
}

func used(amount int64) func(*attempt, *v1beta1.Ledger) {
	return func(col *attempt, l *v1beta1.Ledger) {
		assert.Equal(col, [2]int64{amount, 0}, [2]int64{l.Spec.Used, l.Spec.Reserved}, "%+v", l.Spec)
	}
}

// TestCapacityEnforced fills classes to the last place, by the draw, by name and by growth.
func TestCapacityEnforced(t *testing.T) {
	t.Parallel()
	const group = "hard.test"
	w := hardWorld(t, group, "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}, classes: {usage: 'has(claim.spec.size) ? claim.spec.size : 1'}}",
		map[string]string{"a": "classbind.io/capacity: '5'", "b": "classbind.io/capacity: '5', per-namespace: '3'"})
	bound := map[string]int{}
	for i := range 13 {
		c := naming(group, "default", fmt.Sprint("claim-", i), "")
		require.NoError(t, w.Create(t.Context(), c))
		name, _, _ := unstructured.NestedString(c.Object, "spec", "classRef", "name")
		bound[name]++
	}
	assert.Equal(t, map[string]int{"a": 5, "b": 3, "": 5}, bound, "We should fill each class, as far as the namespace may.")
	w.awaitLedger(t, group, "a", used(5))
	w.awaitLedger(t, group, "b", used(3))
	const a, b = "apiVersion=hard.test/v1 kind=Class name=a", "apiVersion=hard.test/v1 kind=Class name=b"
	err := w.Create(t.Context(), naming(group, "default", "named", a))
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err, "full: 5 of 5")
	err = w.Create(t.Context(), naming(group, "default", "named", b))
	require.ErrorContains(t, err, `full for the namespace "default": 3 of 3`)
	err = w.Create(t.Context(), naming(group, "default", "named", "apiVersion=hard.test/v1 kind=Class name=none"))
	require.ErrorContains(t, err, "not there")

	w.kubectl(t, "create", "namespace", "other")
	inOther := naming(group, "other", "named", b)
	require.NoError(t, w.Create(t.Context(), inOther.DeepCopy(), client.DryRunAll), "We should reserve nothing for a dry run.")
	require.NoError(t, w.Create(t.Context(), inOther))
	w.awaitLedger(t, group, "b", used(4))
	grow := func(size int64) error {
		require.NoError(t, unstructured.SetNestedField(inOther.Object, size, "spec", "size"))
		return w.Update(t.Context(), inOther)
	}
	require.NoError(t, grow(2))
	w.awaitLedger(t, group, "b", used(5))
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(inOther), inOther))
	err = grow(3)
	require.ErrorContains(t, err, "full: 5 of 5", "We should refuse growth beyond the capacity.")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(inOther), inOther))
	require.NoError(t, grow(1), "We should let a claim shrink.")
	w.awaitLedger(t, group, "b", used(4))

	require.NoError(t, w.Delete(t.Context(), naming(group, "other", "named", "")))
	w.awaitLedger(t, group, "b", used(3))

	// A ledger that is edited, or deleted, is counted again.
	l := &v1beta1.Ledger{}
	key := client.ObjectKey{Namespace: classbind.Namespace, Name: capacity.NameOf("classes."+group, "", "a")}
	for name, spoil := range map[string]func() error{
		"edited":  func() error { l.Spec.Used = 0; return w.Update(t.Context(), l) },
		"deleted": func() error { return w.Delete(t.Context(), l) },
	} {
		require.NoError(t, w.Get(t.Context(), key, l))
		require.NoError(t, spoil())
		err = w.Create(t.Context(), naming(group, "default", "spoilt-"+name, a))
		require.Error(t, err, "We should give nothing while it is not counted.")
		w.awaitLedger(t, group, "a", func(col *attempt, l *v1beta1.Ledger) { assert.True(col, l.Spec.Open); used(5)(col, l) })
		require.ErrorContains(t, w.Create(t.Context(), naming(group, "default", "after-"+name, a)), "full: 5 of 5")
		w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionCapacityEnforced, metav1.ConditionTrue, "1 class is full: Class/a")
	}
}
