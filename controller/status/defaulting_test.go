package status

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// decided are the outcomes of policies, by claim kind.
type decided map[string]webhookconfig.PolicyOutcome

func (d decided) Outcome(claimKind string) (webhookconfig.PolicyOutcome, bool) {
	o, known := d[claimKind]
	return o, known
}

func (decided) OnChange(context.Context, func(string)) {}

func TestDefaultedByPolicy(t *testing.T) {
	const name = "claims.example.org"
	old := metav1.Condition{Type: v1beta1.ConditionDefaultedByPolicy, Status: metav1.ConditionTrue, Reason: "Old", Message: "as it was"}
	for test, tc := range map[string]struct {
		reason     string
		defaulting v1beta1.Defaulting
		decided    decided
		want       string // as conditionText has it
	}{
		"Webhook":     {reason: "We should say nothing of a policy that nobody asked for.", defaulting: v1beta1.DefaultingWebhook},
		"Unsaid":      {reason: "We should take what is not said for Webhook."},
		"NotKnownYet": {reason: "We should leave what the last leader said.", defaulting: v1beta1.DefaultingPolicy, want: conditionText(&old)},
		"Written": {
			reason: "We should say what the API server gives.", defaulting: v1beta1.DefaultingPolicy, decided: decided{name: {Class: "Gold/gold"}},
			want: "True/Configured: the API server itself gives the default class Gold/gold to claims without a selector",
		},
		"NotWritten": {
			reason: "We should say why it gives none.", defaulting: v1beta1.DefaultingPolicy,
			decided: decided{name: {Fault: &inventory.Fault{Reason: v1beta1.ReasonNoDefault, Text: "no class is marked default"}}},
			want:    "False/NoDefault: claims without a selector come to classbind: no class is marked default",
		},
		"TooEarly": {
			reason: "We should not call a failure what takes a moment.", defaulting: v1beta1.DefaultingPolicy,
			decided: decided{name: {Fault: &inventory.Fault{Reason: v1beta1.ReasonNotConfigured, Text: "the CRD is new"}}},
			want:    "Unknown/NotConfigured: claims without a selector come to classbind: the CRD is new",
		},
	} {
		t.Run(test, func(t *testing.T) {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Spec: v1beta1.ClaimKindSpec{Admission: v1beta1.Admission{Defaulting: tc.defaulting}}}
			k.Status.Conditions = []metav1.Condition{old}
			got := (&Writer{Defaults: tc.decided}).defaulting(k)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}

func TestCapacityEnforced(t *testing.T) {
	kind := inventory.NewClassKind(&v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{
		Capacity: &v1beta1.Capacity{Total: v1beta1.Source{Annotation: "capacity"}, Enforcement: v1beta1.Hard},
	}}, schema.GroupVersionKind{Kind: "Gold"}, false)
	five := []string{"capacity", "5"}
	classes := controllertest.NewClasses(kind, map[string][]string{"a": five, "b": five})
	hard := &v1beta1.Capacity{Enforcement: v1beta1.Hard}
	for test, tc := range map[string]struct {
		reason   string
		capacity *v1beta1.Capacity
		classes  *inventory.Classes
		open     string
		used     int64
		notAsked bool
		want     string // as conditionText has it
	}{
		"Soft":    {reason: "We should say nothing where no ledger decides.", capacity: &v1beta1.Capacity{}, classes: classes},
		"Unknown": {reason: "We should say nothing of classes that are not known.", capacity: hard},
		"Open":    {reason: "We should say that it is enforced.", capacity: hard, classes: classes, open: "ab", want: "True/Enforced: no class is given more claims than it holds"},
		"Full": {
			reason: "We should say which classes are full.", capacity: hard, classes: classes, open: "ab", used: 5,
			want: "True/Full: no class is given more claims than it holds; 2 classes are full: Gold/a, Gold/b",
		},
		"NotAsked": {
			reason: "We should not say that it is enforced while claims pass us.", capacity: hard, classes: classes, open: "ab", notAsked: true,
			want: "False/NotConfigured: classes may be given more claims than they hold: the API server does not ask classbind about all claims yet",
		},
		"Closed": {
			reason: "We should say which class no claim gets.", capacity: hard, classes: classes, open: "b",
			want: "False/NotCounted: 1 class is given to no claim until claims are counted, after all writes that are in flight: Gold/a",
		},
	} {
		t.Run(test, func(t *testing.T) {
			k := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: tc.capacity}}
			got := capacityEnforced(k, tc.classes, !tc.notAsked, func(_ string, c *inventory.Class) (r selector.Room) {
				if !strings.Contains(tc.open, c.Name) {
					r.Closed = "closed"
				}
				r.Used = tc.used
				return r
			})
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}

func TestUseEnforced(t *testing.T) {
	const name = "claims.example.org"
	old := metav1.Condition{Type: v1beta1.ConditionUseEnforced, Status: metav1.ConditionTrue, Reason: "Old", Message: "as it was"}
	byNamespace := &v1beta1.Use{Subject: v1beta1.UseByNamespace}
	for test, tc := range map[string]struct {
		reason  string
		use     *v1beta1.Use
		before  []metav1.Condition
		decided decided
		want    string // as conditionText has it
	}{
		"Everybody":   {reason: "We should say nothing where everybody may use every class.", before: []metav1.Condition{old}},
		"NotKnownYet": {reason: "We should leave what the last leader said.", use: byNamespace, before: []metav1.Condition{old}, want: conditionText(&old)},
		"NeverKnown": {
			reason: "We should not be silent about what is not checked yet.", use: byNamespace,
			want: "Unknown/NotConfigured: who may use a class is not checked as registered: the classes of the kind are not known yet",
		},
		"Written": {
			reason: "We should say that it is checked.", use: byNamespace, before: []metav1.Condition{old}, decided: decided{name: {}},
			want: "True/Enforced: the API server itself checks who may use the class that a claim names",
		},
		"NotPermitted": {
			reason: "We should say what mends it.", use: byNamespace,
			decided: decided{name: {Fault: &inventory.Fault{Reason: v1beta1.ReasonNotPermitted, Text: "no: apply deploy/ of this release"}}},
			want:    "False/NotPermitted: who may use a class is not checked as registered: no: apply deploy/ of this release",
		},
	} {
		t.Run(test, func(t *testing.T) {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Spec: v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Use: tc.use}}}
			k.Status.Conditions = tc.before
			got := (&Writer{Uses: tc.decided}).use(k)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}
