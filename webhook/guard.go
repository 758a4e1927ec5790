package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
	"github.com/classbind/classbind/webhook/onedefault"
)

// Guard keeps at most one default class per seat.
type Guard struct {
	// Snapshot returns what is known now; nil means nothing yet.
	Snapshot func() selector.Snapshot
	// ClassKind returns a class kind as it is registered now; nil if it is not.
	ClassKind func(ctx context.Context, name string) (*inventory.ClassKind, error)
	// ClaimKind asks the API server itself for a ClaimKind that the snapshot does not have, nil if there is none.
	ClaimKind func(ctx context.Context, name string) (*v1beta1.ClaimKind, error)
	// Class reads a class as it is stored now; nil if there is none.
	Class func(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error)
	// Namespace reports whether a namespace exists now.
	Namespace func(ctx context.Context, name string) (bool, error)
	// Leases of classbind's own namespace.
	Leases coordinationclient.LeaseInterface
	// Sightings of this replica.
	Sightings *onedefault.Sightings
	// Window is how long the API server may take to store what was admitted.
	Window time.Duration
	// Metrics count the answers; nil counts nothing.
	Metrics *Metrics

	once    sync.Once
	limiter *fair.Limiter // once
}

// Review validates a class before it is created or updated. In this order, it leaves alone any other operation, a class kind that is not
// registered any longer, and a class that is being deleted; refuses a malformed weight, unless the class has it already, or it is of an
// expression, which may look at what is not there yet, such as the status; warns of that, and of a mark that is neither true nor false;
// leaves alone a class that is not default, or was before and looks the same to expressions; fails before all classes are known; waits for
// a turn; refuses a class that becomes default if its seat is unknown; leaves alone a class that takes no seat, because no claim is
// offered it, or none beside those that it has; answers as the API server would if the namespace is missing, if the class to create exists,
// or if the class to update has changed; and admits the class if the seats that it takes have no other default, and none in flight.
//
// Anybody who reaches the server can send any review. Its content is trusted only for the answer, which goes to its sender.
func (g *Guard) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	var kind *inventory.ClassKind
	defer func() {
		if !isDryRun(request) {
			g.Metrics.judged(kind, response, err)
		}
	}()

	if !isWrite(request) {
		return untouched("NotACreationOrUpdate"), nil
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	kind, err = g.ClassKind(ctx, resourceOf(request).String())
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
	defer func() {
		if err != nil || !response.Allowed {
			return
		}
		if class.MarkErr != nil && !isOld(class.MarkErr, before.MarkErr) {
			response.Warnings = append(response.Warnings, class.MarkErr.Error())
		}
		if class.WeightErr != nil && kind.WeightByExpression() && !isOld(class.WeightErr, before.WeightErr) {
			response.Warnings = append(response.Warnings, class.WeightErr.Error())
		}
		warnUnknown(response, request, func(key string) bool { return kind.ReadsAnnotation(key) || g.Snapshot().ReadsAnnotation(key) })
	}()
	switch {
	case class.Terminating:
		return untouched("BeingDeleted"), nil
	case class.WeightErr != nil && !kind.WeightByExpression() && !isOld(class.WeightErr, before.WeightErr):
		invalid := apierrors.NewInvalid(kind.GroupVersionKind.GroupKind(), class.Name, field.ErrorList{class.WeightErr})
		return denied(invalid, "MalformedWeight"), nil
	case !class.Default:
		return untouched("NotDefault"), nil
	case before.Default && class.Fields.Same(before.Fields) && isLinked(g.Snapshot(), kind):
		return untouched("DefaultAlready"), nil
	}
	return g.oneDefault(ctx, request, class, before, ask)
}

// oneDefault admits a class that is to become default, unless another stands in the way.
func (g *Guard) oneDefault(
	ctx context.Context, request *admissionv1.AdmissionRequest, class, before *inventory.Class, ask *onedefault.Request,
) (*admissionv1.AdmissionResponse, error) {
	snapshot := g.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	g.once.Do(func() { g.limiter = fair.NewLimiter(v1beta1.GuardReviews) })
	key := class.Kind.Name + "/" + class.Namespace
	done, err := g.limiter.Take(ctx, key)
	if err != nil {
		return nil, errTooManyDefaults
	}
	defer done()
	if err := g.allKnown(ctx, snapshot, class.Kind); err != nil {
		return nil, err
	}
	left, err := takes(snapshot, class, before, ask)
	if left != nil || err != nil {
		return left, err
	}
	// Otherwise every made-up namespace would leave a Lease for some minutes.
	if request.Operation == admissionv1.Create && class.Namespace != "" {
		switch there, err := g.Namespace(ctx, class.Namespace); {
		case err != nil:
			return nil, err
		case !there:
			return denied(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, class.Namespace), "NoNamespace"), nil
		}
	}
	ask.Known, ask.DryRun = knownDefaults(snapshot, ask.Seats), isDryRun(request)
	cluster := g.cluster(snapshot)
	cluster.Contended = func() bool { return g.limiter.Wanted(key) }
	refusal, err := cluster.Admit(ctx, ask)
	if err != nil {
		return nil, err
	}
	response := &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "OneDefault"}}
	if refusal != nil {
		if response, err = g.refused(ctx, request, class, before, refusal); err != nil {
			return nil, err
		}
	}
	logOf(ctx).Info("Decided on a default class",
		"class", class.String(), "seats", len(ask.Seats),
		"requestUID", fmt.Sprintf("%.64s", request.UID), "operation", string(request.Operation),
		"allowed", response.Allowed, "reason", response.AuditAnnotations["reason"], "inTheWay", response.AuditAnnotations["inTheWay"],
		"dryRun", ask.DryRun)
	return response, nil
}

func (g *Guard) cluster(snapshot selector.Snapshot) *onedefault.Cluster {
	return &onedefault.Cluster{
		Leases: g.Leases, Sightings: g.Sightings, Window: g.Window,
		Live: func(ctx context.Context, c onedefault.Class) (onedefault.Live, error) {
			return g.live(ctx, snapshot, c)
		},
	}
}

// Stored notes that a class was seen stored with this uid, marked default.
func (g *Guard) Stored(c *inventory.Class, uid types.UID) {
	g.Sightings.Stored(onedefault.Holder{Class: nameOf(c), UID: uid})
}

func isOld(err, before *field.Error) bool { return before != nil && err.Error() == before.Error() }

func nameOf(c *inventory.Class) onedefault.Class {
	return onedefault.Class{Kind: c.Kind.Name, Namespace: c.Namespace, Name: c.Name}
}

// allKnown returns an error unless the snapshot has every registered claim kind that the class kind serves, with all of its classes.
func (g *Guard) allKnown(ctx context.Context, snapshot selector.Snapshot, kind *inventory.ClassKind) error {
	for _, name := range kind.ClaimKinds {
		view := snapshot[name]
		if view == nil {
			k, err := g.ClaimKind(ctx, name)
			if err != nil {
				return err
			}
			if k != nil {
				return errNotHeardOf(name)
			}
			continue
		}
		if fault := view.Incomplete(); fault != nil {
			return fmt.Errorf("cannot determine whether %q has a default class: %w", name, fault)
		}
	}
	return nil
}

// takes sets the seats that a class takes beside those that it has. There is a response if the class takes none, or if they cannot be
// determined.
func takes(snapshot selector.Snapshot, class, before *inventory.Class, ask *onedefault.Request) (*admissionv1.AdmissionResponse, error) {
	seats, unknown, err := seatsOf(snapshot, class)
	if err != nil {
		return nil, err
	}
	if !before.Default {
		ask.Seats = seats
		switch {
		case unknown != nil:
			problem := field.Invalid(field.NewPath("metadata", "name"), field.OmitValueType{},
				fmt.Sprintf("it cannot become default, because the claims that it would serve cannot be determined: %v", unknown))
			kind := class.Kind.GroupVersionKind.GroupKind()
			return denied(apierrors.NewInvalid(kind, class.Name, field.ErrorList{problem}), "SeatUnknown"), nil
		case len(seats) == 0:
			return untouched("NoClaimKind"), nil
		}
		return nil, nil
	}
	had, _, err := seatsOf(snapshot, before)
	if err != nil {
		return nil, err
	}
	ask.Seats = slices.DeleteFunc(seats, func(s inventory.Seat) bool { return slices.Contains(had, s) })
	if len(ask.Seats) > 0 {
		return nil, nil
	}
	response := untouched("DefaultAlready")
	if unknown != nil {
		response.Warnings = []string{
			fmt.Sprintf("the class is marked default, but is the default of no claims, because its partition is unknown: %v", unknown),
		}
	}
	return response, nil
}

// isLinked reports whether classes of a kind are read with all that the expressions of ClaimKinds look at, as far as we know.
func isLinked(snapshot selector.Snapshot, kind *inventory.ClassKind) bool {
	return !slices.ContainsFunc(kind.ClaimKinds, func(name string) bool {
		return snapshot[name] != nil && snapshot[name].Kind.Demand.Unlinked(kind) != nil
	})
}

// seatsOf returns the seats of a default class, in the same order for all classes, and why others cannot be determined, nil if all are. It
// fails if the class was read without what expressions look at.
func seatsOf(snapshot selector.Snapshot, class *inventory.Class) (seats []inventory.Seat, unknown, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(class.Kind.ClaimKinds))) {
		view := snapshot[name]
		if view == nil || view.FaultOf(class.Kind.Name) != nil {
			continue
		}
		if fault := view.Kind.Demand.Unlinked(class.Kind); fault != nil {
			return nil, nil, fault
		}
		seat, offered, why := view.Kind.Demand.SeatOf(class)
		unknown = cmp.Or(unknown, truncate.Error(why))
		if offered {
			seats = append(seats, seat)
		}
	}
	return seats, unknown, nil
}

// knownDefaults of the snapshot may be older than the guard and its Leases.
func knownDefaults(snapshot selector.Snapshot, seats []inventory.Seat) map[inventory.Seat][]onedefault.Class {
	known := map[inventory.Seat][]onedefault.Class{}
	for _, seat := range seats {
		for _, c := range snapshot[seat.ClaimKind].DefaultsOf(seat) {
			known[seat] = append(known[seat], nameOf(c))
		}
	}
	return known
}

// live reads a class as it is stored now.
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
		live.Seats, _, err = seatsOf(snapshot, class)
	}
	return live, err
}

// decodeClasses returns the class, the old class, which is empty for a creation, and the request to the protocol, without its seats.
func decodeClasses(
	kind *inventory.ClassKind, request *admissionv1.AdmissionRequest,
) (class, before *inventory.Class, ask *onedefault.Request, err error) {
	object, class, err := decodeClass(kind, "object", request.Object.Raw)
	if err != nil {
		return nil, nil, nil, err
	}
	before = &inventory.Class{}
	ask = &onedefault.Request{Holder: onedefault.Holder{Class: nameOf(class), UID: object.UID}}
	if request.Operation == admissionv1.Update {
		old, c, err := decodeClass(kind, "oldObject", request.OldObject.Raw)
		if err != nil {
			return nil, nil, nil, err
		}
		if old.UID != object.UID || nameOf(c) != nameOf(class) || !onedefault.IsToken(old.ResourceVersion) {
			return nil, nil, nil, malformed("request.oldObject: must be what the object was, with its resourceVersion")
		}
		before, ask.Base = c, old.ResourceVersion
	}
	return class, before, ask, nil
}

// decodeClass refuses what no API server sends, because a Lease would record it.
func decodeClass(kind *inventory.ClassKind, name string, raw []byte) (*metav1.ObjectMeta, *inventory.Class, error) {
	meta, class, err := kind.DecodeValid(raw)
	if err != nil {
		return nil, nil, malformed("request.%s: %v", name, err)
	}
	switch {
	case meta.Name == "" || len(meta.Name) > validation.DNS1123SubdomainMaxLength || len(content.IsPathSegmentName(meta.Name)) > 0:
		return nil, nil, malformed("request.%s: must have the name of a class", name)
	case !onedefault.IsToken(string(meta.UID)):
		return nil, nil, malformed("request.%s: must have a uid", name)
	case kind.Namespaced != (meta.Namespace != "") || kind.Namespaced && len(validation.IsDNS1123Label(meta.Namespace)) > 0:
		return nil, nil, malformed("request.%s: must have a namespace as classes of its kind have", name)
	}
	return meta, class, nil
}
