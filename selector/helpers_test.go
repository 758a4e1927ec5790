package selector

import (
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

const (
	maxWeight = 1_000_000

	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// newKind is a cluster-scoped ClassKind with the CRD's defaults.
func newKind(name, kind string, claimKinds ...string) *inventory.ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crossplaneClassKind()}
	for _, name := range claimKinds {
		k.Spec.ClaimKinds = append(k.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: name})
	}
	return inventory.NewClassKind(k, schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind), false)
}

// crossplaneClassKind is the CRD's defaults.
func crossplaneClassKind() v1beta1.ClassKindSpec {
	return v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: defaultAnnotation},
		Weight:  v1beta1.Source{Annotation: weightAnnotation},
	}
}

// newView makes a view with an index, as an inventory does.
func newView(kind *ClaimKind, classes []*inventory.Classes) *View {
	v := NewView(kind, classes)
	v.MakeIndex()
	return v
}

// ownDefaults is a view of this many namespaces. Each has a default class for its own claims.
func ownDefaults(namespaces int) *View {
	kind := newKind("as.example.org", "Class", postgres().Name)
	kind.Namespaced = true
	classes := make([]*inventory.Class, namespaces)
	for i := range classes {
		classes[i] = kind.NewClass(&metav1.ObjectMeta{Namespace: fmt.Sprint("team-", i), Name: "gold", Annotations: map[string]string{defaultAnnotation: "true"}}, nil)
	}
	return newView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes)})
}

var (
	someKeys   = []string{"a", "b", "c", "d"}
	someValues = []string{"", "1", "2", "3", "x"}
)

func randomLabels(random *rand.Rand) labels.Set {
	set := labels.Set{}
	for _, key := range someKeys {
		if random.IntN(3) > 0 {
			set[key] = someValues[random.IntN(len(someValues))]
		}
	}
	return set
}

// randomSelector has up to three requirements, of any operator and perhaps of
// one key, whose values may repeat: an author may write such a list.
