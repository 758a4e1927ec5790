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
	// Snapshot is what is known now; nil, nothing yet.
	Snapshot func() selector.Snapshot
	// Live reads the classes that a claim asks for from the API server itself,
	// for a claim for which the snapshot has none: the class may have been
	// created a moment ago.
	Live func(context.Context, *selector.View, selector.Claim) (*selector.View, error)
	// Registered asks the API server itself whether there is a ClaimKind, where
	// the snapshot has none.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Fresh is a random number.
	Fresh func() uint64
	// Now is the time, from when on a claim is in flight.
	Now func() time.Time
	// Metrics count the answers; nil, nothing does.
	Metrics *Metrics
}

// Review binds the claim whose creation is asked for. In this order, it leaves
// alone whatever is not a creation; cannot answer before all classes are known;
// leaves alone a claim kind that is registered no more, and waits for one that
// is about to be heard of; cannot answer for one whose registration is at fault;
// leaves alone a claim that is being deleted or settled; refuses a malformed one;
// and binds the claim, or answers as its kind does where there is no class.
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
	view = snapshot[resource.String()]
	if view == nil {
		ctx, cancel := withDeadline(ctx)
		defer cancel()
		registered, err := b.Registered(ctx, resource.String())
		if err != nil {
			return nil, err
		}
		if !registered {
			return untouched("NotRegistered"), nil
		}
		if view = b.await(ctx, resource.String()); view == nil {
			return nil, errNotHeardOf(resource.String())
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

// choose among the classes that are known, and where none matches, among those
// that the API server has now.
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

// chooseFrom what is in a view. A dry run takes no turn: it gets what is next.
func (b *Binder) chooseFrom(view *selector.View, claim selector.Claim, dryRun bool) selector.Decision {
	if dryRun {
		return view.Choose(claim, b.Fresh())
	}
	return view.Decide(claim, b.Fresh(), b.Now())
}

// await the view of a claim kind that was registered a moment ago: another
// replica, the leader, has heard of it before us.
func (b *Binder) await(ctx context.Context, claimKind string) (view *selector.View) {
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, registrationWait, true, func(context.Context) (bool, error) {
		view = b.Snapshot()[claimKind]
		return view != nil, nil
	})
	return view
}
