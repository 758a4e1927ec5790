package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// BuiltinDefault is a class that the API server itself gives to claims without one, in an admission plugin, before it calls webhooks.
type BuiltinDefault struct {
	// Class is its kind.
	Class schema.GroupVersionKind
	// claims are the resource, and path is the field that gets the name of the class.
	claims, path string
	// marks are annotations of the default. The first is the current one, and the others still count.
	marks []string
}

// builtinDefaults are those of the plugins DefaultStorageClass and DefaultIngressClass. Pods cannot be registered for their PriorityClass.
var builtinDefaults = []*BuiltinDefault{
	{
		Class:  schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
		claims: "persistentvolumeclaims", path: ".spec.storageClassName",
		marks: []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"},
	},
	{
		Class:  schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"},
		claims: "ingresses.networking.k8s.io", path: ".spec.ingressClassName",
		marks: []string{"ingressclass.kubernetes.io/is-default-class"},
	},
}

// maxUnmarked limits how many classes a command names.
const maxUnmarked = 10

// BuiltinDefaultOf returns the default that the API server writes where a ClaimKind has the class reference, nil if it writes none.
func BuiltinDefaultOf(k *v1beta1.ClaimKind) *BuiltinDefault {
	i := slices.IndexFunc(builtinDefaults, func(d *BuiltinDefault) bool {
		return k.Resource() == d.claims && string(k.Spec.Reference.Path) == d.path
	})
	if i < 0 {
		return nil
	}
	return builtinDefaults[i]
}

// Classes returns all that are marked as the default. The API server takes the first: the newest, then by name.
func (d *BuiltinDefault) Classes(ctx context.Context, reader client.Reader) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(d.Class.GroupVersion().WithKind(d.Class.Kind + "List"))
	for {
		if err := reader.List(ctx, list, client.Limit(v1beta1.ListPage), client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			isMark := func(mark string) bool { return list.Items[i].Annotations[mark] == "true" }
			if slices.ContainsFunc(d.marks, isMark) {
				all = append(all, list.Items[i])
			}
		}
		if list.Continue == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// Unmark is the command that takes their marks from default classes.
func (d *BuiltinDefault) Unmark(defaults []metav1.PartialObjectMetadata) string {
	words := []string{"kubectl annotate " + strings.ToLower(d.Class.Kind)}
	for _, class := range defaults[:min(len(defaults), maxUnmarked)] {
		words = append(words, class.Name)
	}
	for i, mark := range d.marks {
		has := func(class metav1.PartialObjectMetadata) bool { _, has := class.Annotations[mark]; return has }
		if i == 0 || slices.ContainsFunc(defaults, has) {
			words = append(words, mark+"-")
		}
	}
	return strings.Join(words, " ")
}
