package webhook

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/webhook/onedefault"
)

// Guard keeps at most one default class per seat.
type Guard struct {
	// Snapshot is what is known now; nil, nothing yet.
	Snapshot func() selector.Snapshot
	// ClassKind as it is registered now; nil, it is not.
	ClassKind func(ctx context.Context, name string) (*selector.ClassKind, error)
	// Registered asks the API server itself whether there is a ClaimKind, where
	// the snapshot has none.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Class as it is stored now; nil, it is not.
	Class func(ctx context.Context, kind *selector.ClassKind, namespace, name string) (metav1.Object, *selector.Class, error)
	// Namespace says whether there is one now.
	Namespace func(ctx context.Context, name string) (bool, error)
	// Leases of classbind's own namespace.
	Leases coordinationclient.LeaseInterface
	// Sightings of this replica.
	Sightings *onedefault.Sightings
	// Window in which the API server may still store what was admitted.
	Window time.Duration
	// Metrics count the answers; nil, nothing does.
	Metrics *Metrics

	turns guardTurns
}

// Review validates the class that is to be created or updated. In this order,
// it leaves alone whatever else is asked for, a class kind that is registered no
// more, and a class that is being deleted; refuses a weight that cannot be read,
// unless the class has it already; leaves alone a class that does not become
// default; cannot answer before all classes are known; has the others wait for a
// turn; leaves alone a class that takes no seat, because no claim is offered it;
// answers the creation of a class that is there already or has no namespace, and the
// update of one that has changed, as the API server would; and admits the class as a default if its
// seats have no other, and none in the making.
//
// Anybody who reaches the server can send any review. What one says is believed
// only in what it does to the answer, which goes to its sender.
func (g *Guard) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	var kind *selector.ClassKind
	defer func() {
		if !isDryRun(request) {
			g.Metrics.judged(kind, response, err)
		}
	}()

	update := request.Operation == admissionv1.Update
	if request.Operation != admissionv1.Create && !update || request.SubResource != "" {
		return untouched("NotACreationOrUpdate"), nil
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	kind, err = g.ClassKind(ctx, schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}.String())
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return untouched("NotRegistered"), nil
	}
	class, before, ask, err := decodeClasses(kind, request)
	if err != nil {
		return nil, err
	}
	switch {
	case class.Terminating:
		return untouched("BeingDeleted"), nil
	case class.WeightErr != nil && !sameError(class.WeightErr, before.WeightErr):
		return denied(apierrors.NewInvalid(kind.GroupVersionKind.GroupKind(), class.Name, field.ErrorList{class.WeightErr}), "MalformedWeight"), nil
	case !class.Default:
		return untouched("NotDefault"), nil
	case before.Default:
		return untouched("DefaultAlready"), nil
	}
	snapshot := g.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	turn, err := g.turns.take(ctx, class)
	if err != nil {
		return nil, err
	}
	defer turn.done()
	if err := g.allKnown(ctx, snapshot, kind); err != nil {
		return nil, err
	}
	ask.Seats = seatsOf(snapshot, class)
	if len(ask.Seats) == 0 {
		return untouched("NoClaimKind"), nil
	}
	// Else whoever makes up namespaces has a Lease made for each, which nobody deletes.
	if !update && class.Namespace != "" {
		switch there, err := g.Namespace(ctx, class.Namespace); {
		case err != nil:
			return nil, err
		case !there:
			return denied(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, class.Namespace), "NoNamespace"), nil
		}
	}
	ask.Known, ask.DryRun = knownDefaults(snapshot, ask.Seats), isDryRun(request)
	refusal, err := g.protocol(snapshot, turn).Admit(ctx, ask)
	if err != nil {
		return nil, err
	}
	response = &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "OneDefault"}}
	if refusal != nil {
		if response, err = g.refused(ctx, request, class, refusal); err != nil {
			return nil, err
		}
	}
	logr.FromContextOrDiscard(ctx).Info("Decided on a default class",
		"class", class.String(), "seats", ask.Seats, "requestUID", fmt.Sprintf("%.64s", request.UID), "operation", string(request.Operation),
		"allowed", response.Allowed, "reason", response.AuditAnnotations["reason"], "inTheWay", response.AuditAnnotations["inTheWay"],
		"dryRun", ask.DryRun)
	return response, nil
}

func (g *Guard) protocol(snapshot selector.Snapshot, turn *turn) *onedefault.Protocol {
	return &onedefault.Protocol{
		Store: &onedefault.Cluster{
			Leases: g.Leases, Sightings: g.Sightings, Window: g.Window,
			Live: func(ctx context.Context, c onedefault.Class) (onedefault.Live, error) {
				return g.live(ctx, snapshot, c)
			},
		},
		NewID: rand.Text, Hurry: turn.wanted,
	}
}

// Stored says that a class was seen stored with its uid, marked default.
func (g *Guard) Stored(c *selector.Class, uid types.UID) {
	g.Sightings.Stored(onedefault.Holder{Class: named(c), UID: uid})
}

func sameError(a, b *field.Error) bool { return b != nil && a.Error() == b.Error() }

func named(c *selector.Class) onedefault.Class {
	return onedefault.Class{Kind: c.Kind.Name, Namespace: c.Namespace, Name: c.Name}
}

// allKnown says that the snapshot has every claim kind that the class kind serves
// and that is registered, with all of its classes.
func (g *Guard) allKnown(ctx context.Context, snapshot selector.Snapshot, kind *selector.ClassKind) error {
	for _, name := range kind.ClaimKinds {
		view := snapshot[name]
		if view == nil {
			registered, err := g.Registered(ctx, name)
			if err != nil {
				return err
			}
			if registered {
				return errNotHeardOf(name)
			}
			continue
		}
		if view.Missing != nil {
			return fmt.Errorf("cannot tell whether %q has a default class: %w", name, view.Missing)
		}
	}
	return nil
}

// seatsOf a default class, in an order that is the same for all classes.
func seatsOf(snapshot selector.Snapshot, class *selector.Class) []selector.Seat {
	var seats []selector.Seat
	for _, name := range slices.Compact(slices.Sorted(slices.Values(class.Kind.ClaimKinds))) {
		if view := snapshot[name]; view != nil {
			if seat, offered := view.Kind.SeatOf(class); offered {
				seats = append(seats, seat)
			}
		}
	}
	return seats
}

// knownDefaults may have been made before anybody guarded them.
func knownDefaults(snapshot selector.Snapshot, seats []selector.Seat) map[selector.Seat][]onedefault.Class {
	known := map[selector.Seat][]onedefault.Class{}
	for _, seat := range seats {
		for _, c := range snapshot[seat.ClaimKind].DefaultsOf(seat) {
			known[seat] = append(known[seat], named(c))
		}
	}
	return known
}

// live is a class as it counts now.
func (g *Guard) live(ctx context.Context, snapshot selector.Snapshot, c onedefault.Class) (onedefault.Live, error) {
	kind, err := g.ClassKind(ctx, c.Kind)
	if err != nil || kind == nil {
		return onedefault.Live{}, err
	}
	object, class, err := g.Class(ctx, kind, c.Namespace, c.Name)
	if err != nil || object == nil {
		return onedefault.Live{}, err
	}
	live := onedefault.Live{UID: object.GetUID(), Version: object.GetResourceVersion()}
	if class.Default && !class.Terminating {
		live.Seats = seatsOf(snapshot, class)
	}
	return live, nil
}
