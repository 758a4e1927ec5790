package webhookconfig

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

func (w *Configurator) writeClaims(ctx context.Context, r *round) error {
	// In a conflict, one whose name does not come first keeps its entry until the other's is seen.
	entered := slices.DeleteFunc(slices.Clone(r.claimKinds), func(k v1beta1.ClaimKind) bool { return r.current.ClaimEntry(k.Name) == nil })
	maps.DeleteFunc(w.refused, func(name, _ string) bool {
		return !slices.ContainsFunc(r.claimKinds, func(k v1beta1.ClaimKind) bool { return k.Name == name })
	})
	rules, incomplete := rulesOf(ctx, r.claimKinds, func(ctx context.Context, k *v1beta1.ClaimKind) (*rule, error) {
		before, rivals := r.current.ClaimEntry(k.Name), r.claimKinds
		if before != nil {
			rivals = entered
		}
		// One that has an entry was servable once, and keeps it: what goes wrong later must not let claims be created without a class.
		if selector.ConflictOf(k, rivals) == nil && (before != nil || w.Servable(ctx, k)) {
			return w.claimRule(ctx, k, before)
		}
		return nil, nil // The status says why.
	})
	var due []dueEntry
	for i, k := range r.claimKinds {
		if rules[i] != nil {
			e := w.claimEntry(&k, *rules[i], r.ca, w.refused[k.Name])
			due = append(due, dueEntry{Entry: e, in: k.Spec.Admission.Order.Configuration(), kind: k.Name})
		}
	}
	return w.write(ctx, &w.claims, r.current, ClaimConfigurations, due, incomplete)
}

// readyChanged lets pass the updates of a registration, and those by which its status reports that there is something else to
// serve or to guard. These are no more than a hint that a round may be due.
var readyChanged = predicate.Or(loop.RevisionPredicate, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return readyState(e.ObjectOld) != readyState(e.ObjectNew)
}})

func readyState(registration client.Object) string {
	var conditions []metav1.Condition
	switch k := registration.(type) {
	case *v1beta1.ClaimKind:
		conditions = k.Status.Conditions
	case *v1beta1.ClassKind:
		conditions = k.Status.Conditions
	}
	if ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady); ready != nil {
		return string(ready.Status) + ready.Reason
	}
	return ""
}

// withoutRefused finds the expressions of authors in the error of a write. An API server of another release may refuse one that compiles
// here. It refuses the whole configuration with it, so the entry is written without: then classbind alone evaluates claims.when, and is
// called for every claim of the kind. If the error does not say which, all are left out.
func (w *Configurator) withoutRefused(ctx context.Context, err error, entries []Entry) error {
	answered := apierrors.APIStatus(nil)
	if !errors.As(err, &answered) || answered.Status().Details == nil {
		return err
	}
	causes := slices.DeleteFunc(slices.Clone(answered.Status().Details.Causes), func(c metav1.StatusCause) bool {
		return !strings.Contains(c.Field, ".matchConditions[")
	})
	if len(causes) == 0 {
		return err
	}
	refused, unclear := map[string]string{}, map[string]string{}
	for _, e := range entries {
		i := slices.IndexFunc(e.MatchConditions, isBindWhen)
		if i < 0 {
			continue
		}
		claimKind, expression := strings.TrimSuffix(e.Name, v1beta1.BindSuffix), e.MatchConditions[i].Expression
		unclear[claimKind] = expression
		if slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return strings.Contains(c.Message, strconv.Quote(expression)) }) {
			refused[claimKind] = expression
		}
	}
	if len(refused) == 0 {
		refused = unclear
	}
	if len(refused) == 0 {
		return err
	}
	if w.refused == nil {
		w.refused = map[string]string{}
	}
	maps.Copy(w.refused, refused)
	logf.FromContext(ctx).Info("The API server refuses claims.when as a match condition, so it calls classbind for each claim",
		"claimKinds", selector.List(slices.Sorted(maps.Keys(refused))), "because", truncate.Error(err).Error())
	return &retryLater{"the API server refuses an expression claims.when as a match condition", 200 * time.Millisecond, true, false}
}

func isBindWhen(c admissionregistrationv1.MatchCondition) bool {
	return c.Name == claim.BindWhenCondition
}

// writeClasses writes the entries of the class kinds, and that of the registrations themselves.
func (w *Configurator) writeClasses(ctx context.Context, r *round) error {
	const in = v1beta1.ClassConfiguration
	watched := slices.DeleteFunc(slices.Clone(r.claimKinds), func(c v1beta1.ClaimKind) bool {
		return !selector.WatchesClaims(&c, rules.Serving(&c, r.classKinds)...)
	})
	// Classes that are offered to no claims need no guard.
	guarded := slices.DeleteFunc(r.classKinds, func(k v1beta1.ClassKind) bool { return !w.Guarded(ctx, &k) })
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
		if k.Spec.Reference.Explicit == v1beta1.CheckExplicit && bound != nil && len(bound.Rules) == 1 {
			e := w.checkEntry(&k, bound.Rules[0], r.ca)
			due = append(due, dueEntry{Entry: e, in: in, kind: e.Name})
		}
	}
	return w.write(ctx, &w.classes, r.current, []string{in}, due, incomplete)
}
