package webhookconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// storedPolicies are the policies and bindings in the cluster that classbind wrote, by name.
type storedPolicies struct {
	policies map[string]*admissionregistrationv1.MutatingAdmissionPolicy
	bindings map[string]*admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// read asks the API server itself.
func (p *Policies) read(ctx context.Context) (s storedPolicies, err error) {
	policies := &admissionregistrationv1.MutatingAdmissionPolicyList{}
	bindings := &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}
	ours := client.MatchingLabels{v1beta1.ManagedByLabel: v1beta1.ManagedBy}
	if err := p.Live.List(ctx, policies, ours); err != nil {
		return s, fmt.Errorf("cannot list the policies: %w", err)
	}
	if err := p.Live.List(ctx, bindings, ours); err != nil {
		return s, fmt.Errorf("cannot list the bindings of policies: %w", err)
	}
	return storedPolicies{policies: byName(policies.Items), bindings: byName(bindings.Items)}, nil
}

// byName has the objects of a list.
func byName[T any, P interface {
	*T
	client.Object
}](list []T) map[string]P {
	all := map[string]P{}
	for i := range list {
		all[P(&list[i]).GetName()] = &list[i]
	}
	return all
}

// write writes those that are due, and removes all others. It returns what became of
// the claim kinds whose policy could not be written. An API server that serves no policies, or
// does not let us write them, is no error: then classbind gives the default class.
func (p *Policies) write(ctx context.Context, due duePolicies) (failed map[string]PolicyOutcome, err error) {
	failed = map[string]PolicyOutcome{}
	stored, err := p.read(ctx)
	if fault := policyFault(err); fault != nil {
		for claimKind := range due.policies {
			failed[claimKind] = PolicyOutcome{Fault: fault}
		}
		return failed, nil
	}
	if err != nil {
		return nil, err
	}
	if err := p.remove(ctx, stored, due); err != nil {
		return nil, err
	}
	for _, claimKind := range slices.Sorted(maps.Keys(due.policies)) {
		err := p.writeOne(ctx, stored, due.policies[claimKind])
		if fault := policyFault(err); fault != nil {
			failed[claimKind] = PolicyOutcome{Fault: fault}
		} else if err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// policyFault is why classbind gives the default class, if that is not for this round to mend.
func policyFault(err error) *inventory.Fault {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return &inventory.Fault{
			Reason: v1beta1.ReasonPolicyNotServed,
			Text:   "the API server does not serve v1 of MutatingAdmissionPolicy, as Kubernetes 1.36 and later do",
		}
	case apierrors.IsForbidden(err):
		return &inventory.Fault{
			Reason: v1beta1.ReasonNotPermitted, Text: fmt.Sprintf("%v: apply deploy/ of this release", truncate.Error(err)),
		}
	case apierrors.IsInvalid(err) && apierrors.HasStatusCause(err, metav1.CauseTypeForbidden):
		// It is no 403, and its text tells who we are at length.
		return &inventory.Fault{Reason: v1beta1.ReasonNotPermitted, Text: fmt.Sprintf("the author of a policy must be allowed to get its "+
			"parameter: label a ClusterRole that allows get of the classes with %s=true", v1beta1.AggregateLabel)}
	case apierrors.IsInvalid(err):
		return &inventory.Fault{Reason: v1beta1.ReasonPolicyRefused, Text: truncate.Error(err).Error()}
	}
	return nil
}

// writeOne writes the policy before its binding: to name a parameter, one must be allowed
// to read its kind, which the API server finds in the policy.
func (p *Policies) writeOne(ctx context.Context, stored storedPolicies, due duePolicy) error {
	policy, binding := stored.policies[due.policy.Name], stored.bindings[due.policy.Name]
	changed := policy == nil || !equality.Semantic.DeepEqual(due.policy.Spec, policy.Spec) || !sameAbout(due.policy, policy)
	if changed {
		if err := p.apply(ctx, "MutatingAdmissionPolicy", due.policy); err != nil {
			return err
		}
	}
	if changed || binding == nil || !equality.Semantic.DeepEqual(due.binding.Spec, binding.Spec) || !sameAbout(due.binding, binding) {
		return p.apply(ctx, "MutatingAdmissionPolicyBinding", due.binding)
	}
	return nil
}

// sameAbout reports whether what we write of the metadata is stored.
func sameAbout(due, stored metav1.Object) bool {
	return equality.Semantic.DeepDerivative(due.GetLabels(), stored.GetLabels()) &&
		equality.Semantic.DeepDerivative(due.GetAnnotations(), stored.GetAnnotations()) &&
		equality.Semantic.DeepDerivative(due.GetOwnerReferences(), stored.GetOwnerReferences())
}

func (p *Policies) apply(ctx context.Context, kind string, object client.Object) error {
	if err := apply(ctx, p.Client, kind, object); err != nil {
		return fmt.Errorf("cannot write the %s %q: %w", kind, object.GetName(), err)
	}
	return nil
}

// remove removes what is not due, the bindings first. Without one of the two, the API
// server asks us.
func (p *Policies) remove(ctx context.Context, stored storedPolicies, due duePolicies) error {
	var objects []client.Object
	for _, b := range stored.bindings {
		objects = append(objects, b)
	}
	for _, p := range stored.policies {
		objects = append(objects, p)
	}
	for _, o := range objects {
		claimKind, ours := strings.CutSuffix(o.GetName(), v1beta1.PolicySuffix)
		_, isDue := due.policies[claimKind]
		if !ours || isDue || slices.Contains(due.kept[claimKind], o.GetAnnotations()[v1beta1.RegistrationsAnnotation]) {
			continue
		}
		err := p.Client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove the policy %q: %w", o.GetName(), err)
		}
	}
	return nil
}
