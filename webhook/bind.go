package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/selector"
)

// registrationWait is how long a claim waits for this replica to hear of its kind.
const registrationWait = time.Second

var errNotListed = errors.New("not all registered classes have been listed yet; try again in a moment")

func errNotHeardOf(claimKind string) error {
	return fmt.Errorf("claim kind %q is not registered on this replica yet; try again in a moment", claimKind)
}

// Binder gives claims their class.
type Binder struct {
	// Snapshot returns what is known now; nil means nothing yet.
	Snapshot func() selector.Snapshot
	// Registered asks the API server itself about a ClaimKind that the snapshot
	// does not have.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Decider decides on the claims.
	Decider *selector.Decider
	// Metrics count the answers; nil counts nothing.
	Metrics *Metrics
}

// Review binds a claim that is being created. It leaves alone any other operation, and a
// claim kind that is not registered any more; fails before all classes are known; waits
// for a kind that this replica has not heard of yet; and leaves the rest to the Decider.
func (b *Binder) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	var (
		view     *selector.View
		decision selector.Decision
	)
	mode, metrics := selector.Admit, b.Metrics
	if isDryRun(request) {
		mode, metrics = selector.DryRun, nil
	}
	defer func() { metrics.reviewed(view, &decision, response, err) }()

	if request.Operation != admissionv1.Create || request.SubResource != "" {
		return untouched("NotACreation"), nil
	}
	if view, err = b.view(ctx, request); err != nil {
		return nil, err
	}
	if view == nil {
		return untouched("NotRegistered"), nil
	}
	if len(request.Object.Raw) == 0 {
		return nil, malformed("request.object: must be set")
	}
	object, err := view.Kind.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	claim := view.Kind.Read(request.Namespace, request.Name, object)
	if decision, err = b.Decider.Decide(ctx, view, claim, mode); err != nil {
		return nil, err
	}
	return answer(ctx, request, &decision), nil
}

// view of the claims' kind, nil if it is not registered.
func (b *Binder) view(ctx context.Context, request *admissionv1.AdmissionRequest) (*selector.View, error) {
	snapshot := b.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	if view := snapshot[resource.String()]; view != nil {
		return view, nil
	}
	return b.await(ctx, resource.String())
}

// await waits for the view of a claim kind that was just registered: the leader, which
// added the webhook, may have heard of it before this replica. It is nil for a kind that
// is not registered.
func (b *Binder) await(ctx context.Context, claimKind string) (view *selector.View, err error) {
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	if registered, err := b.Registered(ctx, claimKind); err != nil || !registered {
		return nil, err
	}
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, registrationWait, true, func(context.Context) (bool, error) {
		view = b.Snapshot()[claimKind]
		return view != nil, nil
	})
	if view == nil {
		return nil, errNotHeardOf(claimKind)
	}
	return view, nil
}
