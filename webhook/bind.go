package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// Live reads the classes that a claim asks for from the API server itself, if
	// the snapshot has none: the class may be new.
	Live func(context.Context, *selector.View, selector.Claim) (*selector.View, error)
	// Registered asks the API server itself about a ClaimKind that the snapshot
	// does not have.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Fresh returns a random number.
	Fresh func() uint64
	// Now returns the time from which a claim counts as in flight.
	Now func() time.Time
	// Metrics count the answers; nil counts nothing.
	Metrics *Metrics
}

// Review binds a claim that is being created. In this order, it leaves alone any other
// operation; fails before all classes are known; leaves alone a claim kind that is not
// registered any more, and waits for one that this replica has not heard of yet; fails
// for a registration at fault; leaves alone a claim that is being deleted or has its
// class; refuses an invalid one; and binds the claim, or does what its kind says if no
// class matches.
func (b *Binder) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	var (
		view     *selector.View
		decision selector.Decision
	)
	dryRun, metrics := isDryRun(request), b.Metrics
	if dryRun {
		metrics = nil
	}
	defer func() { metrics.reviewed(view, decision, response, err) }()

	if request.Operation != admissionv1.Create || request.SubResource != "" {
		return untouched("NotACreation"), nil
	}
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	snapshot := b.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	if view = snapshot[resource.String()]; view == nil {
		if view, err = b.await(ctx, resource.String()); err != nil {
			return nil, err
		}
		if view == nil {
			return untouched("NotRegistered"), nil
		}
	}
	if view.Fault != nil {
		return nil, view.Fault
	}

	if len(request.Object.Raw) == 0 {
		return nil, malformed("request.object: must be set")
	}
	object, err := view.Kind.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	claim := view.Kind.Read(request.Namespace, request.Name, object)
	if claim.LeftAlone != "" {
		return untouched(claim.LeftAlone), nil
	}
	if len(claim.Problems) > 0 {
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return denied(apierrors.NewInvalid(kind, request.Name, claim.Problems), "MalformedClaim"), nil
	}

	if decision, err = b.choose(ctx, view, claim.Claim, dryRun, metrics); err != nil {
		return nil, err
	}
	logDecision(ctx, request, decision)
	response = answer(request, claim.Parents, decision)
	response.AuditAnnotations = auditAnnotations(decision)
	return response, nil
}

// choose a class among those that are known or, if none matches, among those that the
// API server has now.
func (b *Binder) choose(
	ctx context.Context, view *selector.View, claim selector.Claim, dryRun bool, metrics *Metrics,
) (selector.Decision, error) {
	begin := time.Now()
	decision := b.chooseFrom(view, claim, dryRun)
	metrics.chose(view.Kind, time.Since(begin))
	if decision.Class != nil {
		return decision, nil
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	begin = time.Now()
	live, err := b.Live(ctx, view, claim)
	took := time.Since(begin)
	if err != nil {
		metrics.read(view.Kind, took, readFailed)
		return selector.Decision{}, err
	}
	if decision = b.chooseFrom(live, claim, dryRun); decision.Class != nil {
		metrics.read(view.Kind, took, readFound)
		return decision, nil
	}
	metrics.read(view.Kind, took, readNone)
	decision.View = view // What was read is what matches; the message says among how many.
	return decision, nil
}

// chooseFrom a view. A dry run has no effect on later decisions.
func (b *Binder) chooseFrom(view *selector.View, claim selector.Claim, dryRun bool) selector.Decision {
	if dryRun {
		return view.Choose(claim, b.Fresh())
	}
	return view.Decide(claim, b.Fresh(), b.Now())
}

// await waits for the view of a claim kind that was just registered: the leader, which
// added the webhook, may have heard of it before this replica. It is nil for a kind that
// is not registered.
func (b *Binder) await(ctx context.Context, claimKind string) (view *selector.View, err error) {
	ctx, cancel := withDeadline(ctx)
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
