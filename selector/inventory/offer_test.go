package inventory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
)

// claimKind is a ClaimKind with little more than the CRD's defaults.
func claimKind() *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
		Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
	}}
}

func newDemand(k *v1beta1.ClaimKind) *Demand {
	d := NewDemand(k)
	return &d
}

func newOffer(k *v1beta1.ClaimKind, classes ...*Classes) *Offer {
	o, _ := NewOffer(newDemand(k), slices.Clone(classes), nil, false)
	return &o
}

func newIndexed(k *v1beta1.ClaimKind, classes ...*Classes) *Offer {
	o := newOffer(k, classes...)
	o.MakeIndex()
	return o
}

const (
	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// newKind is a cluster-scoped ClassKind with the CRD's defaults.
func newKind(name, kind string) *ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crossplaneClassKind()}
	return NewClassKind(k, schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind), false)
}

func crossplaneClassKind() v1beta1.ClassKindSpec {
	return v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: defaultAnnotation},
		Weight:  v1beta1.Source{Annotation: weightAnnotation},
	}
}

func names(classes []*Class) (all []string) {
	for _, c := range classes {
		all = append(all, c.String())
	}
	slices.Sort(all)
	return all
}

func decode(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &object), text)
	return object
}
