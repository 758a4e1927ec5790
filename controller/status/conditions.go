package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/truncate"
)

func setCondition(conditions *[]metav1.Condition, c metav1.Condition, generation int64) {
	const longest = 32768 // of a condition's message, in the schema of metav1.Condition
	c.Message = truncate.String(c.Message, longest)
	c.ObservedGeneration = generation
	meta.SetStatusCondition(conditions, c)
	// A column shows the first condition that is not met: this order puts those that say why
	// claims are not watched before all others.
	slices.SortFunc(*conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
}

// update writes a status with the resourceVersion that was read, so that a leader that
// lost its Lease unknowingly overwrites nothing. A conflict is not an error: the cache
// is about to have the next version.
func (s *Writer) update(ctx context.Context, object client.Object, result ctrl.Result) (ctrl.Result, error) {
	err := s.Client.Status().Update(ctx, object, client.FieldOwner(v1alpha1.FieldManager))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: statusDelay}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("cannot write the status of %q: %w", object.GetName(), truncate.Error(err))
	}
	return result, nil
}
