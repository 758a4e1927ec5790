package webhookconfig

import (
	"cmp"
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
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// claimConfigurations are the names of those that have the entries of claim kinds.
var claimConfigurations = []string{v1alpha1.FirstConfiguration, v1alpha1.LastConfiguration}

// ClaimConfigurations are the MutatingWebhookConfigurations with the entries of claim
// kinds, by name. One that does not exist is absent.
type ClaimConfigurations map[string]*admissionregistrationv1.MutatingWebhookConfiguration

// ReadClaimConfigurations returns those that exist.
func ReadClaimConfigurations(ctx context.Context, reader client.Reader) (ClaimConfigurations, error) {
	all := ClaimConfigurations{}
	for _, name := range claimConfigurations {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, c)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot get the webhook configuration: %w", err)
		}
		if !apierrors.IsNotFound(err) {
			all[name] = c
		}
	}
	return all, nil
}

// EntryOf returns the entry of a claim kind, nil if there is none. While its order
// changes, there may be two, which are alike.
func (all ClaimConfigurations) EntryOf(claimKind string) *admissionregistrationv1.MutatingWebhook {
	for _, name := range claimConfigurations {
		if e := all.Entry(name, claimKind); e != nil {
			return e
		}
	}
	return nil
}

// Entry returns that of a claim kind in one configuration.
func (all ClaimConfigurations) Entry(configuration, claimKind string) *admissionregistrationv1.MutatingWebhook {
	c := all[configuration]
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
		return e.Name == claimKind+v1alpha1.BindSuffix
	})
	if i < 0 {
		return nil
	}
	return &c.Webhooks[i]
}

// Entries returns those of all configurations.
func (all ClaimConfigurations) Entries() (entries []admissionregistrationv1.MutatingWebhook) {
	for _, name := range claimConfigurations {
		if c := all[name]; c != nil {
			entries = append(entries, c.Webhooks...)
		}
	}
	return entries
}

// claimEntries are the entries that are due, by the name of their configuration, each in
// the order of their names.
type claimEntries map[string][]*admissionregistrationac.MutatingWebhookApplyConfiguration

// writeClaims writes the entries of the claim kinds. Of two configurations, one that is
// not there, or cannot be written, does not keep the other from being written.
func (w *Configurator) writeClaims(ctx context.Context) error {
	current, err := ReadClaimConfigurations(ctx, w.Client)
	if err != nil {
		return err
	}
	ca, err := w.dueCA(ctx)
	if err != nil {
		return err
	}
	kinds := &v1alpha1.ClaimKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	// The cache has no order, and every new order would be a change.
	slices.SortFunc(kinds.Items, func(a, b v1alpha1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	names := namesOf(kinds.Items, func(k *v1alpha1.ClaimKind) string { return k.Name })
	maps.DeleteFunc(w.refused, func(name, _ string) bool { return !slices.Contains(names, name) })
	rules, incomplete := rulesOf(ctx, names, func(ctx context.Context, i int) (*rule, error) {
		k := &kinds.Items[i]
		if selector.ConflictOf(k, kinds.Items) != nil {
			return nil, nil //nolint:nilerr // It is no failure: the older one has the entry.
		}
		if current.EntryOf(k.Name) == nil && !servable(k) {
			return nil, nil // The leader's status says why.
		}
		return w.claimRule(ctx, k, current)
	})
	due, sizes := claimEntries{}, map[string][]sizedEntry{}
	for i := range kinds.Items {
		if rules[i] == nil {
			continue
		}
		k := &kinds.Items[i]
		e := w.claimEntry(k, rules[i], ca, w.refused[k.Name])
		size, err := sizeOf(k.Name, e, e.MatchConditions)
		if err != nil {
			return err
		}
		in := k.Spec.Order.Configuration()
		due[in] = append(due[in], e)
		sizes[in] = append(sizes[in], sizedEntry{k.Name, k.CreationTimestamp.Time, current.Entry(in, k.Name) != nil, false, size})
	}
	out := map[string]string{}
	for in := range due {
		maps.Copy(out, leftOut(sizes[in]))
		due[in] = slices.DeleteFunc(due[in], func(e *admissionregistrationac.MutatingWebhookApplyConfiguration) bool {
			return out[strings.TrimSuffix(*e.Name, v1alpha1.BindSuffix)] != ""
		})
	}
	w.claims.leftOut.Set(out, func(a, b string) bool { return a == b })
	var errs []error
	for _, in := range claimConfigurations {
		errs = append(errs, w.withoutRefused(ctx, w.writeClaimEntries(ctx, in, current, due), due[in]))
	}
	for _, err := range errs {
		if wait := (*retryLater)(nil); err != nil && !errors.As(err, &wait) {
			return err
		}
	}
	return cmp.Or(append(errs, incomplete)...)
}

// servable reports whether a claim kind without an entry may get one: by the status, its claims
// can be bound. One that has an entry was servable once, and keeps it: what goes wrong later
// must not let claims be created without a class.
func servable(k *v1alpha1.ClaimKind) bool {
	ready := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.ObservedGeneration == k.Generation &&
		slices.Contains([]string{v1alpha1.ReasonServed, v1alpha1.ReasonNotConfigured, v1alpha1.ReasonTooLarge}, ready.Reason)
}

var servableChanged = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.ClaimKind)
	after, also := e.ObjectNew.(*v1alpha1.ClaimKind)
	return ok && also && servable(before) != servable(after)
}})

// writeClaimEntries writes those that are due in a configuration. It keeps one that is due
// in the other configuration until that has it, so that claims are bound while the order
// of their kind changes.
func (w *Configurator) writeClaimEntries(ctx context.Context, in string, all ClaimConfigurations, due claimEntries) error {
	current, entries := all[in], due[in]
	switch {
	case current == nil && len(entries) > 0:
		return notDeployed("MutatingWebhookConfiguration", in)
	case current == nil:
		return nil
	}
	for other, moving := range due {
		for _, e := range moving {
			claimKind := strings.TrimSuffix(*e.Name, v1alpha1.BindSuffix)
			if other != in && all.Entry(in, claimKind) != nil && all.Entry(other, claimKind) == nil {
				entries = append(entries, e)
			}
		}
	}
	if len(entries) == 0 && len(current.Webhooks) == 0 {
		return nil
	}
	byName := func(a, b *admissionregistrationac.MutatingWebhookApplyConfiguration) int {
		return strings.Compare(*a.Name, *b.Name)
	}
	entries = slices.SortedFunc(slices.Values(entries), byName)
	stored := namesOf(current.Webhooks, func(e *admissionregistrationv1.MutatingWebhook) string { return e.Name })
	names := namesOf(entries, func(e **admissionregistrationac.MutatingWebhookApplyConfiguration) string { return *(*e).Name })
	if err := w.remove(ctx, current, stored, names); err != nil {
		return err
	}
	return w.apply(ctx, admissionregistrationac.MutatingWebhookConfiguration(in).
		WithUID(current.UID).WithResourceVersion(current.ResourceVersion).WithWebhooks(entries...), nil)
}

// withoutRefused finds the expressions of authors in the error of a write. An API server of
// another release may refuse one that compiles here. It refuses the whole configuration
// with it, so the entry is written without: then classbind alone evaluates bindWhen, and is
// called for every claim of the kind. If the error does not say which, all are left out.
func (w *Configurator) withoutRefused(
	ctx context.Context, err error, entries []*admissionregistrationac.MutatingWebhookApplyConfiguration,
) error {
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
		claimKind, expression := strings.TrimSuffix(*e.Name, v1alpha1.BindSuffix), *e.MatchConditions[i].Expression
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
	logf.FromContext(ctx).Info("The API server refuses bindWhen as a match condition, so it calls classbind for each claim",
		"claimKinds", selector.List(slices.Sorted(maps.Keys(refused))), "because", truncate.Error(err).Error())
	return &retryLater{"the API server refuses an expression bindWhen as a match condition", 200 * time.Millisecond, true}
}

func isBindWhen(c admissionregistrationac.MatchConditionApplyConfiguration) bool {
	return *c.Name == selector.BindWhenCondition
}
