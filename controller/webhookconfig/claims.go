package webhookconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/truncate"
)

// writeClaims writes the entries of the claim kinds.
func (w *Configurator) writeClaims(ctx context.Context) error {
	current, err := ReadConfigurations(ctx, w.Client, allConfigurations...)
	if err != nil {
		return err
	}
	ca, err := w.dueCA(ctx, current)
	if err != nil {
		return err
	}
	kinds := &v1beta1.ClaimKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	// The cache has no order, and every new order would be a change.
	slices.SortFunc(kinds.Items, func(a, b v1beta1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	names := make([]string, len(kinds.Items))
	for i, k := range kinds.Items {
		names[i] = k.Name
	}
	// In a conflict, one whose name does not come first keeps its entry until the other's is seen.
	entered := slices.DeleteFunc(slices.Clone(kinds.Items), func(k v1beta1.ClaimKind) bool { return current.ClaimEntry(k.Name) == nil })
	maps.DeleteFunc(w.refused, func(name, _ string) bool { return !slices.Contains(names, name) })
	rules, incomplete := rulesOf(ctx, names, func(ctx context.Context, i int) (*rule, error) {
		k := &kinds.Items[i]
		before, rivals := current.ClaimEntry(k.Name), kinds.Items
		if before != nil {
			rivals = entered
		}
		// One that has an entry was servable once, and keeps it: what goes wrong later must not let claims be
		// created without a class.
		if selector.ConflictOf(k, rivals) != nil || before == nil && !w.Servable(ctx, k) {
			return nil, nil //nolint:nilerr // It is no failure. The status says why.
		}
		return w.claimRule(ctx, k, before)
	})
	var due []dueEntry
	for i, k := range kinds.Items {
		if rules[i] != nil {
			e := w.claimEntry(&k, *rules[i], ca, w.refused[k.Name])
			due = append(due, dueEntry{Entry: e, in: k.Spec.Admission.Order.Configuration(), kind: k.Name})
		}
	}
	return w.write(ctx, &w.claims, current, ClaimConfigurations, due, incomplete)
}

// servableChanged lets pass the updates by which the status says that a claim kind can be served, or
// not. That is no more than a hint that a round may be due.
var servableChanged = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1beta1.ClaimKind)
	after, also := e.ObjectNew.(*v1beta1.ClaimKind)
	return ok && also && readyState(before.Status.Conditions) != readyState(after.Status.Conditions)
}})

func readyState(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady); ready != nil {
		return string(ready.Status) + ready.Reason
	}
	return ""
}

// withoutRefused finds the expressions of authors in the error of a write. An API server of
// another release may refuse one that compiles here. It refuses the whole configuration
// with it, so the entry is written without: then classbind alone evaluates claims.when, and is
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
