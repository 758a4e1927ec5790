package status

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

// TestPaths checks a claim kind, and then writes its status, which was one of this generation before.
func TestPaths(t *testing.T) {
	const name = "claims.example.org"
	const (
		fitting  = `{"type":"object","properties":{"spec":{"type":"object","properties":{"class":{"type":"string"},"skip":{"type":"object"}}}}}`
		requires = `{"type":"object","properties":{"spec":{"type":"object","required":["class"],"properties":{"class":{"type":"string"},"skip":{"type":"object"}}}}}`
		empty    = `{"type":"object"}`
		open     = `{"x-kubernetes-preserve-unknown-fields":true}`
		pruned   = "no claim is bound, because the API server would remove the reference to its class: reference.path: the schema has no field .spec; " +
			"skipIfSet: the schema has no field .spec: correct spec.reference.path and spec.reference.form, or the schema"
	)
	const allButSelector = "the schema of the claims has the fields of every path, but for the defaults .spec.classSelector, which no claim needs"
	type want struct {
		again         time.Duration
		status        metav1.ConditionStatus
		reason, ready string // of the conditions
		message       string
		required      []v1alpha1.FieldPath
	}
	for tcName, tc := range map[string]struct {
		reason string
		schema string
		err    error
		before string // reason of PathsValid
		// required before
		required []v1alpha1.FieldPath
		spec     v1alpha1.FieldPath
		want     want
	}{
		"Fits": {
			reason: "We should say that all is there, but for what no claim needs.", schema: fitting,
			want: want{recheckPaths, metav1.ConditionTrue, v1alpha1.ReasonPathsValid, v1alpha1.ReasonServed, allButSelector, nil},
		},
		"Pruned": {
			reason: "We should not be ready where no claim would keep its reference.", schema: empty,
			want: want{recheckPaths, metav1.ConditionFalse, v1alpha1.ReasonReferencePruned, v1alpha1.ReasonReferencePruned, pruned, nil},
		},
		"Mended": {
			reason: "We should be ready as soon as the schema has the field, before the inventory hears of it.", schema: fitting, before: v1alpha1.ReasonReferencePruned,
			want: want{recheckPaths, metav1.ConditionTrue, v1alpha1.ReasonPathsValid, v1alpha1.ReasonServed, allButSelector, nil},
		},
		"Required": {
			reason: "We should tell what no claim may be stored without.", schema: requires,
			want: want{recheckPaths, metav1.ConditionTrue, v1alpha1.ReasonPathsValid, v1alpha1.ReasonServed, allButSelector, []v1alpha1.FieldPath{".spec.class"}},
		},
		"RequiredNoMore": {
			reason: "We should forget what the schema requires no more.", schema: fitting, before: v1alpha1.ReasonPathsValid, required: []v1alpha1.FieldPath{".spec.class"},
			want: want{recheckPaths, metav1.ConditionTrue, v1alpha1.ReasonPathsValid, v1alpha1.ReasonServed, allButSelector, nil},
		},
		"RequiredBefore": {
			reason: "We should not forget it because the API server does not answer.", err: errors.New("connection refused"), before: v1alpha1.ReasonPathsValid, required: []v1alpha1.FieldPath{".spec.class"},
			want: want{registry.RetryAfter, metav1.ConditionUnknown, v1alpha1.ReasonNotSynced, v1alpha1.ReasonServed, "the paths cannot be compared with the schema of the claims: connection refused", []v1alpha1.FieldPath{".spec.class"}},
		},
		"Invalid": {
			reason: "We should not be ready where a path leads nowhere.", schema: fitting, spec: ".spec.ckass",
			want: want{recheckPaths, metav1.ConditionFalse, v1alpha1.ReasonPathsInvalid, v1alpha1.ReasonPathsInvalid, "no claim is bound: classSelector.path: the schema has no field .spec.ckass: correct the ClaimKind, or the schema", nil},
		},
		"InvalidAndMended": {
			reason: "We should be ready as soon as the path is mended.", schema: fitting, before: v1alpha1.ReasonPathsInvalid,
			want: want{recheckPaths, metav1.ConditionTrue, v1alpha1.ReasonPathsValid, v1alpha1.ReasonServed, allButSelector, nil},
		},
		"Open": {
			reason: "We should not know of what may be anything.", schema: open,
			want: want{recheckPaths, metav1.ConditionUnknown, v1alpha1.ReasonSchemaUnknown, v1alpha1.ReasonServed, "reference.path: the schema does not say what may be in .spec", nil},
		},
		"NotServed": {
			reason: "We should say why there is no schema, and look again soon.", err: registry.ErrCRDNotServed,
			want: want{registry.RetryCRDAfter, metav1.ConditionUnknown, v1alpha1.ReasonNotSynced, v1alpha1.ReasonServed, "the paths cannot be compared with the schema of the claims: " + registry.ErrCRDNotServed.Error(), nil},
		},
		"NoAnswer": {
			reason: "We should say why there is no schema, and look again.", err: errors.New("connection refused"),
			want: want{registry.RetryAfter, metav1.ConditionUnknown, v1alpha1.ReasonNotSynced, v1alpha1.ReasonServed, "the paths cannot be compared with the schema of the claims: connection refused", nil},
		},
		"NoAnswerAnyMore": {
			reason: "We should not bind claims whose reference was removed, until we see another schema.", err: errors.New("connection refused"), before: v1alpha1.ReasonReferencePruned,
			want: want{registry.RetryAfter, metav1.ConditionFalse, v1alpha1.ReasonReferencePruned, v1alpha1.ReasonReferencePruned, "before", nil},
		},
		"NoSchemaAnyMore": {
			reason: "We should bind claims of a kind for which there is no schema any more.", err: openapi.ErrNoSchema, before: v1alpha1.ReasonReferencePruned,
			want: want{registry.RetryAfter, metav1.ConditionUnknown, v1alpha1.ReasonSchemaUnknown, v1alpha1.ReasonServed, "the paths cannot be compared with the schema of the claims: there is no schema for it", nil},
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			k := controllertest.NewClaimKind(name)
			k.Generation, k.Spec.Reference = 7, v1alpha1.Reference{Path: ".spec.class", Form: v1alpha1.Name}
			k.Spec.ClassSelector.Path, k.Spec.SkipIfSet = ".spec.classSelector", []v1alpha1.Place{{Path: ".spec.skip"}}
			if tc.spec != "" {
				k.Spec.ClassSelector.Path = tc.spec
			}
			if tc.before != "" {
				k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: tc.before, Message: "before", ObservedGeneration: 7}}
			}
			k.Status.Required = tc.required
			entry := []admissionregistrationv1.MutatingWebhook{{Name: name + v1alpha1.BindSuffix}}
			c := &controllertest.Cached{ClaimKinds: []v1alpha1.ClaimKind{*k}, Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: entry}}
			p := &Paths{Client: c, Schema: func(context.Context, *v1alpha1.ClaimKind) (*openapi.Schema, error) {
				if tc.err != nil {
					return nil, tc.err
				}
				return openapi.OfCRD([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":`+tc.schema+`}}]}}`), "v1")
			}}
			told := 0
			p.changed.Add(t.Context(), func(string) { told++ })
			for range 2 {
				result, err := p.reconcile(t.Context(), name)
				require.NoError(t, err, tc.reason)
				assert.Equal(t, ctrl.Result{RequeueAfter: tc.want.again}, result, tc.reason)
			}
			assert.Equal(t, 1, told, "We should have the status written once for one answer.")

			inventory := selector.NewInventory()
			inventory.SetClaimKind(selector.NewClaimKind(k))
			inventory.Open()
			s := &Writer{Snapshot: inventory.Snapshot, Registration: fixed{}, Claims: &latebinding.Claims{}, ClaimEntries: said{}, Paths: p, Client: c}
			_, err := s.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err, tc.reason)
			require.Len(t, c.Updated, 1, tc.reason)
			status := c.Updated[0].(*v1alpha1.ClaimKind).Status
			conditions := status.Conditions
			valid, ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionPathsValid), meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
			require.NotNil(t, valid, tc.reason)
			assert.Equal(t, tc.want, want{tc.want.again, valid.Status, valid.Reason, ready.Reason, valid.Message, status.Required}, tc.reason)
			assert.Equal(t, tc.want.ready == v1alpha1.ReasonServed, ready.Status == metav1.ConditionTrue, tc.reason)
		})
	}
}

func TestPathsOfAClaimKindThatIsGone(t *testing.T) {
	p := &Paths{Client: &controllertest.Cached{}}
	p.checks.Store("claims.example.org", checkedPaths{})
	result, err := p.reconcile(t.Context(), "claims.example.org")
	require.NoError(t, err)
	assert.Zero(t, result, "We should not look at it again.")
	_, kept := p.checks.Load("claims.example.org")
	assert.False(t, kept, "We should forget it.")
}
