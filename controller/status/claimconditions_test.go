package status

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/chooser"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// watched is what is known of the claims of one kind. The rest is as if nothing was watched.
type watched struct {
	*latebinding.Claims
	counts    *latebinding.ClaimCounts
	err, late error
	// ofClasses are the claims of all classes, nil if they are not watched. listing reports whether they are not known yet.
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
	s := fixed{}.in(&Writer{Snapshot: inv.Snapshot, Claims: watched{}, ClaimEntries: said{}, Client: c})
	s.onClassCounts(t.Context(), func(classKind string) { counted = append(counted, classKind) })
	s.counted.Notify("nobody.example.org")
	assert.Empty(t, counted, "We should count nothing for claims that no class serves.")
	_, err := s.reconcileClaimKind(t.Context(), "claims.example.org")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"golds.example.org", "silvers.example.org"}, counted, "We should count the classes that serve these claims, and no others.")
}

func TestDescribeClaims(t *testing.T) {
	const bound, known = "True/Watched: claims without a class are bound when there is one for them", "True/Watched: the claims of each class are counted"
	const unbound, unknown = "claims without a class are not bound later: ", "the claims of each class are not counted, so only those bound in " +
		"the last 40 seconds count, and no class is deleted whose ClassKind has spec.onDelete Deny: "
	const permit = "claims.example.org is forbidden: no rule: label a ClusterRole that allows list, watch and, for BindLater, patch with " +
		"classbind.io/aggregate-to-classbind=true"
	well := []metav1.Condition{lateBinding(nil), claimsCounted(nil)}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "claims"}, "", errors.New("no rule"))
	notWatched := (&latebinding.Claims{}).Problem("claims.example.org")
	unsuitable := fmt.Errorf("%w: no patch", cluster.ErrUnsuitable)
	pruned := failed(metav1.Condition{Type: v1beta1.ConditionReady}, v1beta1.ReasonReferencePruned, "no field")
	type numbers struct{ bound, waiting *int32 }
	two, three, seven := new(int32(2)), new(int32(3)), new(int32(7))
	counts := &latebinding.ClaimCounts{Bound: 2, Waiting: 3}
	for name, tc := range map[string]struct {
		reason           string
		admit, uncounted bool // instead of BindLater and LeastClaims
		before           []metav1.Condition
		written          numbers // before
		claims           watched
		immutable        string // the rule of the schema
		later, counted   string // as conditionText has them
		want             numbers
	}{
		"Watched": {
			reason:  "We should say that all is well, and the numbers.",
			claims:  watched{counts: counts},
			later:   bound,
			counted: known,
			want:    numbers{two, three},
		},
		"ReferencePruned": {
			reason: "We should not say that claims are bound whose reference would be removed.", uncounted: true, before: []metav1.Condition{pruned},
			later: "False/ReferencePruned: " + unbound + "no field",
		},
		"ReferenceRemoved": {
			reason: "We should say that claims lose what is written.", uncounted: true,
			claims: watched{late: fmt.Errorf("cannot write: %w", latebinding.ErrReferenceRemoved)},
			later:  "False/ReferencePruned: " + unbound + "cannot write: " + latebinding.ErrReferenceRemoved.Error(),
		},
		"NotWatchedYet": {
			reason: "We should say that we do not watch yet.", claims: watched{err: notWatched, late: notWatched},
			later: "False/NotSynced: " + unbound + "they are not watched yet", counted: "False/NotSynced: " + unknown + "they are not watched yet",
		},
		"NotWatchedYetByThisLeader": {
			reason: "We should let stand what another leader wrote until we know better.", before: well, written: numbers{seven, three},
			claims: watched{err: notWatched, late: notWatched}, later: bound, counted: known, want: numbers{seven, three},
		},
		"Forbidden": {
			reason: "We should say that we may not, and how to permit it.", before: well, claims: watched{err: forbidden, late: forbidden},
			later: "False/NotPermitted: " + unbound + permit, counted: "False/NotPermitted: " + unknown + permit,
		},
		"CountedThoughNotWritable": {
			reason: "We should say of each condition what concerns it.", claims: watched{counts: counts, late: unsuitable},
			later: "False/Unsuitable: " + unbound + unsuitable.Error(), counted: known, want: numbers{two, three},
		},
		"RefusedLater": {
			reason: "We should not promise what the schema refuses.", claims: watched{counts: counts}, immutable: ".spec: it is immutable",
			later: "False/ReferenceRefused: " + unbound + "the schema refuses a reference that is added to a claim later (.spec: it is immutable): " +
				"set spec.whenUnmatched of the ClaimKind to Deny, so that authors create such claims again",
			counted: known, want: numbers{two, three},
		},
		"Admit": {
			reason: "We should not say that claims wait for what does not come.", admit: true, before: well, written: numbers{nil, three},
			claims: watched{counts: counts}, counted: known, want: numbers{two, nil},
		},
		"NeitherApplies": {
			reason: "We should say nothing of what does not apply.", admit: true, uncounted: true, before: well, written: numbers{seven, three},
			claims: watched{err: notWatched, late: notWatched},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.WhenUnmatched = v1beta1.BindLater
			if tc.admit {
				k.Spec.WhenUnmatched = v1beta1.Admit
			}
			k.Status.Conditions, k.Status.BoundClaims, k.Status.WaitingClaims = tc.before, tc.written.bound, tc.written.waiting
			later, counted := (&Writer{Claims: tc.claims, Registration: fixed{paths: &registry.Paths{Check: selector.PathsCheck{Immutable: tc.immutable}}}}).
				describeClaims(k, !tc.uncounted, last(tc.before, v1beta1.ConditionReady))
			assert.Equal(t, [2]string{tc.later, tc.counted}, [2]string{conditionText(&later), conditionText(&counted)}, tc.reason)
			assert.Equal(t, tc.want, numbers{k.Status.BoundClaims, k.Status.WaitingClaims}, tc.reason)
		})
	}
}

func TestSelectorsRead(t *testing.T) {
	named := func(names ...string) (classes []metav1.PartialObjectMetadata) {
		for _, name := range names {
			classes = append(classes, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return classes
	}
	k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "persistentvolumeclaims"}}
	k.Spec.Reference.Path = ".spec.storageClassName"
	of := cluster.BuiltinDefaultOf(k)
	const before = `before classbind is asked, so its class selector does nothing: kubectl annotate storageclass `
	for name, tc := range map[string]struct {
		reason   string
		defaults []metav1.PartialObjectMetadata
		err      error
		want     string // as conditionText has it
	}{
		"Default": {
			reason: "We should say who gives the claims their class, and what would help.", defaults: named("standard"),
			want: `False/BuiltinDefault: the API server gives every claim without a StorageClass the default one, "standard", ` + before +
				`standard storageclass.kubernetes.io/is-default-class-`,
		},
		"NoDefault": {
			reason: "We should say that claims are ours to bind.",
			want:   "True/NoBuiltinDefault: no StorageClass is the default of Kubernetes, so claims without one are bound",
		},
		"NotPermitted": {
			reason: "We should not say what we may not look at.",
			err:    apierrors.NewForbidden(schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, "", errors.New("no")),
			want:   `Unknown/NotPermitted: cannot determine whether there is a default StorageClass: storageclasses.storage.k8s.io is forbidden: no`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := selectorsRead(of, tc.defaults, tc.err)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}

// decided are the outcomes of policies, by claim kind.
type decided map[string]webhookconfig.PolicyOutcome

func (d decided) Outcome(claimKind string) (webhookconfig.PolicyOutcome, bool) {
	o, known := d[claimKind]
	return o, known
}

func (decided) OnChange(context.Context, func(string)) {}

// choosing are choosers of which one is known.
type choosing struct{ state *chooser.State }

func (c choosing) StateOf(string) (s chooser.State, known bool) {
	if c.state != nil {
		s = *c.state
	}
	return s, c.state != nil
}

func (choosing) OnChange(context.Context, func(string)) {}

func TestChooserReady(t *testing.T) {
	external := &v1beta1.External{Service: &v1beta1.ChooserService{Namespace: "prices", Name: "chooser", Port: 8443}}
	for name, tc := range map[string]struct {
		reason   string
		external *v1beta1.External
		state    *chooser.State
		want     string // as conditionText has it
	}{
		"None":    {reason: "We should say nothing of a kind without a chooser.", state: &chooser.State{}},
		"Unknown": {reason: "We should leave what the last leader said.", external: external, want: "True/Old: as it was"},
		"Answers": {reason: "We should say that it answers.", external: external, state: &chooser.State{}, want: "True/Answering: the chooser answers"},
		"Fails": {
			reason: "We should say where it is, and what is wrong.", external: external, state: &chooser.State{Reason: "Timeout", Message: "too late"},
			want: "False/Timeout: the chooser at chooser.prices.svc:8443 is not usable: too late",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{Choice: v1beta1.Choice{External: tc.external}}}
			k.Status.Conditions = []metav1.Condition{met(v1beta1.ConditionChooserReady, "Old", "as it was")}
			got := (&Writer{Choosers: choosing{tc.state}}).chooserReady(k)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}

// TestPolicyConditions has what became of the policies of a claim kind, for the default class and for the use of classes.
func TestPolicyConditions(t *testing.T) {
	const name, was = "claims.example.org", "True/Old: as it was"
	const toUs, unchecked = "claims without a selector come to classbind: ", "who may use a class is not checked as registered: "
	byPolicy := v1beta1.ClaimKindSpec{Admission: v1beta1.Admission{Defaulting: v1beta1.DefaultingPolicy}}
	checked := v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Use: &v1beta1.Use{Subject: v1beta1.UseByNamespace}}}
	faulty := func(reason, text string) decided {
		return decided{name: {Fault: &inventory.Fault{Reason: reason, Text: text}}}
	}
	for test, tc := range map[string]struct {
		reason  string
		of      func(outcomes, *v1beta1.ClaimKind) metav1.Condition
		spec    v1beta1.ClaimKindSpec
		isNew   bool // There is no condition yet.
		decided decided
		want    string // as conditionText has it
	}{
		"Unsaid":         {reason: "We should take what is not said for Webhook.", of: defaulting},
		"UseNotKnownYet": {reason: "We should leave what the last leader said.", of: use, spec: checked, want: was},
		"Everybody":      {reason: "We should say nothing where everybody may use every class.", of: use},
		"Given": {
			reason: "We should say what the API server gives.", of: defaulting, spec: byPolicy, decided: decided{name: {Class: "Gold/gold"}},
			want: "True/Configured: the API server itself gives the default class Gold/gold to claims without a selector",
		},
		"NotGiven": {
			reason: "We should say why it gives none.", of: defaulting, spec: byPolicy, decided: faulty(v1beta1.ReasonNoDefault, "no class is marked default"),
			want: "False/NoDefault: " + toUs + "no class is marked default",
		},
		"TooEarly": {
			reason: "We should not call a failure what takes a moment.", of: defaulting, spec: byPolicy, decided: faulty(v1beta1.ReasonNotConfigured, "the CRD is new"),
			want: "Unknown/NotConfigured: " + toUs + "the CRD is new",
		},
		"NeverKnown": {
			reason: "We should not be silent about what is not checked yet.", of: use, spec: checked, isNew: true,
			want: "Unknown/NotConfigured: " + unchecked + "the classes of the kind are not known yet",
		},
		"Checked": {
			reason: "We should say that it is checked.", of: use, spec: checked, decided: decided{name: {}},
			want: "True/Enforced: the API server itself checks who may use the class that a claim names",
		},
		"NotPermitted": {
			reason: "We should name what to install.", of: use, spec: checked,
			decided: faulty(v1beta1.ReasonNotPermitted, "no: install the component policies"),
			want:    "False/NotPermitted: " + unchecked + "no: install the component policies",
		},
	} {
		t.Run(test, func(t *testing.T) {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tc.spec}
			for _, of := range []string{v1beta1.ConditionDefaultedByPolicy, v1beta1.ConditionUseEnforced} {
				if !tc.isNew {
					k.Status.Conditions = append(k.Status.Conditions, met(of, "Old", "as it was"))
				}
			}
			got := tc.of(tc.decided, k)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}
