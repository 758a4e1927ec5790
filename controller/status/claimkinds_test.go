package status

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// TestNamedKinds registers two kinds of claims: names take one class kind, refs take any. A class kind whose name comes first serves names.
func TestNamedKinds(t *testing.T) {
	const names, others, refs, mistyped = "names.example.org", "others.example.org", "refs.example.org", "nmaes.example.org"
	const leftOut = `the classes of "golds.example.org" are not offered to claims of "names.example.org": a reference of the form Name cannot ` +
		`distinguish them from those of "firsts.example.org", ` +
		`whose name comes first: set spec.reference.form of the ClaimKind to one that can (ObjectReference, TypedObjectReference, ` +
		`TypedLocalObjectReference, GroupKindReference, KindReference), or let one class kind serve it`
	register := func(name string, format v1beta1.ReferenceForm) *v1beta1.ClaimKind {
		k := controllertest.NewClaimKind(name)
		k.Spec.Reference.Form = format
		return k
	}
	const served = "True/Served: "
	const all = "True/Registered: every claim kind is registered"
	for name, tc := range map[string]struct {
		reason            string
		of                []string // spec.claimKinds
		outdated          bool
		again             time.Duration
		ready, registered string // as conditionText has them
	}{
		"Registered": {reason: "We should find nothing wrong.", of: []string{refs}},
		"None": {
			reason: "We should say that the classes are of no use.",
			registered: "False/NoClaimKinds: no claim is offered the classes: " +
				"name a ClaimKind in spec.claimKinds, or this ClassKind in spec.classes.kinds of one",
		},
		"Mistyped": {
			reason: "We should name what is not registered, once in a while in vain: the ClaimKind may come later.", of: []string{refs, mistyped, "a.example.org"},
			registered: `False/NotRegistered: spec.claimKinds has names that no ClaimKind has: ` +
				`"a.example.org", "nmaes.example.org": correct the name, which is <plural>.<group>, or create the ClaimKind`,
		},
		"LeftOut": {
			reason: "We should say that the classes are offered to no claim, and what would help.",
			of:     []string{names},
			ready:  "False/AmbiguousReference: " + leftOut,
		},
		"LeftOutOfOne": {
			reason: "We should stay ready for the other claims, for which replicas that start must wait.",
			of:     []string{names, refs},
			ready:  "True/AmbiguousReference: " + leftOut,
		},
		"Outdated": {
			reason:   "We should say nothing of a ClaimKind that the inventory is about to hear of, and look again.",
			of:       []string{refs},
			outdated: true,
			again:    statusDelay,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := func(name, of string, claimKinds ...string) *inventory.Classes {
				k := controllertest.NewClassKind(name, of)
				k.ClaimKinds = claimKinds
				return inventory.NewClasses(k, nil)
			}
			golds := kind("golds.example.org", "Gold", tc.of...)
			inventory := selector.NewInventory()
			c := &controllertest.Cached{}
			for _, k := range []*v1beta1.ClaimKind{
				register(names, v1beta1.Name), register(others, v1beta1.LocalObjectReference), register(refs, v1beta1.ObjectReference),
			} {
				inventory.SetClaimKind(selector.NewClaimKind(k))
				if tc.outdated {
					k.Generation++
				}
				c.ClaimKinds = append(c.ClaimKinds, *k)
			}
			inventory.SetClasses(kind("firsts.example.org", "First", names, others))
			inventory.SetClasses(golds)
			inventory.Open()
			c.ClassKinds = []v1beta1.ClassKind{
				{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(tc.of...)}},
			}
			state := registry.State{Reason: v1beta1.ReasonServed, Classes: golds}
			s := fixed{of: state}.in(&Writer{Snapshot: inventory.Snapshot, Claims: watched{}, ClassEntries: said{}, Client: c})
			result, err := s.reconcileClassKind(t.Context(), "golds.example.org")
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.again}, result, tc.reason)
			if tc.again > 0 {
				assert.Empty(t, c.Updated, tc.reason)
				return
			}
			require.Len(t, c.Updated, 1, tc.reason)
			conditions := c.Updated[0].(*v1beta1.ClassKind).Status.Conditions
			assert.Equal(t, cmp.Or(tc.ready, served), conditionText(meta.FindStatusCondition(conditions, v1beta1.ConditionReady)), tc.reason)
			assert.Equal(t, cmp.Or(tc.registered, all), conditionText(meta.FindStatusCondition(conditions, v1beta1.ConditionClaimKindsRegistered)), tc.reason)
		})
	}
}

// TestRivals are to be looked at when one of them comes or goes.
func TestRivals(t *testing.T) {
	inventory := selector.NewInventory()
	for name, format := range map[string]v1beta1.ReferenceForm{"claims.example.org": v1beta1.Name, "others.example.org": v1beta1.ObjectReference} {
		k := controllertest.NewClaimKind(name)
		k.Spec.Reference.Form = format
		inventory.SetClaimKind(selector.NewClaimKind(k))
	}
	for _, name := range []string{"as.example.org", "bs.example.org", "cs.example.org"} {
		inventory.SetClasses(controllertest.NewClasses(controllertest.NewClassKind(name, "Class"), nil))
	}
	inventory.Open()
	s := &Writer{Snapshot: inventory.Snapshot}
	changed := controllertest.NewClassKind("bs.example.org", "Class")
	assert.Subset(
		t, s.rivals(changed), []string{"as.example.org", "bs.example.org", "cs.example.org"},
		"We should look at those that may be left out now, or no more.",
	)
	changed.ClaimKinds = []string{"others.example.org", "gone.example.org"}
	assert.Equal(t, []string{"bs.example.org"}, s.rivals(changed), "We should not look at those that are in nobody's way.")
}
