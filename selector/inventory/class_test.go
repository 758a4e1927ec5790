package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestNewClassWeightOfBothAnnotations(t *testing.T) {
	kind := newKind("as.example.org", "A")
	kind.weight = newSource(v1beta1.Source{Annotation: v1beta1.WeightAnnotation})
	weight := func(annotations map[string]string) int64 {
		return kind.NewClass(&metav1.ObjectMeta{Name: "gold", Annotations: annotations}, nil).Weight
	}
	assert.EqualValues(t, 7, weight(map[string]string{v1beta1.CrossplaneWeightAnnotation: "7"}))
	assert.EqualValues(t, 3, weight(map[string]string{v1beta1.WeightAnnotation: "3", v1beta1.CrossplaneWeightAnnotation: "7"}), "Ours should go first.")
	assert.EqualValues(t, 1, weight(map[string]string{v1beta1.WeightAnnotation: "much", v1beta1.CrossplaneWeightAnnotation: "7"}), "We should guess no other weight where ours is wrong.")
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
		"None":  {"We should take an absent mark for false", kind, `{}`, want{}},
		"True":  {"We should take true", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "true", classbind.io/cordoned: "true"}}}`, want{cordoned: true, isDefault: true}},
		"False": {"We should take false", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "false", classbind.io/cordoned: "false"}}}`, want{}},
		"Yes":   {"We should not cordon for what is nearly right, and say so", kind, `{metadata: {annotations: {classbind.io/cordoned: "yes"}}}`, want{err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "yes": ` + detail}},
		"Capital": {
			"We should tell True from true, as the API server's match conditions do", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "True"}}}`,
			want{err: `metadata.annotations[` + defaultAnnotation + `]: Invalid value: "True": ` + detail},
		},
		"Both": {
			"We should tell first of the one that keeps a class in use", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "1", classbind.io/cordoned: ""}}}`,
			want{err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "": ` + detail},
		},
		"OneOfTwo":   {"We should read one where the other is wrong", kind, `{metadata: {annotations: {` + defaultAnnotation + `: "true", classbind.io/cordoned: "no"}}}`, want{isDefault: true, err: `metadata.annotations[classbind.io/cordoned]: Invalid value: "no": ` + detail}},
		"Ours":       {"We should know our own mark", ours, `{metadata: {annotations: {classbind.io/default: "true"}}}`, want{isDefault: true}},
		"Theirs":     {"We should understand that of Crossplane", ours, `{metadata: {annotations: {resourceclass.crossplane.io/is-default-class: "true"}}}`, want{isDefault: true}},
		"OursFalse":  {"We should take either", ours, `{metadata: {annotations: {classbind.io/default: "false", resourceclass.crossplane.io/is-default-class: "true"}}}`, want{isDefault: true}},
		"OnlyTheirs": {"We should read our own mark only where it is the mark", kind, `{metadata: {annotations: {classbind.io/default: "true"}}}`, want{}},
		"Field":      {"We should take a boolean", byPath, `{spec: {default: true}}`, want{isDefault: true}},
		"FieldFalse": {"We should take a boolean", byPath, `{spec: {default: false}}`, want{}},
		"FieldOne":   {"We should not take 1 for true", byPath, `{spec: {default: 1}}`, want{err: "spec.default: Invalid value: 1: " + detail}},
		"FieldMap":   {"We should not take an object for true", byPath, `{spec: {default: {a: b}}}`, want{err: "spec.default: Invalid value: " + detail}},
	} {
		t.Run(name, func(t *testing.T) {
			object := decode(t, tc.class)
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

func TestClassHash(t *testing.T) {
	hash := func(gvk schema.GroupVersionKind, namespace, name string) uint64 {
		k := newKind("rdsinstanceclasses.database.aws.crossplane.io", "")
		k.GroupVersionKind = gvk
		return k.NewClass(&metav1.ObjectMeta{Namespace: namespace, Name: name}, nil).DrawHash
	}
	this := hash(schema.GroupVersionKind{Group: "example.org", Version: "v1alpha1", Kind: "Class"}, "", "gold")
	cases := map[string]struct {
		reason          string
		gvk             schema.GroupVersionKind
		namespace, name string
		same            bool
	}{
		"Version":   {reason: "We should move no claim when a new version is preferred", name: "gold", same: true, gvk: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Class"}},
		"Group":     {reason: "We should tell groups apart", gvk: schema.GroupVersionKind{Group: "example.com", Kind: "Class"}, name: "gold"},
		"Kind":      {reason: "We should tell kinds apart", gvk: schema.GroupVersionKind{Group: "example.org", Kind: "OtherClass"}, name: "gold"},
		"Namespace": {reason: "We should tell namespaces apart", gvk: schema.GroupVersionKind{Group: "example.org", Kind: "Class"}, namespace: "team", name: "gold"},
		"Name":      {reason: "We should tell names apart", gvk: schema.GroupVersionKind{Group: "example.org", Kind: "Class"}, name: "golden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.same, this == hash(tc.gvk, tc.namespace, tc.name), tc.reason)
		})
	}
}

// What a replica holds of one class is bounded, whatever its author writes.
func TestNewClassOfAHostileAuthor(t *testing.T) {
	byPath := NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "as.example.org"},
		Spec:       v1beta1.ClassKindSpec{Default: v1beta1.Source{Path: ".spec.default"}, Weight: v1beta1.Source{Path: ".spec.weight"}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "A"}, false)
	long := strings.Repeat("9", 1<<20)
	object := map[string]any{}
	for i := range 10_000 {
		object[fmt.Sprint("field-", i)] = long[:100]
	}
	labelled := func(n, bytes int) map[string]string {
		set := map[string]string{}
		for i := range n {
			set[fmt.Sprintf("%0*d", bytes/n, i)] = ""
		}
		return set
	}
	cases := map[string]struct {
		reason    string
		labels    map[string]string
		spec      map[string]any
		tooMany   bool
		malformed string
	}{
		"MostLabels":     {reason: "We should hold as many labels as may be", labels: labelled(v1beta1.MaxClassLabels, v1beta1.MaxClassLabelBytes)},
		"TooManyLabels":  {reason: "We should hold none of too many labels", labels: labelled(v1beta1.MaxClassLabels+1, 650), tooMany: true},
		"TooLongLabels":  {reason: "We should hold none of too long labels", labels: labelled(v1beta1.MaxClassLabels, v1beta1.MaxClassLabelBytes+v1beta1.MaxClassLabels), tooMany: true},
		"LongWeight":     {reason: "We should hold the beginning of a weight", spec: map[string]any{"weight": long}, malformed: `spec.weight: Invalid value: "` + long[:v1beta1.MaxShownBytes-3] + `...": must be an integer from 0 to 1000000, in plain digits`},
		"LongOne":        {reason: "We should not read a weight to its end", spec: map[string]any{"weight": strings.Repeat("0", 1<<20) + "1"}, malformed: `spec.weight: Invalid value: "` + strings.Repeat("0", v1beta1.MaxShownBytes-3) + `...": must be an integer from 0 to 1000000, in plain digits`},
		"CutCharacter":   {reason: "We should not cut a character in two", spec: map[string]any{"weight": "x" + strings.Repeat("é", 100)}, malformed: `spec.weight: Invalid value: "x` + strings.Repeat("é", 48) + `...": must be an integer from 0 to 1000000, in plain digits`},
		"ObjectAsWeight": {reason: "We should hold nothing of an object", spec: map[string]any{"weight": object}, malformed: `spec.weight: Invalid value: must be an integer from 0 to 1000000`},
		"ListAsWeight":   {reason: "We should hold nothing of a list", spec: map[string]any{"weight": []any{long}}, malformed: `spec.weight: Invalid value: must be an integer from 0 to 1000000`},
		"LongDefault":    {reason: "We should take nothing but true for the mark", spec: map[string]any{"default": long}},
		"ObjectDefault":  {reason: "We should take nothing but true for the mark", spec: map[string]any{"default": object}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := byPath.NewClass(&metav1.ObjectMeta{Name: "a", Labels: tc.labels}, map[string]any{"spec": tc.spec})
			assert.Equal(t, tc.tooMany, got.TooManyLabels, tc.reason)
			if tc.tooMany {
				assert.Empty(t, got.Labels, tc.reason)
			} else {
				assert.Len(t, got.Labels, len(tc.labels), tc.reason)
			}
			assert.False(t, got.Default, tc.reason)
			if tc.malformed == "" {
				assert.Nil(t, got.WeightErr, tc.reason)
				return
			}
			require.EqualError(t, got.WeightErr, tc.malformed, tc.reason)
			assert.EqualValues(t, 1, got.Weight, tc.reason)
		})
	}
}

func TestClassKind(t *testing.T) {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "rdsinstanceclasses.database.aws.crossplane.io"}, Spec: crossplaneClassKind()}
	k.Spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: "postgresqlinstances.database.crossplane.io"}}
	gvk := schema.GroupVersionKind{Group: "database.aws.crossplane.io", Version: "v1beta1", Kind: "RDSInstanceClass"}

	kind := NewClassKind(k, gvk, true)
	assert.Equal(t, gvk.GroupVersion().WithResource("rdsinstanceclasses"), kind.Resource(), "We should read the preferred version")
	assert.True(t, kind.Namespaced)
	assert.Equal(t, []string{"postgresqlinstances.database.crossplane.io"}, kind.ClaimKinds)
	assert.True(t, kind.MetadataOnly(), "We should need no more than annotations")
	assert.Equal(t, "RDSInstanceClass/gold", (&Class{Kind: kind, Name: "gold"}).String())
	assert.Equal(t, "RDSInstanceClass/team/gold", (&Class{Kind: kind, Namespace: "team", Name: "gold"}).String())

	k.Spec.Weight = v1beta1.Source{Path: ".spec.weight"}
	assert.False(t, NewClassKind(k, gvk, true).MetadataOnly(), "We should need the objects for the weight")
	k.Spec = crossplaneClassKind()
	k.Spec.Default = v1beta1.Source{Path: ".default"}
	assert.False(t, NewClassKind(k, gvk, true).MetadataOnly(), "We should need the objects for the default")

	core := NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}}, schema.GroupVersionKind{Version: "v1", Kind: "Node"}, false)
	require.Equal(t, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, core.Resource(), "We should name a core resource")
}
