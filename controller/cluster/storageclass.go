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

// What the API server itself does to PersistentVolumeClaims, in the admission plugin DefaultStorageClass, before it asks webhooks.
const (
	volumeClaims     = "persistentvolumeclaims"
	storageClassPath = ".spec.storageClassName"

	defaultStorageClassMark = "storageclass.kubernetes.io/is-default-class"
	// betaStorageClassMark is older, and still counts.
	betaStorageClassMark = "storageclass.beta.kubernetes.io/is-default-class"
)

// maxUnmarked limits how many StorageClasses a command names.
const maxUnmarked = 10

// GetsStorageClass reports whether the API server writes a default StorageClass where a ClaimKind has the class reference.
func GetsStorageClass(k *v1beta1.ClaimKind) bool {
	return k.Resource() == volumeClaims && k.Spec.Reference.Path == storageClassPath
}

// DefaultStorageClasses returns all that are marked as the default. The API server takes the first: the newest, then by name.
func DefaultStorageClasses(ctx context.Context, reader client.Reader) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClassList"})
	for {
		if err := reader.List(ctx, list, client.Limit(v1beta1.ListPage), client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if has := list.Items[i].Annotations; has[defaultStorageClassMark] == "true" || has[betaStorageClassMark] == "true" {
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

// UnmarkStorageClasses is the command that takes their marks from default StorageClasses.
func UnmarkStorageClasses(defaults []metav1.PartialObjectMetadata) string {
	words := []string{"kubectl annotate storageclass"}
	marks := []string{defaultStorageClassMark + "-"}
	for _, class := range defaults[:min(len(defaults), maxUnmarked)] {
		words = append(words, class.Name)
		if _, beta := class.Annotations[betaStorageClassMark]; beta {
			marks = []string{defaultStorageClassMark + "-", betaStorageClassMark + "-"}
		}
	}
	return strings.Join(append(words, marks...), " ")
}
