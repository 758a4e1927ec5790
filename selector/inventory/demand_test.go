package inventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestClassOf(t *testing.T) {
	golds, nears := newKind("golds.example.org", "Gold"), newKind("nears.example.org", "Near")
	nears.Namespaced = true
	all := []*Classes{
		NewClasses(golds, []*Class{golds.NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)}),
		NewClasses(nears, []*Class{nears.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "near"}, nil)}),
	}
	type object = map[string]any
	for name, tc := range map[string]struct {
		reason    string
		As        v1beta1.ReferenceForm
		names     []v1beta1.NamespaceName
		reference any
		want      string
		found     bool
	}{
		"NoReference":           {"We should miss nothing where nothing is named.", v1beta1.Name, nil, nil, "", false},
		"EmptyName":             {"We should miss nothing where no class is meant.", v1beta1.Name, nil, "", "", false},
		"There":                 {"We should find a class by its name.", v1beta1.Name, nil, "gold", "", true},
		"Gone":                  {"We should miss a class that is not there.", v1beta1.LocalObjectReference, nil, object{"name": "silver"}, "golds.example.org/silver", false},
		"ByKind":                {"We should miss a class that is there in another kind alone.", v1beta1.TypedLocalObjectReference, nil, object{"apiGroup": "example.org", "kind": "Near", "name": "gold"}, "nears.example.org/team/gold", false},
		"OwnNamespace":          {"We should look in the claim's namespace for a reference without one.", v1beta1.TypedLocalObjectReference, nil, object{"apiGroup": "example.org", "kind": "Near", "name": "near"}, "", true},
		"NamespaceOfTheKind":    {"We should look where the controller of the claim looks.", v1beta1.TypedLocalObjectReference, []v1beta1.NamespaceName{"other"}, object{"apiGroup": "example.org", "kind": "Near", "name": "near"}, "nears.example.org/other/near", false},
		"Namespace":             {"We should look in the namespace of the reference.", v1beta1.ObjectReference, nil, object{"apiVersion": "example.org/v1", "kind": "Near", "namespace": "other", "name": "near"}, "nears.example.org/other/near", false},
		"ClusterScoped":         {"We should find a class without a namespace in whatever version.", v1beta1.ObjectReference, nil, object{"apiVersion": "example.org/v1beta1", "kind": "Gold", "name": "gold"}, "", true},
		"ClusterScopedAndGone":  {"We should name a class without a namespace.", v1beta1.ObjectReference, nil, object{"apiVersion": "example.org/v1", "kind": "Gold", "name": "silver"}, "golds.example.org/silver", false},
		"KindAlone":             {"We should find a class by its Kind and name.", v1beta1.KindReference, nil, object{"kind": "Near", "name": "near"}, "", true},
		"OtherKindAlone":        {"We should miss a class that is there in another Kind alone.", v1beta1.KindReference, nil, object{"kind": "Gold", "name": "near"}, "golds.example.org/near", false},
		"NoNamespaceStored":     {"We should look in the claim's namespace where the reference has none.", v1beta1.ObjectReference, nil, object{"apiVersion": "example.org/v1", "kind": "Near", "name": "near"}, "", true},
		"KindThatIsNotKnown":    {"We should say nothing of a kind that we do not know.", v1beta1.ObjectReference, nil, object{"apiVersion": "example.org/v1", "kind": "Iron", "name": "gold"}, "", false},
		"ReferenceOfOtherShape": {"We should say nothing of a reference that names no class.", v1beta1.ObjectReference, nil, "gold", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := claimKind()
			k.Spec.Reference.Form = tc.As
			if tc.names != nil {
				k.Spec.Classes.Namespaces = v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: tc.names}
			}
			k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.volumeName"}}
			claim := map[string]any{"spec": map[string]any{"classRef": tc.reference}}
			class, missing := newDemand(k).ClassOf(all, "team", claim)
			assert.Equal(t, tc.want, missing, tc.reason)
			assert.Equal(t, tc.found, class != nil, tc.reason)
			claim["spec"].(map[string]any)["volumeName"] = "mine"
			_, missing = newDemand(k).ClassOf(all, "team", claim)
			assert.Empty(t, missing, "We should miss no class of a claim that has what it needs.")
		})
	}
}
