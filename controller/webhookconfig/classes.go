package webhookconfig

import (
	"context"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

// writeClasses writes the entries of the class kinds, and that of the registrations themselves.
func (w *Configurator) writeClasses(ctx context.Context, r *round) error {
	const in = v1beta1.ClassConfiguration
	watched := slices.DeleteFunc(slices.Clone(r.claimKinds), func(c v1beta1.ClaimKind) bool {
		return !selector.WatchesClaims(&c, rules.Serving(&c, r.classKinds)...)
	})
	// Classes that are offered to nobody need no guard.
	guarded := slices.DeleteFunc(r.classKinds, func(k v1beta1.ClassKind) bool { return !w.Offered(&k) })
	entryRules, incomplete := rulesOf(ctx, guarded, func(ctx context.Context, k *v1beta1.ClassKind) (*rule, error) {
		return w.classRule(ctx, k.Name, r.current.ClassEntry(k.Name))
	})
	due := []dueEntry{{Entry: w.registrationEntry(r.ca), in: in, kind: v1beta1.RegistrationEntry, optional: true}}
	for i, k := range guarded {
		if entryRules[i] == nil {
			continue
		}
		due = append(due, dueEntry{Entry: w.classEntry(&k, r.claimKinds, *entryRules[i], r.ca), in: in, kind: k.Name})
		// Deletions are reviewed where a claim kind that the class kind serves has its claims watched.
		isServed := func(c v1beta1.ClaimKind) bool { return k.Serves(&c) }
		if k.Spec.OnDelete != v1beta1.AllowDeletion && slices.ContainsFunc(watched, isServed) {
			e := w.deletionEntry(&k, *entryRules[i], r.ca)
			due = append(due, dueEntry{Entry: e, in: in, kind: e.Name, optional: !k.Spec.OnDelete.Denies()})
		}
	}
	for _, k := range r.claimKinds {
		bound := r.current.ClaimEntry(k.Name)
		reserves := reservesFor(&k, r.classKinds)
		if (reserves || k.Spec.Reference.Explicit == v1beta1.CheckExplicit) && bound != nil && len(bound.Rules) == 1 {
			e := w.checkEntry(&k, reserves, bound.Rules[0], r.ca)
			due = append(due, dueEntry{Entry: e, in: in, kind: e.Name})
		}
	}
	return w.write(ctx, &w.classes, r.current, []string{in}, due, incomplete)
}
