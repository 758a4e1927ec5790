package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1alpha1"
)

// WebhookConfigurator keeps one entry per claim kind in the
// MutatingWebhookConfiguration. It runs on the leader. An entry is written once
// the leader can serve it, together with the CA that its calls need; the object
// itself belongs to whoever deploys classbind, and is never created.
type WebhookConfigurator struct {
	Registration *Registration
	Client       client.Client
	// Namespace of classbind itself.
	Namespace string
	// URL of the webhook server, for one outside the cluster; empty, Service is called.
	URL string
	// Service in front of the webhook server, in Namespace.
	Service string
}

// SetupWithManager adds the controller.
func (w *WebhookConfigurator) SetupWithManager(mgr ctrl.Manager) error {
	toConfiguration := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookConfiguration}}}
	})
	opened := make(chan event.GenericEvent, 1)
	w.Registration.onOpen(func() { opened <- event.GenericEvent{} })
	err := ctrl.NewControllerManagedBy(mgr).Named("webhook-configuration").
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		Watches(&v1alpha1.ClaimKind{}, toConfiguration, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, toConfiguration).
		WatchesMetadata(CRD(), toConfiguration).
		WatchesRawSource(source.Channel(opened, toConfiguration)).
		Complete(byName(w.reconcile))
	if err != nil {
		return fmt.Errorf("cannot set up the webhook configuration: %w", err)
	}
	return nil
}

func (w *WebhookConfigurator) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	if w.Registration.Inventory.Snapshot() == nil {
		return ctrl.Result{}, nil // What opens it comes back here.
	}
	current := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, current); apierrors.IsNotFound(err) {
		logf.FromContext(ctx).Info("No claims are bound while the MutatingWebhookConfiguration is missing: kubectl apply -k deploy/base", "name", name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get the webhook configuration: %w", err)
	}
	ca := &corev1.Secret{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: v1alpha1.CASecret}, ca); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // Whichever replica makes it, its event comes back here.
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot get the CA: %w", err)
	} else if len(ca.Data[corev1.ServiceAccountRootCAKey]) == 0 {
		return ctrl.Result{}, nil // Whoever fills it, the event comes back here.
	}
	kinds := &v1alpha1.ClaimKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot list claim kinds: %w", err)
	}

	// The cache has no order, and every new order would be a change.
	slices.SortFunc(kinds.Items, func(a, b v1alpha1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })

	// The uid makes the API server refuse, rather than create the object anew,
	// if it was deleted meanwhile, as it is by an uninstallation.
	desired := admissionregistrationac.MutatingWebhookConfiguration(name).WithUID(current.UID)
	result := ctrl.Result{}
	for i := range kinds.Items {
		k := &kinds.Items[i]
		rule, err := w.rule(ctx, k.Name, current)
		if err != nil {
			// One kind that is not there, or does not answer, must not keep the others waiting.
			logf.FromContext(ctx).V(1).Info("No webhook for a claim kind", "claimKind", k.Name, "because", err.Error())
			result.RequeueAfter = retryAfter
		}
		if rule != nil {
			desired.WithWebhooks(w.entry(k, rule, ca.Data[corev1.ServiceAccountRootCAKey]))
		}
	}
	if err := w.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot apply the webhook configuration: %w", err)
	}
	return result, nil
}

// rule for the claim kind in the version that the API server prefers; other
// versions are converted to it (matchPolicy Equivalent). Without an answer, the
// rule stays as it is.
func (w *WebhookConfigurator) rule(ctx context.Context, claimKind string, current *admissionregistrationv1.MutatingWebhookConfiguration) (*admissionregistrationac.RuleWithOperationsApplyConfiguration, error) {
	plural, group, _ := strings.Cut(claimKind, ".")
	rule := admissionregistrationac.RuleWithOperations().
		WithOperations(admissionregistrationv1.Create).WithAPIGroups(group).WithResources(plural)
	found, err := w.Registration.resolver.resolve(ctx, claimKind, "create")
	switch {
	case err == nil:
		scope := admissionregistrationv1.ClusterScope
		if found.namespaced {
			scope = admissionregistrationv1.NamespacedScope
		}
		return rule.WithAPIVersions(found.Version).WithScope(scope), nil
	case errors.Is(err, errNotInstalled), errors.Is(err, errUnsuitable):
		return nil, err
	}
	if e := entryOf(current, claimKind); e != nil && len(e.Rules) == 1 {
		return rule.WithAPIVersions(e.Rules[0].APIVersions...).WithScope(*e.Rules[0].Scope), err
	}
	return nil, err
}

// entryOf a claim kind, nil where there is none.
func entryOf(c *admissionregistrationv1.MutatingWebhookConfiguration, claimKind string) *admissionregistrationv1.MutatingWebhook {
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == claimKind+v1alpha1.WebhookSuffix {
			return &c.Webhooks[i]
		}
	}
	return nil
}

func (w *WebhookConfigurator) entry(k *v1alpha1.ClaimKind, rule *admissionregistrationac.RuleWithOperationsApplyConfiguration, ca []byte) *admissionregistrationac.MutatingWebhookApplyConfiguration {
	server := admissionregistrationac.WebhookClientConfig().WithCABundle(ca...)
	if w.URL != "" {
		server.WithURL(strings.TrimSuffix(w.URL, "/") + v1alpha1.BindPath)
	} else {
		server.WithService(admissionregistrationac.ServiceReference().
			WithNamespace(w.Namespace).WithName(w.Service).WithPath(v1alpha1.BindPath).WithPort(443))
	}
	return admissionregistrationac.MutatingWebhook().
		WithName(k.Name + v1alpha1.WebhookSuffix).
		WithClientConfig(server).
		WithRules(rule).
		WithMatchConditions(matchConditions(k)...).
		WithNamespaceSelector(w.namespaceSelector(k.Spec.NamespaceSelector)).
		WithFailurePolicy(admissionregistrationv1.FailurePolicyType(k.Spec.FailurePolicy)).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithReinvocationPolicy(admissionregistrationv1.NeverReinvocationPolicy).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(v1alpha1.WebhookTimeoutSeconds).
		WithAdmissionReviewVersions("v1")
}

// namespaceSelector leaves out the namespaces on which the cluster's and our own life depends.
func (w *WebhookConfigurator) namespaceSelector(s v1alpha1.NamespaceSelector) *metaac.LabelSelectorApplyConfiguration {
	selector := metaac.LabelSelector().WithMatchExpressions(metaac.LabelSelectorRequirement().
		WithKey(corev1.LabelMetadataName).WithOperator(metav1.LabelSelectorOpNotIn).
		WithValues(metav1.NamespaceSystem, w.Namespace))
	for key, value := range s.MatchLabels {
		selector.WithMatchLabels(map[string]string{key: string(value)})
	}
	for _, e := range s.MatchExpressions {
		requirement := metaac.LabelSelectorRequirement().WithKey(e.Key).WithOperator(e.Operator)
		for _, v := range e.Values {
			requirement.WithValues(string(v))
		}
		selector.WithMatchExpressions(requirement)
	}
	return selector
}

// matchConditions spare the API server the call for every claim that would be
// left alone: one condition a path, so that an admin can see which is which.
func matchConditions(k *v1alpha1.ClaimKind) []*admissionregistrationac.MatchConditionApplyConfiguration {
	unset := func(name string, p v1alpha1.FieldPath) *admissionregistrationac.MatchConditionApplyConfiguration {
		return admissionregistrationac.MatchCondition().WithName(name).WithExpression("!(" + isSet(p) + ")")
	}
	conditions := []*admissionregistrationac.MatchConditionApplyConfiguration{unset("class-reference-is-not-set", k.Spec.Paths.ClassRef)}
	for i, p := range k.Spec.Paths.SkipIfSet {
		conditions = append(conditions, unset(fmt.Sprintf("skip-if-set-%d-is-not-set", i), p))
	}
	return conditions
}

// isSet is the CEL expression that the path leads to something other than
// null. It asks for the type of each parent, because a claim whose spec is a
// string has to reach us, to be told so, and by index, because a field may
// have the name of a CEL keyword.
func isSet(p v1alpha1.FieldPath) string {
	parent := "object"
	var terms []string
	for name := range strings.SplitSeq(strings.TrimPrefix(string(p), "."), ".") {
		terms = append(terms, fmt.Sprintf("type(%s) == map && %q in %s", parent, name, parent))
		parent = fmt.Sprintf("%s[%q]", parent, name)
	}
	return strings.Join(append(terms, parent+" != null"), " && ")
}
