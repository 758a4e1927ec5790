package openapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

func TestOfDocument(t *testing.T) {
	const document = `{components: {schemas: {
  claim: {type: object, x-kubernetes-group-version-kind: [{group: "", version: v1, kind: PersistentVolumeClaim}], properties: {
    metadata: {allOf: [{$ref: "#/components/schemas/meta"}]}, spec: {default: {}, allOf: [{$ref: "#/components/schemas/spec"}]}}},
  meta: {type: object, properties: {labels: {type: object, additionalProperties: {type: string}}}},
  spec: {type: object, properties: {storageClassName: {type: string}, round: {$ref: "#/components/schemas/round"},
    gone: {$ref: "#/components/schemas/gone"}, free: {type: object},
    more: {type: object, properties: {a: {type: string}}, allOf: [{$ref: "#/components/schemas/meta"}]},
    either: {type: object, properties: {a: {type: string}}, oneOf: [{}]}}},
  round: {$ref: "#/components/schemas/round"}}}}`
	json, err := yaml.YAMLToJSON([]byte(document))
	require.NoError(t, err)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}
	s, err := OfDocument(json, kind)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		at     v1beta1.FieldPath
		want   error
	}{
		"Referred": {"We should follow a reference.", ".spec.storageClassName", nil},
		"Missing":  {"We should see what the API server does not know.", ".spec.storageClasName", ErrMissing},
		"Metadata": {"We should know metadata where it is described.", ".metadata.label", ErrMissing},
		"Label":    {"We should find a key in a map.", ".metadata.labels.any", nil},
		"Circle":   {"We should not run in a circle.", ".spec.round.x", ErrUnknown},
		"Dangling": {"We should not know what a reference to nothing means.", ".spec.gone", ErrUnknown},
		"AllOf":    {"We should not miss a field that another schema may add.", ".spec.more.labels", ErrUnknown},
		"OneOf":    {"We should not miss a field of an alternative.", ".spec.either.b", ErrUnknown},
		"Free":     {"We should not know of an object that an API server may read in its own way.", ".spec.free.x", ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorIs(t, s.At(fields.Path(tc.at.Names())).Err, tc.want, tc.reason)
		})
	}
	kind.Kind = "Pod"
	_, err = OfDocument(json, kind)
	require.ErrorIs(t, err, ErrNoSchema, "We should not take another kind's schema.")
	_, err = OfDocument([]byte("<html>"), kind)
	require.ErrorContains(t, err, "cannot read the OpenAPI document")
}

func TestOfCRD(t *testing.T) {
	_, err := OfCRD([]byte(`{"spec":{"versions":[{"name":"v1"}]}}`), "v1")
	require.ErrorIs(t, err, ErrNoSchema, "We should not take a CRD without a schema for one that keeps nothing.")
	_, err = OfCRD([]byte(`[]`), "v1")
	require.ErrorContains(t, err, "cannot read the CRD")
	s, err := OfCRD([]byte(`{"spec":{"preserveUnknownFields":true,"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}`), "v1")
	require.NoError(t, err)
	assert.ErrorIs(t, s.At(fields.Path{"spec"}).Err, ErrUnknown, "We should not miss a field where the CRD keeps all of them.")
}

func TestTooDeep(t *testing.T) {
	const levels = 20_000
	root := strings.Repeat(`{"properties":{"spec":`, levels) + "{}" + strings.Repeat("}}", levels)
	_, err := OfCRD([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":`+root+`}}]}}`), "v1")
	require.ErrorContains(t, err, "exceeded max depth", "We should not follow a vendor down.")
}

// TestDecodesOnce a level, however many paths lead through it.
func TestDecodesOnce(t *testing.T) {
	s, err := OfCRD([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"a":{},"b":{}}}}}}}]}}`), "v1")
	require.NoError(t, err)
	require.NoError(t, s.At(fields.Path{"spec", "a"}).Err)
	s.root = nil
	require.NoError(t, s.At(fields.Path{"spec", "b"}).Err, "We should remember what is around it.")
}
