package registry

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/openapi"
)

func TestSchema(t *testing.T) {
	const (
		name    = "claims.example.org"
		crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name
		apiPath = "/openapi/v3/apis/example.org/v2"
	)
	with := func(field string) map[string]any {
		properties := map[string]any{field: map[string]any{"type": "string"}}
		return map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": properties}}}
	}
	version := func(name, field string) map[string]any {
		return map[string]any{"name": name, "schema": map[string]any{"openAPIV3Schema": with(field)}}
	}
	described := with("byAPIServer")
	described["x-kubernetes-group-version-kind"] = []map[string]any{{"group": "example.org", "version": "v2", "kind": "Claim"}}
	document := map[string]any{"components": map[string]any{"schemas": map[string]any{"example.Claim": described}}}
	crd := map[string]any{"spec": map[string]any{"versions": []any{version("v1", "byOldVersion"), version("v2", "byCRD")}}}
	for tcName, tc := range map[string]struct {
		reason  string
		answers map[string]any
		want    v1alpha1.FieldPath // which the schema has
		err     string
	}{
		"CRD":     {"We should read the version that the API server prefers.", map[string]any{crdPath: crd, apiPath: document}, ".spec.byCRD", ""},
		"OpenAPI": {"We should ask the API server about a kind that has no CRD.", map[string]any{apiPath: document}, ".spec.byAPIServer", ""},
		"Nothing": {"We should say that there is no schema.", nil, "", openapi.ErrNoSchema.Error()},
		"CRDRefused": {
			"We should not take a CRD that we may not read for none.",
			map[string]any{crdPath: controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden), apiPath: document},
			"", `cannot read the CRD of "claims.example.org": `,
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			answers := map[string]any{
				"/apis/example.org":    controllertest.APIGroup("v2", "v1"),
				"/apis/example.org/v2": controllertest.APIResources(metav1.APIResource{Name: "claims", Kind: "Claim", Verbs: metav1.Verbs{"create"}}),
			}
			maps.Copy(answers, tc.answers)
			resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, answers))
			require.NoError(t, err)
			s, err := (&Resources{&controllertest.Cached{}, resolver}).Schema(t.Context(), controllertest.NewClaimKind(name))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			k := controllertest.NewClaimKind(name)
			k.Spec.Reference, k.Spec.SkipIfSet = v1alpha1.Reference{Path: tc.want, Form: v1alpha1.Name}, nil
			k.Spec.ClassSelector.Path = ".spec.classSelector"
			assert.Empty(t, selector.NewClaimKind(k).CheckPaths(s).Problems, tc.reason)
		})
	}
}

func TestFaultChanged(t *testing.T) {
	kind := func(generation int64, reason string, required ...v1alpha1.FieldPath) *v1alpha1.ClaimKind {
		k := controllertest.NewClaimKind("claims.example.org")
		k.Generation, k.Status.Required = generation, required
		k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPathsValid, Reason: reason, ObservedGeneration: 1}}
		return k
	}
	pinned := func(k *v1alpha1.ClaimKind, version string) *v1alpha1.ClaimKind {
		k.Status.Version = version
		return k
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after *v1alpha1.ClaimKind
		want          bool
	}{
		"Pruned":     {"We should bind no more claims where the leader sees that their reference is removed.", kind(1, v1alpha1.ReasonPathsValid), kind(1, v1alpha1.ReasonReferencePruned), true},
		"Invalid":    {"We should bind no more claims where the leader sees that a path leads nowhere.", kind(1, v1alpha1.ReasonPathsValid), kind(1, v1alpha1.ReasonPathsInvalid), true},
		"Required":   {"We should refuse claims that stay without what the schema requires now.", kind(1, v1alpha1.ReasonPathsValid), kind(1, v1alpha1.ReasonPathsValid, ".spec"), true},
		"Mended":     {"We should bind claims again.", kind(1, v1alpha1.ReasonReferencePruned), kind(1, v1alpha1.ReasonPathsValid), true},
		"Pinned":     {"We should read claims of the version that the leader pins.", kind(1, ""), pinned(kind(1, ""), "v1"), true},
		"Registered": {"We should follow a new registration.", kind(1, v1alpha1.ReasonPathsValid), kind(2, v1alpha1.ReasonPathsValid), true},
		"Status":     {"We should do nothing for another status, of which there are many.", kind(1, v1alpha1.ReasonPathsValid), kind(1, v1alpha1.ReasonReferenceRefused), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, faultChanged.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}), tc.reason)
		})
	}
	assert.True(t, faultChanged.Create(event.CreateEvent{Object: kind(1, "")}), "We should look at a kind that is new.")
}
