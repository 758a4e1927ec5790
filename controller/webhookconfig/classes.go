package webhookconfig

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
)

// writeClasses writes the entries of the class kinds, and that of the registrations themselves.
func (w *Configurator) writeClasses(ctx context.Context) error {
	current, err := ReadConfigurations(ctx, w.Client, allConfigurations...)
	if err != nil {
		return err
	}
	const in = v1beta1.ClassConfiguration
	if current[in] == nil {
		return notDeployed(in)
	}
	ca, err := w.dueCA(ctx, current)
	if err != nil {
		return err
	}
	kinds := &v1beta1.ClassKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list class kinds: %w", err)
	}
	claimKinds := &v1beta1.ClaimKindList{}
	if err := w.Client.List(ctx, claimKinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	// Classes that are offered to nobody need no guard.
	guarded := slices.DeleteFunc(kinds.Items, func(k v1beta1.ClassKind) bool { return !w.Offered(&k) })
	slices.SortFunc(guarded, func(a, b v1beta1.ClassKind) int { return strings.Compare(a.Name, b.Name) })
	names := make([]string, len(guarded))
	for i, k := range guarded {
		names[i] = k.Name
	}
	rules, incomplete := rulesOf(ctx, names, func(ctx context.Context, i int) (*rule, error) {
		return w.classRule(ctx, names[i], current.ClassEntry(names[i]))
	})
	due := []dueEntry{{Entry: w.registrationEntry(ca), in: in, kind: v1beta1.RegistrationEntry, optional: true}}
	for i, k := range guarded {
		if rules[i] == nil {
			continue
		}
		due = append(due, dueEntry{Entry: w.classEntry(&k, claimKinds.Items, *rules[i], ca), in: in, kind: k.Name})
		// Deletions are reviewed where a claim kind that the class kind serves has its claims watched.
		if slices.ContainsFunc(claimKinds.Items, func(c v1beta1.ClaimKind) bool {
			return selector.WatchesClaims(&c) && k.Serves(&c)
		}) {
			e := w.deletionEntry(&k, *rules[i], ca)
			due = append(due, dueEntry{Entry: e, in: in, kind: e.Name, optional: true})
		}
	}
	slices.SortFunc(claimKinds.Items, func(a, b v1beta1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range claimKinds.Items {
		bound := current.ClaimEntry(k.Name)
		if k.Spec.Reference.Explicit == v1beta1.CheckExplicit && bound != nil && len(bound.Rules) == 1 {
			e := w.checkEntry(&k, bound.Rules[0], ca)
			due = append(due, dueEntry{Entry: e, in: in, kind: e.Name})
		}
	}
	return w.write(ctx, &w.classes, current, []string{in}, due, incomplete)
}

// readyChanged ignores updates of class kinds by which the status does not say that there is something
// else to guard. That is no more than a hint that a round may be due.
var readyChanged = builder.WithPredicates(readyPredicate)

var readyPredicate = predicate.Or(loop.RevisionPredicate, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1beta1.ClassKind)
	after, also := e.ObjectNew.(*v1beta1.ClassKind)
	return ok && also && readyState(before.Status.Conditions) != readyState(after.Status.Conditions)
}})
