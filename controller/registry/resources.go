package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

const (
	// RetryAfter is when a resource that is not installed is looked up again: one of an aggregated API server has no CRD with events.
	RetryAfter = 15 * time.Second
	// RetryCRDAfter is the same where a CRD reports that the API server is about to start or to stop serving the resource.
	RetryCRDAfter = time.Second
	// LookUpTimeout limits the few requests that look up one resource.
	LookUpTimeout = 3 * time.Second
	// MaxLookUps is how many kinds are looked up at once, so that an API server that hangs holds up no other kinds: 300 take 28 s.
	MaxLookUps = 32
)

// ErrCRDNotServed means that a CRD is installed but its resource is not found: the API server serves a new CRD or version a moment later.
var ErrCRDNotServed = errors.New("its CRD is installed, but the API server does not serve the resource")

// NotInstalledOrUnsuitable reports whether the API server lacks the resource, with these verbs or in this version. Other errors may pass.
func NotInstalledOrUnsuitable(err error) bool {
	return errors.Is(err, cluster.ErrNotInstalled) || errors.Is(err, cluster.ErrUnsuitable) || errors.Is(err, cluster.ErrVersionNotServed)
}

// ReasonFor is the reason of a condition for an error of LookUp, or for a fault.
func ReasonFor(err error) string {
	fault := (*inventory.Fault)(nil)
	switch {
	case errors.As(err, &fault):
		return fault.Reason
	case errors.Is(err, cluster.ErrNotInstalled):
		return v1beta1.ReasonNotInstalled
	case errors.Is(err, cluster.ErrUnsuitable):
		return v1beta1.ReasonUnsuitable
	case errors.Is(err, cluster.ErrVersionNotServed):
		return v1beta1.ReasonVersionNotServed
	}
	return v1beta1.ReasonNotSynced
}

// Resources looks up what the API server serves.
type Resources struct {
	reader   client.Reader // from the cache
	resolver cluster.Resolver
}

// LookUp resolves the resource of classes. It returns ErrNotInstalled only if there is no CRD either.
func (r *Resources) LookUp(ctx context.Context, classKind string, verbs ...string) (cluster.Resource, error) {
	return r.lookUp(ctx, classKind, "", verbs...)
}

func (r *Resources) lookUp(ctx context.Context, name, version string, verbs ...string) (cluster.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	found, err := r.resolver.Resolve(ctx, name, version, verbs...)
	if !errors.Is(err, cluster.ErrNotInstalled) {
		return found, err
	}
	switch crdErr := r.reader.Get(ctx, client.ObjectKey{Name: name}, cluster.CRD()); {
	case crdErr == nil:
		return found, ErrCRDNotServed
	case !apierrors.IsNotFound(crdErr):
		return found, fmt.Errorf("cannot get the CRD of %q: %w", name, crdErr)
	}
	return found, err
}

// schema returns the schema of a resource in a version.
func (r *Resources) schema(ctx context.Context, name string, found cluster.Resource) (*openapi.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, LookUpTimeout)
	defer cancel()
	crd, err := r.resolver.CRD(ctx, name)
	if err == nil {
		return openapi.OfCRD(crd, found.Version)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cannot read the CRD of %q: %w", name, err)
	}
	document, err := r.resolver.OpenAPI(ctx, found.GroupVersion())
	if apierrors.IsNotFound(err) {
		return nil, openapi.ErrNoSchema
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %q: %w", name, err)
	}
	return openapi.OfDocument(document, found.GroupVersionKind)
}

// Followed is a resource that is followed while the API server serves it.
type Followed struct {
	// Withdraw what is known, because the API server does not serve the resource.
	Withdraw func(why error)
	// Unanswered means that the API server did not say what it serves. What is known stays.
	Unanswered func(why error)
	// Follow the resource that was found. It is false if the API server answers the watch with 404, which is about to change.
	Follow func() (served bool, err error)
}

// LookedUp goes on after a look-up of the resource, and returns when to look it up again.
func (f Followed) LookedUp(err error) (ctrl.Result, error) {
	switch {
	case NotInstalledOrUnsuitable(err):
		f.Withdraw(err)
		return ctrl.Result{RequeueAfter: RetryAfter}, nil
	case errors.Is(err, ErrCRDNotServed):
		f.Unanswered(err)
		return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
	case err != nil:
		f.Unanswered(err)
		return ctrl.Result{}, err
	}
	if served, err := f.Follow(); err != nil || served {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
}

// Before a registration is stored, nothing is watched for it. The API server is asked what a watch would say.

// ProbeClasses returns the state of a class kind, with the classes that are offered: not nil, but none, if they would be.
func (r *Registration) ProbeClasses(ctx context.Context, k *v1beta1.ClassKind, claimKinds ...*v1beta1.ClaimKind) State {
	if k.IsIgnored() {
		return notWatched(ignoredFault(k.Name), time.Time{})
	}
	if state := r.ClassKinds.State(k.Name); state.Reason == v1beta1.ReasonServed {
		return state
	}
	found, err := r.Resources.probe(ctx, k.Name, "", "list", "watch")
	switch {
	case apierrors.IsForbidden(err):
		return State{Reason: v1beta1.ReasonNotPermitted, Message: whyRefused(err, Permit(k.Name))}
	case err != nil:
		return notWatched(err, time.Time{})
	}
	kind := inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, claimKinds...)
	return State{Reason: v1beta1.ReasonServed, Classes: inventory.NewClasses(kind, nil)}
}

// ProbeRelated returns the state of each of these kinds of related objects that is not served.
func (r *Registration) ProbeRelated(ctx context.Context, kinds []*rules.Kind) (states []State) {
	for _, needed := range kinds {
		if _, err := r.Resources.probe(ctx, needed.Resource, needed.Version, "list", "watch"); err != nil {
			states = append(states, unwatchedRelated(needed, relatedErr(needed.Version, err), time.Time{}).stateFor(needed, ""))
		}
	}
	return states
}

// ProbeClaims returns why classbind cannot do this with all claims of a kind, nil if it can.
func (r *Registration) ProbeClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) error {
	if _, err := r.LookUpClaims(ctx, k, verbs...); err != nil {
		return err
	}
	return r.Resources.permitted(ctx, k.Resource(), verbs...)
}

// ProbePolicies returns why classbind cannot write policies of a resource, such as validatingadmissionpolicies, nil if it can.
func (r *Registration) ProbePolicies(ctx context.Context, resource string) error {
	return r.Resources.permitted(ctx, resource+".admissionregistration.k8s.io", "create")
}

// probe returns a resource with which classbind can do this.
func (r *Resources) probe(ctx context.Context, resource, version string, verbs ...string) (cluster.Resource, error) {
	found, err := r.lookUp(ctx, resource, version, verbs...)
	if err == nil {
		err = r.permitted(ctx, resource, verbs...)
	}
	return found, err
}

// A ClusterRole that is applied just before the registration takes a moment to be aggregated. So a refused right is asked about again while
// the review has this time left, which is at most half a second for all rights together.
const (
	askAgainAfter = 100 * time.Millisecond
	timeForOthers = 2 * time.Second
)

// permitted returns why classbind may not do this with a resource, nil if it may.
func (r *Resources) permitted(ctx context.Context, resource string, verbs ...string) error {
	for {
		err := r.resolver.Permitted(ctx, resource, verbs...)
		end, limited := ctx.Deadline()
		if !apierrors.IsForbidden(err) || !limited || time.Until(end) < timeForOthers+askAgainAfter {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgainAfter):
		}
	}
}
