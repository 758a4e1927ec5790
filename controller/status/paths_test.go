package status

import (
	"cmp"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

// checkOf compares a claim kind with the schema of its claims.
func checkOf(t *testing.T, k v1beta1.ClaimKind, schema string) selector.PathsCheck {
	t.Helper()
	s, err := openapi.OfCRD([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":`+schema+`}}]}}`), "v1")
	require.NoError(t, err)
	return selector.CheckPaths(selector.NewClaimKind(&k), s)
}

// refusing is a schema that takes no reference to a class of a registered kind.
const refusing = `{"type":"object","properties":{"spec":{"type":"object","properties":{"classRef":{"type":"object","properties":{` +
	`"apiVersion":{"type":"string"},"kind":{"type":"string","enum":["Other"]},"name":{"type":"string"}}}}}}}`

// TestPathsValid writes a status that said something else before.
func TestPathsValid(t *testing.T) {
	const name = "claims.example.org"
	const (
		fitting  = `{"type":"object","properties":{"spec":{"type":"object","properties":{"class":{"type":"string"},"skip":{"type":"object"}}}}}`
		requires = `{"type":"object","properties":{"spec":{"type":"object","required":["class"],"properties":{"class":{"type":"string",` +
			`"minLength":1},"skip":{"type":"object"}}}}}`
		empty  = `{"type":"object"}`
		pruned = "no claim is bound, because the API server would remove the reference to its class: reference.path: the schema has no field .spec; " +
			"claims.skipIfSet: the schema has no field .spec: correct spec.reference.path and spec.reference.form, or the schema"
		allButSelector = "the schema of the claims has the fields of every path, but for the defaults .spec.classSelector, which no claim needs"
		notCompared    = "the paths cannot be compared with the schema of the claims: "
	)
	for tcName, tc := range map[string]struct {
		reason   string
		schema   string // the last that was read
		err      error
		spec     v1beta1.FieldPath
		want     string // of PathsValid, as conditionText has it
		ready    string // the reason; by default, claims are served
		required []v1beta1.FieldPath
	}{
		"Fits": {reason: "We should say that all is there, but for what no claim needs.", schema: fitting, want: "True/PathsValid: " + allButSelector},
		"Pruned": {
			reason: "We should not be ready where no claim would keep its reference.",
			schema: empty,
			want:   "False/ReferencePruned: " + pruned,
			ready:  v1beta1.ReasonReferencePruned,
		},
		"Required": {
			reason:   "We should report what no claim may be stored without.",
			schema:   requires,
			want:     "True/PathsValid: " + allButSelector,
			required: []v1beta1.FieldPath{".spec.class"},
		},
		"RequiredBefore": {
			reason: "We should not forget it because the API server does not answer.", schema: requires, err: errors.New("connection refused"),
			want: "Unknown/NotSynced: " + notCompared + "connection refused", required: []v1beta1.FieldPath{".spec.class"},
		},
		"Invalid": {
			reason: "We should not be ready where a path leads nowhere.", schema: fitting, spec: ".spec.ckass",
			want: "False/PathsInvalid: no claim is bound: selector.path: the schema has no field .spec.ckass (did you mean .spec.class?): correct " +
				"the ClaimKind, or the schema",
			ready: v1beta1.ReasonPathsInvalid,
		},
		"Open": {
			reason: "We should not know of what may be anything.", schema: `{"x-kubernetes-preserve-unknown-fields":true}`,
			want: "Unknown/SchemaUnknown: reference.path: the schema does not say what may be in .spec",
		},
		"NoAnswerAnyMore": {
			reason: "We should not bind claims whose reference was removed, until we see another schema.", schema: empty, err: errors.New("connection refused"),
			want: "False/ReferencePruned: " + pruned, ready: v1beta1.ReasonReferencePruned,
		},
		"NoSchema": {
			reason: "We should bind claims of a kind for which there is no schema.",
			err:    openapi.ErrNoSchema,
			want:   "Unknown/SchemaUnknown: " + notCompared + "there is no schema for it",
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			k := controllertest.NewClaimKind(name)
			k.Generation, k.Spec.Reference = 7, v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.class"}, Form: v1beta1.Name}
			k.Spec.Selector.Path, k.Spec.Claims.SkipIfSet = ".spec.classSelector", []v1beta1.Place{{Path: ".spec.skip"}}
			if tc.spec != "" {
				k.Spec.Selector.Path = tc.spec
			}
			k.Status.Conditions = []metav1.Condition{
				{Type: v1beta1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: "Before", Message: "before", ObservedGeneration: 7},
			}
			k.Status.Required, k.Status.SelectorAbsent = []v1beta1.FieldPath{".before"}, true
			entry := []admissionregistrationv1.MutatingWebhook{{Name: name + v1beta1.BindSuffix}}
			c := &controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}, Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: entry}}
			paths := registry.Paths{Err: tc.err}
			if tc.schema != "" {
				paths.Check = checkOf(t, *k, tc.schema)
			}
			kind := selector.NewClaimKind(k)
			kind.SetPaths(paths.Check)
			inventory := selector.NewInventory()
			inventory.SetClaimKind(kind)
			inventory.Open()
			s := fixed{paths: &paths}.in(&Writer{Snapshot: inventory.Snapshot, Claims: &latebinding.Claims{}, ClaimEntries: said{}, Client: c})
			_, err := s.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err, tc.reason)
			require.Len(t, c.Updated, 1, tc.reason)
			status := c.Updated[0].(*v1beta1.ClaimKind).Status
			valid, ready := last(status.Conditions, v1beta1.ConditionPathsValid), last(status.Conditions, v1beta1.ConditionReady)
			assert.Equal(t, tc.want, conditionText(&valid), tc.reason)
			assert.Equal(t, cmp.Or(tc.ready, v1beta1.ReasonServed), ready.Reason, tc.reason)
			assert.Equal(t, tc.ready == "", ready.Status == metav1.ConditionTrue, tc.reason)
			assert.Equal(t, tc.required, status.Required, tc.reason)
			assert.Equal(t, paths.Check.SelectorAbsent, status.SelectorAbsent, tc.reason)
		})
	}
}
