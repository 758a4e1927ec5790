package registry

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// Before a registration is stored, nothing is watched for it. The API server is asked what a watch would say.

// ProbeClasses returns the state of a class kind, and the classes of it that are offered. They are none, but not nil, if they would be
// offered.
func (r *Registration) ProbeClasses(ctx context.Context, k *v1beta1.ClassKind, claimKinds ...*v1beta1.ClaimKind) State {
	if state := r.State(k.Name); state.Reason == v1beta1.ReasonServed {
		return state
	}
	found, err := r.LookUp(ctx, k.Name, "list", "watch")
	if err == nil {
		err = r.permitted(ctx, k.Name, "list", "watch")
	}
	switch {
	case apierrors.IsForbidden(err):
		return State{Reason: v1beta1.ReasonNotPermitted, Message: whyRefused(err, Permit(k.Name))}
	case err != nil:
		return notWatched(err, time.Time{})
	}
	kind := inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, claimKinds...)
	return State{Reason: v1beta1.ReasonServed, Classes: inventory.NewClasses(kind, nil)}
}

// ProbeRelated returns the state of each kind of object that claims of a kind name, if that is not served.
func (r *Registration) ProbeRelated(ctx context.Context, k *selector.ClaimKind) (states []RelatedState) {
	for _, needed := range k.RelatedKinds() {
		_, err := r.lookUp(ctx, needed.Resource, needed.Version, "list", "watch")
		if err == nil {
			err = r.permitted(ctx, needed.Resource, "list", "watch")
		}
		if err != nil {
			states = append(states, unwatchedRelated(needed, relatedErr(needed.Version, err), time.Time{}).state(needed))
		}
	}
	return states
}

// ProbeClaims returns why classbind cannot do this with all claims of a kind, nil if it can.
func (r *Registration) ProbeClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) error {
	if _, err := r.LookUpClaims(ctx, k, verbs...); err != nil {
		return err
	}
	return r.permitted(ctx, k.Resource(), verbs...)
}

// A ClusterRole that is applied just before the registration takes a moment to be aggregated. So a refused right is asked about again while
// the review has this time left, which is at most half a second for all rights together.
const (
	askAgainAfter = 100 * time.Millisecond
	timeForOthers = 2 * time.Second
)

// permitted returns why classbind may not do this with a resource, nil if it may.
func (r *Registration) permitted(ctx context.Context, resource string, verbs ...string) error {
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
