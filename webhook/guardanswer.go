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

	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/onedefault"
)

// errModified is the API server's own text for an update of an outdated version.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// refused says what is in the way, and what to do about it.
func (g *Guard) refused(
	ctx context.Context, request *admissionv1.AdmissionRequest, class, before *inventory.Class, r *onedefault.Refusal,
) (*admissionv1.AdmissionResponse, error) {
	resource := class.Kind.Resource().GroupResource()
	refusal, reason, err := inFlight(class, r), "DefaultInFlight", error(nil)
	switch r.Reason {
	case onedefault.Exists:
		return denied(apierrors.NewAlreadyExists(resource, class.Name), "AlreadyExists"), nil
	case onedefault.Changed:
		return denied(apierrors.NewConflict(resource, class.Name, errModified), "Conflict"), nil
	case onedefault.Taken:
		reason = "SecondDefault"
		refusal, err = g.secondDefault(ctx, request, class, before, r)
	case onedefault.InFlight:
	}
	if err != nil {
		return nil, err
	}
	response := denied(refusal, reason)
	response.AuditAnnotations["inTheWay"] = r.Class.String()
	return response, nil
}

// inFlight says when to try again.
func inFlight(class *inventory.Class, r *onedefault.Refusal) *apierrors.StatusError {
	seconds := int32((r.RetryAfter + time.Second - 1) / time.Second) //nolint:gosec // The window is an hour at most.
	refusal := apierrors.NewForbidden(class.Kind.Resource().GroupResource(), class.Name, fmt.Errorf(
		"%q is being made the default class for %s and may yet be stored: try again in %d s", r.Class, seatText(r.Seat), seconds))
	refusal.ErrStatus.Details.RetryAfterSeconds = seconds
	return refusal
}

// secondDefault says which class is the default, and how to move the default.
func (g *Guard) secondDefault(
	ctx context.Context, request *admissionv1.AdmissionRequest, class, before *inventory.Class, r *onedefault.Refusal,
) (*apierrors.StatusError, error) {
	kind, err := g.ClassKind(ctx, r.Class.Kind)
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return nil, fmt.Errorf("class kind %q was just deleted; try again", r.Class.Kind)
	}
	other := &inventory.Class{Kind: kind, Namespace: r.Class.Namespace, Name: r.Class.Name}
	way := g.wayOut(request, class, before, other, r.Seat)
	return apierrors.NewForbidden(class.Kind.Resource().GroupResource(), class.Name,
		fmt.Errorf("%q is the default class for %s already: %s", other, seatText(r.Seat), way)), nil
}

// seatText names the claim kind and, if the seat has them, the namespace and the partition.
func seatText(s inventory.Seat) string { return fmt.Sprintf("%q%s", s.ClaimKind, s.In()) }

// wayOut says how to move the default with classbind, or remove it with kubectl. The command of classbind moves marks, and to the seat of
// the class as it is stored. Run so, the command refuses to change the default of other claim kinds, and says how to agree to that.
func (g *Guard) wayOut(request *admissionv1.AdmissionRequest, class, before, other *inventory.Class, seat inventory.Seat) string {
	update := request.Operation == admissionv1.Update
	stored := []inventory.Seat{seat}
	if update {
		stored, _, _ = seatsOf(g.Snapshot(), before)
	}
	if byExpression(class.Kind) || byExpression(other.Kind) || !slices.Contains(stored, seat) {
		return fmt.Sprintf("to take it from %q, run: %s; then try again", other, unmark(other))
	}
	first := "run"
	if !update {
		first = "create this class without its mark, then run"
	}
	return fmt.Sprintf("to move the default, %s: classbind set-default %s --for %s; to take it from %q and no more, run: %s",
		first, nameOf(class), seat.ClaimKind, other, unmark(other))
}

func byExpression(k *inventory.ClassKind) bool { return k.DefaultMark.Expression != "" }

// unmark is the kubectl command that removes the default mark from a class.
func unmark(c *inventory.Class) string {
	mark := c.Kind.DefaultMark
	switch {
	case byExpression(c.Kind):
		return fmt.Sprintf("kubectl edit %s, and change what spec.default.expression of class kind %q looks at", c.Arguments(), c.Kind.Name)
	case mark.Path == "":
		words := []string{"kubectl annotate", c.Arguments()}
		for _, p := range mark.Places() {
			words = append(words, string(p.Annotation)+"-")
		}
		return strings.Join(words, " ")
	}
	return fmt.Sprintf("kubectl patch %s --type json --patch '[{\"op\":\"remove\",\"path\":%q}]'", c.Arguments(), mark.Path.JSONPointer())
}
