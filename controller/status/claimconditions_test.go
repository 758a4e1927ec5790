package status

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// watched is what is known of the claims of one kind. The rest is as if nothing was watched.
type watched struct {
	*latebinding.Claims
	counts    *latebinding.ClaimCounts
	err, late error
	// ofClasses are the claims of all classes, nil if they are not watched. listing says that they are not known yet.
	ofClasses *int32
	listing   bool
}

func (w watched) OfClasses(*inventory.Classes) (claims int64, known, complete bool) {
	if w.ofClasses != nil {
		claims = int64(*w.ofClasses)
	}
	return claims, w.ofClasses != nil, !w.listing
}

func (w watched) CountsOf(string) (latebinding.ClaimCounts, bool) {
	if w.counts == nil {
		return latebinding.ClaimCounts{}, false
	}
	return *w.counts, true
}

func (w watched) Problem(string) error { return w.err }

func (w watched) LateProblem(string) error { return w.late }

func TestCountClaims(t *testing.T) {
	classes := controllertest.NewClasses(controllertest.NewClassKind("golds.example.org", "Gold"), nil)
	two, seven := new(int32(2)), new(int32(7))
	for name, tc := range map[string]struct {
		reason  string
		classes *inventory.Classes
		claims  watched
		want    *int32
	}{
		"Counted":    {"We should write how many claims there are.", classes, watched{ofClasses: seven}, seven},
		"Listing":    {"We should leave the number of the last leader until we know better.", classes, watched{ofClasses: seven, listing: true}, two},
		"NotWatched": {"We should write no number where no claims are watched: it is not 0.", classes, watched{}, nil},
		"NoClasses":  {"We should write no number for classes that are not known.", nil, watched{ofClasses: seven}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta1.ClassKind{Status: v1beta1.ClassKindStatus{Claims: two}}
			(&Writer{Claims: tc.claims}).countClaims(k, tc.classes)
			assert.Equal(t, tc.want, k.Status.Claims, tc.reason)
		})
	}
}

func TestOnClassCounts(t *testing.T) {
	inv := selector.NewInventory()
	inv.SetClaimKind(selector.NewClaimKind(controllertest.NewClaimKind("claims.example.org")))
	for _, name := range []string{"golds.example.org", "silvers.example.org"} {
		k := controllertest.NewClassKind(name, name)
		k.ClaimKinds = []string{"claims.example.org"}
		inv.SetClasses(inventory.NewClasses(k, nil))
	}
	others := controllertest.NewClassKind("others.example.org", "Other")
	others.ClaimKinds = []string{"others.example.org"}
	inv.SetClasses(inventory.NewClasses(others, nil))
	inv.Open()
	var counted []string
	c := &controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*controllertest.NewClaimKind("claims.example.org")}}
	s := &Writer{Snapshot: inv.Snapshot, Registration: fixed{}, Claims: watched{}, ClaimEntries: said{}, Client: c}
	s.onClassCounts(t.Context(), func(classKind string) { counted = append(counted, classKind) })
	s.counted.Notify("nobody.example.org")
	assert.Empty(t, counted, "We should count nothing for claims that no class serves.")
	_, err := s.reconcileClaimKind(t.Context(), "claims.example.org")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"golds.example.org", "silvers.example.org"}, counted, "We should count the classes that serve these claims, and no others.")
}

func TestDescribeClaims(t *testing.T) {
	const later, counted = v1beta1.ConditionLateBinding, v1beta1.ConditionClaimsCounted
	const bound, known = "claims without a class are bound when there is one for them", "the claims of each class are counted"
	const unbound, unknown = "claims without a class are not bound later: ", "the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class is deleted whose ClassKind has spec.onDelete Deny: "
	const permit = ": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"
	condition := func(conditionType string, met metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: met, Reason: reason, Message: message}
	}
	well := []metav1.Condition{
		condition(later, metav1.ConditionTrue, v1beta1.ReasonWatched, bound), condition(counted, metav1.ConditionTrue, v1beta1.ReasonWatched, known),
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "claims"}, "", errors.New("no rule"))
	notWatched := (&latebinding.Claims{}).Problem("claims.example.org")
	unsuitable := fmt.Errorf("%w: no patch", cluster.ErrUnsuitable)
	pruned := condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonReferencePruned, "no field")
	two, three, seven := new(int32(2)), new(int32(3)), new(int32(7))
	type args struct {
		admit, random  bool // instead of BindLater and LeastClaims
		denied         bool // A ClassKind has onDelete Deny.
		before         []metav1.Condition
		bound, waiting *int32 // before
		claims         watched
	}
	type want struct {
		conditions     []metav1.Condition
		bound, waiting *int32
	}
	for name, tc := range map[string]struct {
		reason string
		args   args
		want   want
	}{
		"Watched": {reason: "We should say that all is well, and the numbers.", args: args{claims: watched{counts: &latebinding.ClaimCounts{Bound: 2, Waiting: 3}}}, want: want{well, two, three}},
		"DeletionsDenied": {
			reason: "We should say what the deletion of a class depends on.",
			args:   args{admit: true, random: true, denied: true, claims: watched{counts: &latebinding.ClaimCounts{Bound: 2}}},
			want:   want{conditions: well[1:], bound: two},
		},
		"ReferencePruned": {
			reason: "We should not say that claims are bound whose reference would be removed.",
			args:   args{random: true, before: []metav1.Condition{pruned}},
			want: want{conditions: []metav1.Condition{
				condition(later, metav1.ConditionFalse, v1beta1.ReasonReferencePruned, unbound+"no field"),
			}},
		},
		"ReferenceRemoved": {
			reason: "We should say that claims lose what is written.",
			args:   args{random: true, claims: watched{late: fmt.Errorf("cannot write: %w", latebinding.ErrReferenceRemoved)}},
			want: want{conditions: []metav1.Condition{
				condition(later, metav1.ConditionFalse, v1beta1.ReasonReferencePruned, unbound+"cannot write: "+latebinding.ErrReferenceRemoved.Error()),
			}},
		},
		"NotWatchedYet": {
			reason: "We should say that we do not watch yet.",
			args:   args{claims: watched{err: notWatched, late: notWatched}},
			want: want{conditions: []metav1.Condition{
				condition(later, metav1.ConditionFalse, v1beta1.ReasonNotSynced, unbound+"they are not watched yet"),
				condition(counted, metav1.ConditionFalse, v1beta1.ReasonNotSynced, unknown+"they are not watched yet"),
			}},
		},
		"NotWatchedYetByThisLeader": {
			reason: "We should let stand what another leader wrote until we know better.",
			args:   args{before: well, bound: seven, waiting: three, claims: watched{err: notWatched, late: notWatched}},
			want:   want{well, seven, three},
		},
		"Forbidden": {
			reason: "We should say that we may not, and how to permit it.",
			args:   args{before: well, claims: watched{err: forbidden, late: forbidden}},
			want: want{conditions: []metav1.Condition{
				condition(later, metav1.ConditionFalse, v1beta1.ReasonNotPermitted, unbound+"claims.example.org is forbidden: no rule"+permit),
				condition(counted, metav1.ConditionFalse, v1beta1.ReasonNotPermitted, unknown+"claims.example.org is forbidden: no rule"+permit),
			}},
		},
		"CountedThoughNotWritable": {
			reason: "We should say of each condition what concerns it.",
			args:   args{claims: watched{counts: &latebinding.ClaimCounts{Bound: 2, Waiting: 3}, late: unsuitable}},
			want: want{[]metav1.Condition{
				condition(later, metav1.ConditionFalse, v1beta1.ReasonUnsuitable, unbound+unsuitable.Error()), well[1],
			}, two, three},
		},
		"Admit": {
			reason: "We should not say that claims wait for what does not come.",
			args:   args{admit: true, before: well, waiting: three, claims: watched{counts: &latebinding.ClaimCounts{Bound: 2}}},
			want:   want{conditions: well[1:], bound: two},
		},
		"NeitherApplies": {
			reason: "We should say nothing of what does not apply.",
			args:   args{admit: true, random: true, before: well, bound: seven, waiting: three, claims: watched{err: notWatched, late: notWatched}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.WhenUnmatched, k.Spec.Choice.Strategy = v1beta1.BindLater, v1beta1.LeastClaims
			if tc.args.admit {
				k.Spec.WhenUnmatched = v1beta1.Admit
			}
			if tc.args.random {
				k.Spec.Choice.Strategy = v1beta1.WeightedRandom
			}
			status := &k.Status
			status.BoundClaims, status.WaitingClaims = tc.args.bound, tc.args.waiting
			status.Conditions = tc.args.before
			later, counted := (&Writer{Claims: tc.args.claims}).describeClaims(k, tc.args.denied || !tc.args.random, last(tc.args.before, v1beta1.ConditionReady))
			got := slices.DeleteFunc([]metav1.Condition{later, counted}, func(c metav1.Condition) bool { return c.Type == "" })
			assert.ElementsMatch(t, tc.want.conditions, got, tc.reason)
			assert.Equal(t, tc.want.bound, status.BoundClaims, tc.reason)
			assert.Equal(t, tc.want.waiting, status.WaitingClaims, tc.reason)
		})
	}
}
