package webhookconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// rule says which requests the API server sends to us.
type rule = admissionregistrationac.RuleWithOperationsApplyConfiguration

const anyVersion = "*"

// IsOfAnyVersion reports whether an entry is for claims of all versions: the version for which
// the paths are written was not served when the entry was written.
func IsOfAnyVersion(e *admissionregistrationv1.MutatingWebhook) bool {
	return slices.ContainsFunc(e.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.APIVersions, anyVersion)
	})
}

// claimRule is for the creation of claims of a kind.
func (w *Configurator) claimRule(
	ctx context.Context, k *v1alpha1.ClaimKind, current ClaimConfigurations,
) (*rule, error) {
	if w.Registration.Inventory.ClaimKind(k.Name) == nil {
		return nil, errNotRegisteredYet
	}
	var before []admissionregistrationv1.RuleWithOperations
	if e := current.EntryOf(k.Name); e != nil {
		before = e.Rules
	}
	found, err := w.Registration.LookUpClaims(ctx, k, "create")
	if errors.Is(err, cluster.ErrVersionNotServed) {
		// Each claim is answered, so its author is told why it cannot be bound.
		all := servedRule(k.Resource(), found)
		all.APIVersions = []string{anyVersion}
		return all, err
	}
	return ruleOf(k.Resource(), found, before, err)
}

// classRule is for the creation and the update of classes of a kind.
func (w *Configurator) classRule(
	ctx context.Context, classKind string, current *admissionregistrationv1.ValidatingWebhookConfiguration,
) (*rule, error) {
	var before []admissionregistrationv1.RuleWithOperations
	if e := ClassEntryOf(current, classKind); e != nil {
		before = e.Rules
	}
	found, err := w.Registration.LookUp(ctx, classKind, "list", "watch")
	r, err := ruleOf(classKind, found, before, err)
	if r != nil {
		r.WithOperations(admissionregistrationv1.Update)
	}
	return r, err
}

// ruleOf is for a resource in the version that was found, to which other versions are
// converted (matchPolicy Equivalent). If the API server did not answer, the rule stays as it
// was before.
func ruleOf(name string, found cluster.Resource, before []admissionregistrationv1.RuleWithOperations, err error) (*rule, error) {
	switch {
	case err == nil:
		return servedRule(name, found), nil
	case errors.Is(err, cluster.ErrNotInstalled), errors.Is(err, cluster.ErrUnsuitable):
		return nil, err
	}
	if len(before) == 1 {
		r := newRule(name)
		r.Scope = before[0].Scope
		return r.WithAPIVersions(before[0].APIVersions...), err
	}
	return nil, err
}

// newRule is for the creation of objects of a resource.
func newRule(name string) *rule {
	plural, group, _ := strings.Cut(name, ".")
	return admissionregistrationac.RuleWithOperations().
		WithOperations(admissionregistrationv1.Create).WithAPIGroups(group).WithResources(plural)
}

// servedRule is the same for a resource that the API server serves.
func servedRule(name string, found cluster.Resource) *rule {
	scope := admissionregistrationv1.ClusterScope
	if found.Namespaced {
		scope = admissionregistrationv1.NamespacedScope
	}
	return newRule(name).WithAPIVersions(found.Version).WithScope(scope)
}

// rulesOf returns the rules of all kinds, nil for a kind without an entry. Kinds that
// do not answer delay the others for rulesTimeout at most. The error says what must be
// looked at again.
func rulesOf(ctx context.Context, names []string, ruleOf func(ctx context.Context, i int) (*rule, error)) ([]*rule, error) {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	rules := make([]*rule, len(names))
	errs := make([]error, len(names))
	var all errgroup.Group
	all.SetLimit(registry.MaxLookUps)
	for i := range names {
		all.Go(func() error {
			rules[i], errs[i] = ruleOf(ctx, i)
			return nil
		})
	}
	_ = all.Wait() // The errors are in errs.
	incomplete := (*retryLater)(nil)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if incomplete == nil {
			incomplete = &retryLater{fmt.Sprintf("%q: %v", names[i], err), registry.RetryAfter, true}
		}
		if errors.Is(err, registry.ErrCRDNotServed) || errors.Is(err, cluster.ErrVersionNotServed) || errors.Is(err, errNotRegisteredYet) {
			incomplete.after = registry.RetryCRDAfter
		}
	}
	if incomplete == nil {
		return rules, nil
	}
	return rules, incomplete
}

// ClassEntryOf returns the entry of a class kind for its creations and updates, nil if
// there is none.
func ClassEntryOf(
	c *admissionregistrationv1.ValidatingWebhookConfiguration, classKind string,
) *admissionregistrationv1.ValidatingWebhook {
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == classKind+v1alpha1.GuardSuffix {
			return &c.Webhooks[i]
		}
	}
	return nil
}

// Address is where the API server calls us.
type Address struct {
	// Namespace of classbind.
	Namespace string
	// URL of a webhook server outside the cluster; empty means that Service is called.
	URL string
	// Service in front of the webhook server, in Namespace.
	Service string
}

// claimEntry is without the condition of bindWhen if that is the expression that the API server
// refused.
func (a Address) claimEntry(
	k *v1alpha1.ClaimKind, r *rule, ca []byte, refused string,
) *admissionregistrationac.MutatingWebhookApplyConfiguration {
	asked := *r
	if restores(k) {
		asked.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	}
	conditions := slices.DeleteFunc(claimConditions(k), func(c *admissionregistrationac.MatchConditionApplyConfiguration) bool {
		return isBindWhen(*c) && *c.Expression == refused
	})
	return admissionregistrationac.MutatingWebhook().
		WithName(k.Name + v1alpha1.BindSuffix).
		WithClientConfig(a.server(v1alpha1.BindPath+k.Name, ca)).
		WithRules(&asked).
		WithMatchConditions(conditions...).
		WithNamespaceSelector(a.namespaceSelector(k.Spec.NamespaceSelector)).
		WithFailurePolicy(failurePolicy(k)).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithReinvocationPolicy(admissionregistrationv1.NeverReinvocationPolicy).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(v1alpha1.WebhookTimeoutSeconds).
		WithAdmissionReviewVersions("v1")
}

// failurePolicy of a claim kind. One that this release does not know becomes Fail: it
// would make the configuration invalid, which all kinds share.
func failurePolicy(k *v1alpha1.ClaimKind) admissionregistrationv1.FailurePolicyType {
	if k.Spec.FailurePolicy == v1alpha1.Ignore {
		return admissionregistrationv1.Ignore
	}
	return admissionregistrationv1.Fail
}

// classEntry has the failurePolicy Fail: without our answer, two defaults could be
// stored for good. That blocks only a few writes of admins.
func (a Address) classEntry(
	k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind, r *rule, ca []byte,
) *admissionregistrationac.ValidatingWebhookApplyConfiguration {
	return admissionregistrationac.ValidatingWebhook().
		WithName(k.Name + v1alpha1.GuardSuffix).
		WithClientConfig(a.server(v1alpha1.GuardPath, ca)).
		WithRules(r).
		WithMatchConditions(classConditions(k, claimKinds)...).
		WithNamespaceSelector(a.namespaceSelector(v1alpha1.NamespaceSelector{})).
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithSideEffects(admissionregistrationv1.SideEffectClassNoneOnDryRun).
		WithTimeoutSeconds(v1alpha1.WebhookTimeoutSeconds).
		WithAdmissionReviewVersions("v1")
}

// deletionEntry has the failurePolicy Ignore: without our answer, only a warning is missing.
// It is of all versions: to convert a class for us may fail, which Ignore does not cover.
func (a Address) deletionEntry(
	k *v1alpha1.ClassKind, r *rule, ca []byte,
) *admissionregistrationac.ValidatingWebhookApplyConfiguration {
	deletion := *r
	deletion.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
	deletion.APIVersions = []string{"*"}
	return admissionregistrationac.ValidatingWebhook().
		WithName(k.Name + v1alpha1.DeletionSuffix).
		WithClientConfig(a.server(v1alpha1.DeletionPath, ca)).
		WithRules(&deletion).
		WithMatchConditions(admissionregistrationac.MatchCondition().WithName("is-not-by-a-controller").WithExpression(isByNoController)).
		WithNamespaceSelector(a.namespaceSelector(v1alpha1.NamespaceSelector{})).
		WithFailurePolicy(admissionregistrationv1.Ignore).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(v1alpha1.DeletionTimeoutSeconds).
		WithAdmissionReviewVersions("v1")
}

// isByNoController is the CEL expression that says that somebody may read the warning. The
// controllers delete many classes, one after the other, and would wait for each answer.
const isByNoController = `!(request.userInfo.username in ["system:serviceaccount:kube-system:namespace-controller", ` +
	`"system:serviceaccount:kube-system:generic-garbage-collector"])`

// DeletionsReviewed reports whether a class kind has an entry for the deletion of classes:
// one of the claim kinds that it serves has its claims watched.
func DeletionsReviewed(k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind) bool {
	return slices.ContainsFunc(claimKinds, func(c v1alpha1.ClaimKind) bool {
		return selector.WatchesClaims(&c) && slices.Contains(k.Spec.ClaimKinds, c.Name)
	})
}

// server is the address of a path.
func (a Address) server(path string, ca []byte) *admissionregistrationac.WebhookClientConfigApplyConfiguration {
	server := admissionregistrationac.WebhookClientConfig().WithCABundle(ca...)
	if a.URL != "" {
		return server.WithURL(strings.TrimSuffix(a.URL, "/") + path)
	}
	return server.WithService(admissionregistrationac.ServiceReference().
		WithNamespace(a.Namespace).WithName(a.Service).WithPath(path).WithPort(443))
}

// namespaceSelector excludes the namespaces that the cluster and classbind itself depend on.
func (a Address) namespaceSelector(s v1alpha1.NamespaceSelector) *metaac.LabelSelectorApplyConfiguration {
	by := selector.NamespaceSelector(s, a.Namespace)
	applied := metaac.LabelSelector().WithMatchLabels(by.MatchLabels)
	for _, e := range by.MatchExpressions {
		applied.WithMatchExpressions(metaac.LabelSelectorRequirement().WithKey(e.Key).WithOperator(e.Operator).WithValues(e.Values...))
	}
	return applied
}
