package status

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/truncate"
)

// describeStorage says of PersistentVolumeClaims whether their selectors are heeded. It
// is false for other claims. Nothing tells of a change, so it is to be asked again.
func (s *Writer) describeStorage(ctx context.Context, k *v1alpha1.ClaimKind, status *v1alpha1.ClaimKindStatus) bool {
	if !cluster.GetsStorageClass(k) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSelectorsHeeded)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, registry.LookUpTimeout)
	defer cancel()
	defaults, err := cluster.DefaultStorageClasses(ctx, s.Live)
	setCondition(&status.Conditions, selectorsHeeded(defaults, truncate.Error(err)), k.Generation)
	return true
}

func selectorsHeeded(defaults []metav1.PartialObjectMetadata, err error) metav1.Condition {
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
	case len(defaults) == 0:
		c.Message = "no StorageClass is the default, so claims without one are bound"
	default:
		of := ""
		if len(defaults) > 1 {
			of = fmt.Sprintf(" the newest of %d,", len(defaults))
		}
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonDefaultStorageClass
		c.Message = fmt.Sprintf("the API server gives every claim without a StorageClass the default one, %q,%s before classbind is "+
			"asked, so its class selector does nothing: %s", defaults[0].Name, of, cluster.UnmarkStorageClasses(defaults))
	}
	return c
}
