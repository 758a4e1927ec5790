package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// rule for the claim kind in the version that the API server prefers; other
// versions are converted to it (matchPolicy Equivalent). Without an answer, the
// rule stays as it is.
func (w *WebhookConfigurator) rule(ctx context.Context, claimKind string, current *admissionregistrationv1.MutatingWebhookConfiguration) (*admissionregistrationac.RuleWithOperationsApplyConfiguration, error) {
	plural, group, _ := strings.Cut(claimKind, ".")
	rule := admissionregistrationac.RuleWithOperations().
		WithOperations(admissionregistrationv1.Create).WithAPIGroups(group).WithResources(plural)
	if !w.Registration.Inventory.HasClaimKind(claimKind) {
		return nil, errNotHeardOf
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
