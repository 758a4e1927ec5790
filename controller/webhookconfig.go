package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1alpha1"
)

// applyTimeout is for one round of the configurator.
const applyTimeout = 30 * time.Second

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
	// Serving is an error until this replica serves a certificate that the CA verifies.
	Serving func(ctx context.Context, ca []byte) error

	problem atomic.Pointer[string]
}

// Problem is why the configuration is not as it should be, empty if it is.
func (w *WebhookConfigurator) Problem() string {
	if p := w.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// waiting for something that is not an error, and is looked at again after a while.
type waiting struct {
	why   string
	again time.Duration
}

func (w *waiting) Error() string { return w.why }

// SetupWithManager adds the controller.
func (w *WebhookConfigurator) SetupWithManager(mgr ctrl.Manager) error {
	toConfiguration := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookConfiguration}}}
	})
	opened := make(chan event.GenericEvent, 1)
	w.Registration.onOpen(func() { opened <- event.GenericEvent{} })
	err := ctrl.NewControllerManagedBy(mgr).Named("webhook-configuration").
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		Watches(&v1alpha1.ClaimKind{}, toConfiguration, revisionChanged).
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
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err := w.write(ctx, name)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	w.problem.Store(&problem)
	if wait := (*waiting)(nil); errors.As(err, &wait) {
		logf.FromContext(ctx).V(1).Info("The webhook configuration is not complete", "because", wait.why)
		return ctrl.Result{RequeueAfter: wait.again}, nil
	}
	return ctrl.Result{}, err
}

func (w *WebhookConfigurator) write(ctx context.Context, name string) error {
	current := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, current); apierrors.IsNotFound(err) {
		return &waiting{fmt.Sprintf("there is no MutatingWebhookConfiguration %q: kubectl apply -k deploy/base", name), retryAfter}
	} else if err != nil {
		return fmt.Errorf("cannot get the webhook configuration: %w", err)
	}
	secret := &corev1.Secret{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: v1alpha1.CASecret}, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot get the CA: %w", err)
	}
	ca := secret.Data[corev1.ServiceAccountRootCAKey]
	if err := w.Serving(ctx, ca); err != nil {
		return &waiting{fmt.Sprintf("this replica does not serve yet: %v", err), 200 * time.Millisecond}
	}
	kinds := &v1alpha1.ClaimKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	// The cache has no order, and every new order would be a change.
	slices.SortFunc(kinds.Items, func(a, b v1alpha1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	rules, incomplete := w.rules(ctx, kinds.Items, current)

	// The uid makes the API server refuse, rather than create the object anew,
	// if it was deleted meanwhile, as it is by an uninstallation.
	desired := admissionregistrationac.MutatingWebhookConfiguration(name).WithUID(current.UID)
	for i := range kinds.Items {
		if rules[i] != nil {
			desired.WithWebhooks(w.entry(&kinds.Items[i], rules[i], ca))
		}
	}
	if err := w.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("cannot apply the webhook configuration: %w", err)
	}
	return incomplete
}

// rules of all claim kinds, nil for one that is to have no entry. One that is
// not there, or does not answer, keeps no other waiting; the error says what
// is to be looked at again.
func (w *WebhookConfigurator) rules(ctx context.Context, kinds []v1alpha1.ClaimKind, current *admissionregistrationv1.MutatingWebhookConfiguration) ([]*admissionregistrationac.RuleWithOperationsApplyConfiguration, error) {
	rules := make([]*admissionregistrationac.RuleWithOperationsApplyConfiguration, len(kinds))
	errs := make([]error, len(kinds))
	var all errgroup.Group
	all.SetLimit(lookUps)
	for i := range kinds {
		all.Go(func() error {
			rules[i], errs[i] = w.rule(ctx, kinds[i].Name, current)
			return nil
		})
	}
	_ = all.Wait() // It has none: each is in errs.
	incomplete := (*waiting)(nil)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if incomplete == nil {
			incomplete = &waiting{fmt.Sprintf("claim kind %q: %v", kinds[i].Name, err), retryAfter}
		}
		if !errors.Is(err, errNotInstalled) && !errors.Is(err, errUnsuitable) {
			incomplete.again = retryCRDAfter
		}
	}
	if incomplete == nil {
		return rules, nil
	}
	return rules, incomplete
}

// rule for the claim kind in the version that the API server prefers; other
// versions are converted to it (matchPolicy Equivalent). Without an answer, the
// rule stays as it is.
func (w *WebhookConfigurator) rule(ctx context.Context, claimKind string, current *admissionregistrationv1.MutatingWebhookConfiguration) (*admissionregistrationac.RuleWithOperationsApplyConfiguration, error) {
	plural, group, _ := strings.Cut(claimKind, ".")
	rule := admissionregistrationac.RuleWithOperations().
		WithOperations(admissionregistrationv1.Create).WithAPIGroups(group).WithResources(plural)
	if !w.Registration.Inventory.HasClaimKind(claimKind) {
		return nil, errors.New("it is not registered on this replica yet")
	}
	found, err := w.Registration.lookUp(ctx, claimKind, "create")
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
		rule.Scope = e.Rules[0].Scope
		return rule.WithAPIVersions(e.Rules[0].APIVersions...), err
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
