package status

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/brief"
)

// What the API server itself does to PersistentVolumeClaims, in the admission plugin
// DefaultStorageClass, before it asks webhooks.
const (
	volumeClaims            = "persistentvolumeclaims"
	storageClassPath        = ".spec.storageClassName"
	defaultStorageClassMark = "storageclass.kubernetes.io/is-default-class"
)

// describeStorage says of PersistentVolumeClaims whether their selectors are heeded. It
// is false for other claims. Nothing tells of a change, so it is to be asked again.
func (s *Writer) describeStorage(ctx context.Context, k *v1alpha1.ClaimKind, status *v1alpha1.ClaimKindStatus) bool {
	if k.Name != volumeClaims || k.Spec.Paths.ClassRef != storageClassPath {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSelectorsHeeded)
		return false
	}
	name, err := s.defaultStorageClass(ctx)
	setCondition(&status.Conditions, selectorsHeeded(name, err), k.Generation)
	return true
}

func selectorsHeeded(defaultClass string, err error) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionSelectorsHeeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoDefaultStorageClass,
	}
	switch {
	case err != nil:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNotSynced
		if apierrors.IsForbidden(err) {
			c.Reason = v1alpha1.ReasonNotPermitted
		}
		c.Message = fmt.Sprintf("cannot tell whether there is a default StorageClass: %v", err)
	case defaultClass == "":
		c.Message = "no StorageClass is the default, so claims without one are bound"
	default:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonDefaultStorageClass
		c.Message = fmt.Sprintf("the API server gives every claim without a StorageClass the default one, %q, before classbind is asked, "+
			"so its class selector does nothing: kubectl annotate storageclass %s %s-", defaultClass, defaultClass, defaultStorageClassMark)
	}
	return c
}

// defaultStorageClass is the name of one, empty if there is none.
func (s *Writer) defaultStorageClass(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, registry.LookUpTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClassList"})
	for {
		err := s.Live.List(ctx, list, client.Limit(v1alpha1.LiveReadPage), client.Continue(list.Continue))
		if err != nil {
			return "", brief.Error(err)
		}
		for i := range list.Items {
			if list.Items[i].Annotations[defaultStorageClassMark] == "true" {
				return list.Items[i].Name, nil
			}
		}
		if list.Continue == "" {
			return "", nil
		}
	}
}
