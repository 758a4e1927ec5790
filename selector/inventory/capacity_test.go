package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestNewClassCapacity(t *testing.T) {
	path, expression := v1beta1.Source{Path: ".spec.capacity"}, v1beta1.Source{Expression: "class.status.free"}
	for name, tc := range map[string]struct {
		reason string
		of     v1beta1.Capacity
		class  string
		want   Capacity
		err    string
	}{
		"None": {"A class without a value should have no limit.", v1beta1.Capacity{}, `{}`, Capacity{Total: Unlimited, PerNamespace: Unlimited}, ""},
		"Annotation": {
			"We should read a quantity.",
			v1beta1.Capacity{},
			`{metadata: {annotations: {classbind.io/capacity: "10Ti"}}}`,
			Capacity{Total: 10 << 40, PerNamespace: Unlimited},
			"",
		},
		"Path": {"We should read a number.", v1beta1.Capacity{Total: path}, `{spec: {capacity: 50}}`, Capacity{Total: 50, PerNamespace: Unlimited}, ""},
		"Expression": {
			"We should evaluate an expression.",
			v1beta1.Capacity{Total: expression},
			`{status: {free: 2.5Gi}}`,
			Capacity{Total: 5 << 29, PerNamespace: Unlimited},
			"",
		},
		"Fraction": {"We should round down.", v1beta1.Capacity{Total: path}, `{spec: {capacity: 2.7}}`, Capacity{Total: 2, PerNamespace: Unlimited}, ""},
		"Huge": {
			"We should not overflow.",
			v1beta1.Capacity{Total: path},
			`{spec: {capacity: 999999999999999999999E30}}`,
			Capacity{Total: Unlimited, PerNamespace: Unlimited},
			"",
		},
		"PerNamespace": {
			"We should read both limits.",
			v1beta1.Capacity{Total: path, PerNamespace: &v1beta1.Source{Annotation: "a/b"}},
			`{metadata: {annotations: {a/b: "3"}}, spec: {capacity: 50}}`,
			Capacity{Total: 50, PerNamespace: 3},
			"",
		},
		"Malformed": {
			"A malformed value should hold nothing.",
			v1beta1.Capacity{},
			`{metadata: {annotations: {classbind.io/capacity: much}}}`,
			Capacity{PerNamespace: Unlimited},
			`metadata.annotations[classbind.io/capacity]: Invalid value: "much": must be a number or a quantity, such as 50 or 10Ti, and counts as 0`,
		},
		"Negative": {
			"A negative value should hold nothing.",
			v1beta1.Capacity{Total: path},
			`{spec: {capacity: -1}}`,
			Capacity{PerNamespace: Unlimited},
			`spec.capacity: Invalid value: -1: must not be negative, and counts as 0`,
		},
		"Object": {
			"We should take no object.",
			v1beta1.Capacity{Total: path},
			`{spec: {capacity: {a: 1}}}`,
			Capacity{PerNamespace: Unlimited},
			`spec.capacity: Invalid value: must be a number or a quantity, and counts as 0`,
		},
		"ExpressionFails": {
			"A class for which the expression fails should hold nothing.",
			v1beta1.Capacity{Total: expression},
			`{status: {}}`,
			Capacity{PerNamespace: Unlimited},
			"metadata.name: Invalid value: the expression spec.capacity[claims].total.expression of class kind pools.example.org fails: " +
				"no such key: free, and counts as 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.of.Name = v1beta1.ClaimsQuantity
			spec := crossplaneClassKind()
			spec.Capacity = []v1beta1.Capacity{tc.of}
			kind := NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}, Spec: spec},
				schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false)
			assert.True(t, kind.HasCapacity(), tc.reason)
			assert.Equal(t, tc.of.Total == (v1beta1.Source{}), kind.MetadataOnly(), "We should need the objects for a field alone.")
			object := selectortest.Decode(t, tc.class)
			annotations := map[string]string{}
			metadata, _ := object["metadata"].(map[string]any)
			all, _ := metadata["annotations"].(map[string]any)
			for key, value := range all {
				annotations[key] = value.(string)
			}
			meta := &metav1.ObjectMeta{Name: "gold", Annotations: annotations}
			c := kind.NewClass(meta, object)
			got := c.Capacity[0]
			if tc.err == "" {
				assert.Nil(t, got.Err, tc.reason)
			} else {
				require.EqualError(t, got.Err, tc.err, tc.reason)
			}
			got.Err = nil
			assert.Equal(t, tc.want, got, tc.reason)
			classes := NewClasses(kind, []*Class{c})
			assert.Len(t, classes.Faulty(MalformedCapacity), map[bool]int{true: 1}[tc.err != ""], tc.reason)
			assert.Same(t, classes, classes.With(kind.NewClass(meta, object)), "We should see that nothing changed.")
			if tc.err != "" {
				return
			}
			changed := kind.NewClass(meta, object)
			changed.Capacity[0].Total--
			assert.NotSame(t, classes, classes.With(changed), "We should see that the capacity changed.")
		})
	}
	kind := newKind("as.example.org", "A")
	assert.False(t, kind.HasCapacity())
	assert.Nil(t, kind.NewClass(&metav1.ObjectMeta{Name: "gold", Annotations: map[string]string{v1beta1.CapacityAnnotation: "5"}}, nil).Capacity,
		"We should read no capacity where the kind has none.")
}
