package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestNewClassWeightOfBothAnnotations(t *testing.T) {
	kind := newKind("as.example.org", "A")
	kind.weight = newSource(v1beta1.Source{Annotation: v1beta1.WeightAnnotation})
	weight := func(annotations map[string]string) int64 {
		return kind.NewClass(&metav1.ObjectMeta{Name: "gold", Annotations: annotations}, nil).Weight
	}
	assert.EqualValues(t, 7, weight(map[string]string{v1beta1.CrossplaneWeightAnnotation: "7"}))
	assert.EqualValues(t, 3, weight(map[string]string{v1beta1.WeightAnnotation: "3", v1beta1.CrossplaneWeightAnnotation: "7"}), "Ours should go first.")
	assert.EqualValues(
		t, 1, weight(map[string]string{v1beta1.WeightAnnotation: "much", v1beta1.CrossplaneWeightAnnotation: "7"}),
		"We should guess no other weight where ours is wrong.",
	)
}

func TestNewClassMarks(t *testing.T) {
	type want struct {
		cordoned, isDefault bool
		err                 string
	}
	const detail = "must be true or false, and counts as false"
	kind, byPath := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	byPath.isDefault = newSource(v1beta1.Source{Path: ".spec.default"})
	ours := newKind("cs.example.org", "C")
	ours.isDefault = newSource(v1beta1.Source{Annotation: v1beta1.DefaultAnnotation})
	for name, tc := range map[string]struct {
		reason string
		kind   *ClassKind
		class  string
		want   want
	}{
		"None": {"We should take an absent mark for false", kind, `{}`, want{}},
		"True": {
			"We should take true", kind,
			`{metadata: {annotations: {` + defaultAnnotation + `: "true", classbind.io/cordoned: "true"}}}`,
			want{cordoned: true, isDefault: true},
		},
		"False": {"We should take false", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "false", classbind.io/cordoned: "false"}}}`, want{}},
		"Yes": {
			"We should not cordon for what is nearly right, and say so", kind,
			`{metadata: {annotations: {classbind.io/cordoned: "yes"}}}`,
			want{err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "yes": ` + detail},
		},
		"Capital": {
			"We should distinguish True from true, as the API server's match conditions do", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "True"}}}`,
			want{err: `metadata.annotations[` + defaultAnnotation + `]: Invalid value: "True": ` + detail},
		},
		"Both": {
			"We should first report the one that keeps a class in use", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "1", classbind.io/cordoned: ""}}}`,
			want{err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "": ` + detail},
		},
		"OneOfTwo": {
			"We should read one where the other is wrong", kind,
			`{metadata: {annotations: {` + defaultAnnotation + `: "true", classbind.io/cordoned: "no"}}}`,
			want{isDefault: true, err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "no": ` + detail},
		},
		"Ours": {"We should know our own mark", ours, `{metadata: {annotations: {classbind.io/default: "true"}}}`, want{isDefault: true}},
		"Theirs": {
			"We should understand that of Crossplane", ours,
			`{metadata: {annotations: {resourceclass.crossplane.io/is-default-class: "true"}}}`,
			want{isDefault: true},
		},
		"OursFalse": {
			"We should take either", ours,
			`{metadata: {annotations: {classbind.io/default: "false", resourceclass.crossplane.io/is-default-class: "true"}}}`,
			want{isDefault: true},
		},
		"OnlyTheirs": {"We should read our own mark only where it is the mark", kind, `{metadata: {annotations: {classbind.io/default: "true"}}}`, want{}},
		"Field":      {"We should take a boolean", byPath, `{spec: {default: true}}`, want{isDefault: true}},
		"FieldFalse": {"We should take a boolean", byPath, `{spec: {default: false}}`, want{}},
		"FieldOne":   {"We should not take 1 for true", byPath, `{spec: {default: 1}}`, want{err: "spec.default: Invalid value: 1: " + detail}},
		"FieldMap":   {"We should not take an object for true", byPath, `{spec: {default: {a: b}}}`, want{err: "spec.default: Invalid value: " + detail}},
	} {
		t.Run(name, func(t *testing.T) {
			object := selectortest.Decode(t, tc.class)
			c := tc.kind.NewClass(&unstructured.Unstructured{Object: object}, object)
			got := want{cordoned: c.Cordoned, isDefault: c.Default}
			if c.MarkErr != nil {
				got.err = c.MarkErr.Error()
			}
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Len(t, NewClasses(tc.kind, []*Class{c}).Faulty(MalformedMark), map[bool]int{true: 1}[tc.want.err != ""], tc.reason)
		})
	}
}
