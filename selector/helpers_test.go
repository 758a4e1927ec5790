package selector

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// newKind is a cluster-scoped ClassKind with the CRD's defaults.
func newKind(name, kind string, claimKinds ...string) *ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crossplaneClassKind()}
	for _, name := range claimKinds {
		k.Spec.ClaimKinds = append(k.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: name})
	}
	return NewClassKind(k, schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind), false)
}

// crossplaneClassKind is the CRD's defaults.
func crossplaneClassKind() v1beta1.ClassKindSpec {
	return v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: defaultAnnotation},
		Weight:  v1beta1.Source{Annotation: weightAnnotation},
	}
}

// newView makes a view with an index, as an inventory does.
func newView(kind *ClaimKind, classes []*Classes) *View {
	v := NewView(kind, classes)
	v.MakeIndex()
	return v
}

// ownDefaults is a view of this many namespaces. Each has a default class for its own
// claims.
func ownDefaults(namespaces int) *View {
	kind := newKind("as.example.org", "Class", postgres().Name)
	kind.Namespaced = true
	classes := make([]*Class, namespaces)
	for i := range classes {
		classes[i] = kind.NewClass(&metav1.ObjectMeta{Namespace: fmt.Sprint("team-", i), Name: "gold", Annotations: map[string]string{defaultAnnotation: "true"}}, nil)
	}
	return newView(NewClaimKind(postgres()), []*Classes{NewClasses(kind, classes)})
}
