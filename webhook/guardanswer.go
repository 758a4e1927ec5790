package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/webhook/onedefault"
)

// errModified is the API server's own text for an update of an outdated version.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// refused says what is in the way, and what to do about it.
func (g *Guard) refused(
	ctx context.Context, request *admissionv1.AdmissionRequest, class *selector.Class, r *onedefault.Refusal,
) (*admissionv1.AdmissionResponse, error) {
	resource := class.Kind.Resource().GroupResource()
	switch r.Reason {
	case onedefault.Exists:
		return denied(apierrors.NewAlreadyExists(resource, class.Name), "AlreadyExists"), nil
	case onedefault.Changed:
		return denied(apierrors.NewConflict(resource, class.Name, errModified), "Conflict"), nil
	default:
	}
	refusal, reason, err := (*apierrors.StatusError)(nil), "DefaultInFlight", error(nil)
	if r.Reason == onedefault.InFlight {
		refusal = inFlight(class, r)
	} else {
		reason = "SecondDefault"
		refusal, err = g.secondDefault(ctx, request, class, r)
	}
	if err != nil {
		return nil, err
	}
	response := denied(refusal, reason)
	response.AuditAnnotations["inTheWay"] = r.Class.String()
	return response, nil
}

// inFlight says when to try again.
func inFlight(class *selector.Class, r *onedefault.Refusal) *apierrors.StatusError {
	seconds := int32((r.RetryAfter + time.Second - 1) / time.Second) //nolint:gosec // The window is an hour at most.
	what := fmt.Sprintf("%q is being made the default class for %s and may yet be stored", r.Class, seatText(r.Seat))
	if r.Class == nameOf(class) {
		what = fmt.Sprintf("an earlier request to make %q the default class for %s may yet be stored", r.Class, seatText(r.Seat))
	}
	refusal := apierrors.NewForbidden(class.Kind.Resource().GroupResource(), class.Name, fmt.Errorf("%s: try again in %d s", what, seconds))
	refusal.ErrStatus.Details.RetryAfterSeconds = seconds
	return refusal
}

// secondDefault says which class is the default, and how to move the default.
func (g *Guard) secondDefault(
	ctx context.Context, request *admissionv1.AdmissionRequest, class *selector.Class, r *onedefault.Refusal,
) (*apierrors.StatusError, error) {
	kind, err := g.ClassKind(ctx, r.Class.Kind)
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return nil, fmt.Errorf("class kind %q was deleted a moment ago; try again", r.Class.Kind)
	}
	other := &selector.Class{Kind: kind, Namespace: r.Class.Namespace, Name: r.Class.Name}
	way := wayOut(request, other, g.moveCommand(class, other, r.Seat.ClaimKind))
	return apierrors.NewForbidden(class.Kind.Resource().GroupResource(), class.Name,
		fmt.Errorf("%q is the default class for %s already: %s", other, seatText(r.Seat), way)), nil
}

// seatText names the claim kind and, if the seat has one, the namespace.
func seatText(s selector.Seat) string {
	if s.Namespace == "" {
		return fmt.Sprintf("%q", s.ClaimKind)
	}
	return fmt.Sprintf("%q in namespace %q", s.ClaimKind, s.Namespace)
}

// moveCommand moves the default of a claim kind from other to the class. It names every claim kind whose
// default changes with it, without which set-default would refuse.
func (g *Guard) moveCommand(class, other *selector.Class, claimKind string) string {
	snapshot := g.Snapshot()
	seats, unmarked := seatsOf(snapshot, class), map[onedefault.Class]*selector.Class{nameOf(other): other}
	for _, s := range seats {
		for _, c := range snapshot[s.ClaimKind].DefaultsOf(s) {
			unmarked[nameOf(c)] = c
		}
	}
	kept := func(c *selector.Class) bool { return unmarked[nameOf(c)] == nil }
	emptied := map[selector.Seat]bool{} // Each is looked at once: there may be very many defaults.
	for _, c := range unmarked {
		for _, s := range seatsOf(snapshot, c) {
			emptied[s] = true
		}
	}
	moved, lost := []string{claimKind}, []string(nil)
	for s := range emptied {
		switch {
		case slices.Contains(seats, s):
			moved = append(moved, s.ClaimKind)
		case !slices.ContainsFunc(snapshot[s.ClaimKind].DefaultsOf(s), kept):
			lost = append(lost, s.ClaimKind)
		}
	}
	return "classbind set-default " + nameOf(class).String() + flags(" --for ", moved) + flags(" --leave-without-default ", lost)
}

// flags gives each value once, sorted.
func flags(flag string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	return flag + strings.Join(slices.Compact(slices.Sorted(slices.Values(values))), flag)
}

// wayOut says how to move the default with classbind, or remove it with kubectl.
func wayOut(request *admissionv1.AdmissionRequest, other *selector.Class, move string) string {
	first := "run"
	if request.Operation == admissionv1.Create {
		first = "create this class without its mark, then run"
	}
	return fmt.Sprintf("to move the default, %s: %s; to take it from %q and no more, run: %s",
		first, move, other, unmark(other))
}

// unmark is the kubectl command that removes the default mark from a class.
func unmark(c *selector.Class) string {
	mark := c.Kind.DefaultMark
	if mark.Path == "" {
		return fmt.Sprintf("kubectl annotate %s %s-", c.Arguments(), mark.Annotation)
	}
	return fmt.Sprintf("kubectl patch %s --type json --patch '[{\"op\":\"remove\",\"path\":%q}]'", c.Arguments(), mark.Path.JSONPointer())
}
