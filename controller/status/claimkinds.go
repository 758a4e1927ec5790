package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// namedKinds are the claim kinds that a class kind serves.
type namedKinds struct {
	unregistered []string
	// refusing are those that are not offered the classes, and fault is why the first is
	// not; offered is the number of the others that are registered.
	refusing []string
	fault    *inventory.Fault
	offered  int
}

// namedKinds is false while the inventory is about to be updated.
func (s *Writer) namedKinds(ctx context.Context, k *v1beta1.ClassKind) (named namedKinds, known bool, err error) {
	all, _, err := registry.List(ctx, s.Client)
	if err != nil {
		return named, false, err
	}
	served := rules.Served(k, all)
	for _, name := range rules.ServedNames(k, served) {
		i := slices.IndexFunc(served, func(c *v1beta1.ClaimKind) bool { return c.Name == name })
		if i < 0 {
			named.unregistered = append(named.unregistered, name)
			continue
		}
		claimKind := served[i]
		view := s.Snapshot()[name]
		if view == nil || view.Kind.Revision != inventory.RevisionOf(claimKind) {
			return named, false, nil
		}
		if fault := view.FaultOf(k.Name); fault != nil {
			named.refusing, named.fault = append(named.refusing, name), cmp.Or(named.fault, fault)
		} else {
			named.offered++
		}
	}
	return named, true, nil
}

// qualify a Ready condition that is True by the claim kinds that are not offered the
// classes. It stays True if others are: replicas that start wait for these classes.
func (n namedKinds) qualify(ready *metav1.Condition) {
	if len(n.refusing) == 0 {
		return
	}
	ready.Reason, ready.Message = n.fault.Reason, n.fault.Text
	if more := n.refusing[1:]; len(more) > 0 {
		ready.Message += "; nor are they offered to claims of " + selector.List(more)
	}
	if n.offered == 0 {
		ready.Status = metav1.ConditionFalse
	}
}

func (n namedKinds) registered() metav1.Condition {
	c := met(v1beta1.ConditionClaimKindsRegistered, v1beta1.ReasonRegistered, "every claim kind is registered")
	switch {
	case len(n.unregistered) > 0:
		return failed(c, v1beta1.ReasonNotRegistered, "%s", unregistered("spec.claimKinds", "ClaimKind", n.unregistered))
	case n.offered+len(n.refusing) == 0:
		return failed(c, v1beta1.ReasonNoClaimKinds,
			"no claim is offered the classes: name a ClaimKind in spec.claimKinds, or this ClassKind in spec.classes.kinds of one")
	}
	return c
}

// unregistered says which names in a field no registration of a kind has.
func unregistered(field, kind string, names []string) string {
	quoted := make([]string, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%s has names that no %[2]s has: %[3]s: correct the name, which is <plural>.<group>, or create the %[2]s",
		field, kind, strings.Join(quoted, ", "))
}

// rivals are the names of a class kind and of those that may be left out for it, or offered when it goes.
func (s *Writer) rivals(k *inventory.ClassKind) []string {
	names := []string{k.Name}
	snapshot := s.Snapshot()
	for _, name := range k.ClaimKinds {
		view := snapshot[name]
		if view == nil || !view.Kind.ConfusesKinds() {
			continue
		}
		for _, classes := range view.Classes {
			names = append(names, classes.Kind.Name)
		}
		for _, other := range view.LeftOut {
			names = append(names, other.Name)
		}
	}
	return names
}
