package controllertest

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// NewClaimKind returns a claim kind with a path to skip by.
func NewClaimKind(name string) *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.ClaimKindSpec{
			Claims:    v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
			Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}},
			Admission: v1beta1.Admission{FailurePolicy: v1beta1.Fail},
		},
	}
}

// NewClassKind returns a class kind of example.org, with annotations for default and weight.
func NewClassKind(name, kind string) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: []v1beta1.ClaimKindLink{{Name: "claims.example.org"}},
			Default:    v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
		},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}, false)
}

// NewClasses returns classes without labels by NAME or NAMESPACE/NAME, each with annotations given as key, value.
func NewClasses(kind *inventory.ClassKind, classes map[string][]string) *inventory.Classes {
	var all []*inventory.Class
	for name, annotations := range classes {
		m := &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
		if namespace, name, namespaced := strings.Cut(name, "/"); namespaced {
			m.Namespace, m.Name = namespace, name
		}
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		all = append(all, kind.NewClass(m, nil))
	}
	return inventory.NewClasses(kind, all)
}

// Links names ClaimKinds as a ClassKind does.
func Links(claimKinds ...string) (links []v1beta1.ClaimKindLink) {
	for _, name := range claimKinds {
		links = append(links, v1beta1.ClaimKindLink{Name: name})
	}
	return links
}
