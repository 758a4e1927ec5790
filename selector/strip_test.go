package selector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
)

func TestStrip(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	many := map[string]any{}
	for i := range 1000 {
		many[fmt.Sprint("label-", i)] = "x"
	}
	byAnnotation := v1alpha1.Source{Annotation: weightAnnotation}
	cases := map[string]struct {
		reason   string
		isMarked v1alpha1.Source
		weight   v1alpha1.Source
		metadata map[string]any
		spec     any
	}{
		"Usual": {
			reason: "We should keep what is read", isMarked: v1alpha1.Source{Annotation: defaultAnnotation}, weight: byAnnotation,
			metadata: map[string]any{
				"labels": map[string]any{"tier": "gold"}, "deletionTimestamp": "2026-11-22T00:00:00Z",
				"annotations": map[string]any{defaultAnnotation: "true", weightAnnotation: "7", v1alpha1.CordonedAnnotation: "true"},
			},
		},
		"Fields": {
			reason: "We should keep the fields that are read", isMarked: v1alpha1.Source{Path: ".spec.a.default"}, weight: v1alpha1.Source{Path: ".spec.a.weight"},
			spec: map[string]any{"a": map[string]any{"default": true, "weight": int64(7), "note": long}, "note": long},
		},
		"FieldWithinMetadata": {
			reason: "We should keep a field of the metadata", isMarked: v1alpha1.Source{Annotation: defaultAnnotation}, weight: v1alpha1.Source{Path: ".metadata.generation"},
			metadata: map[string]any{"generation": int64(7)},
		},
		"FieldWithinField": {
			reason: "We should keep that a weight is an object", isMarked: v1alpha1.Source{Path: ".spec.a"}, weight: v1alpha1.Source{Path: ".spec"},
			spec: map[string]any{"a": true, "note": long},
		},
		"NoObjectOnTheWay": {
			reason: "We should find nothing where nothing can be", isMarked: v1alpha1.Source{Path: ".spec.a"}, weight: v1alpha1.Source{Path: ".spec.b.c"}, spec: long,
		},
		"LongValues": {
			reason: "We should keep that a value is too long", isMarked: v1alpha1.Source{Annotation: defaultAnnotation}, weight: byAnnotation,
			metadata: map[string]any{"annotations": map[string]any{defaultAnnotation: long, weightAnnotation: long, "note": long}},
		},
		"LongFields": {
			reason: "We should keep that a value is too long", isMarked: v1alpha1.Source{Path: ".spec.default"}, weight: v1alpha1.Source{Path: ".spec.weight"},
			spec: map[string]any{"default": []any{long}, "weight": long},
		},
		"ManyLabels": {
			reason: "We should keep that there are too many labels", isMarked: v1alpha1.Source{Annotation: defaultAnnotation}, weight: byAnnotation,
			metadata: map[string]any{
				"labels": many, "finalizers": []any{long}, "ownerReferences": []any{map[string]any{"name": long}},
				"managedFields": []any{map[string]any{"manager": long}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := NewClassKind(&v1alpha1.ClassKind{
				ObjectMeta: metav1.ObjectMeta{Name: "as.example.org"}, Spec: v1alpha1.ClassKindSpec{Default: tc.isMarked, Weight: tc.weight},
			}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "A"}, true)
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "A", "metadata": tc.metadata, "spec": tc.spec}}
			if tc.metadata == nil {
				u.Object["metadata"] = map[string]any{}
			}
			u.SetNamespace("team")
			u.SetName("a")
			u.SetResourceVersion("7")
			want := kind.NewClass(u, u.Object)

			kind.Strip(u)
			assert.Equal(t, want, kind.NewClass(u, u.Object), tc.reason)
			text, err := json.Marshal(u)
			require.NoError(t, err)
			assert.Less(t, len(text), 4096, "We should leave little of a class, whatever its author writes.")
			assert.Equal(t, "7", u.GetResourceVersion(), "We should leave what the watch goes by.")
		})
	}
}
