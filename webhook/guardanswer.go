package webhook

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/selector"
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
	seconds := int32(math.Ceil(r.RetryAfter.Seconds()))
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

// wayOut says how to move the default with classbind, or remove it with kubectl. The command of classbind moves marks, and to the seats of
// the class as it is stored. A mark counts for all claim kinds, so the command names each whose default changes. It refuses to change that
// of one that is not registered.
func (g *Guard) wayOut(request *admissionv1.AdmissionRequest, class, before, other *inventory.Class, seat inventory.Seat) string {
	snapshot, stored, first := g.Snapshot(), class, "create this class without its mark, then run"
	if request.Operation == admissionv1.Update {
		stored, first = before, "run"
	}
	seats, _, _ := seatsOf(snapshot, stored)
	unregistered := slices.ContainsFunc(class.Kind.ClaimKinds, func(name string) bool {
		return snapshot[name] == nil && slices.Contains(other.Kind.ClaimKinds, name)
	})
	if unregistered || byExpression(class.Kind) || byExpression(other.Kind) || !slices.Contains(seats, seat) {
		return fmt.Sprintf("to take it from %q, run: %s; then try again", other, unmark(other))
	}
	return fmt.Sprintf("to move the default, %s: classbind set-default %s%s; to take it from %q only, run: %s",
		first, strings.Replace(class.Arguments(), " ", "/", 1), movesOf(snapshot, nameOf(class), other, seats, seat), other, unmark(other))
}

// movesOf are the flags with which set-default agrees to all that changes if a class takes its seats, one of them from another class: it
// takes those of other defaults, too, and these lose their marks for all claim kinds.
func movesOf(
	snapshot selector.Snapshot, class onedefault.Class, other *inventory.Class, seats []inventory.Seat, seat inventory.Seat,
) (flags string) {
	unmarked := []*inventory.Class{other}
	isUnmarked := func(c *inventory.Class) bool {
		return slices.ContainsFunc(unmarked, func(u *inventory.Class) bool { return nameOf(u) == nameOf(c) })
	}
	named, left := sets.New(seat.ClaimKind), sets.New[string]()
	for _, s := range seats {
		for _, c := range snapshot[s.ClaimKind].DefaultsOf(s) {
			if nameOf(c) != class {
				named, unmarked = named.Insert(s.ClaimKind), append(unmarked, c)
			}
		}
	}
	for _, c := range unmarked {
		loses, _, _ := seatsOf(snapshot, c)
		for _, s := range loses {
			kept := slices.DeleteFunc(slices.Clone(snapshot[s.ClaimKind].DefaultsOf(s)), isUnmarked)
			if !slices.Contains(seats, s) && len(kept) == 0 {
				left.Insert(s.ClaimKind)
			}
		}
	}
	for _, name := range sets.List(named) {
		flags += " --for " + name
	}
	for _, name := range sets.List(left) {
		flags += " --leave-without-default " + name
	}
	return flags
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
