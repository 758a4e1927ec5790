package webhookconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// stored are the policies of a kind and their bindings that classbind wrote, bindings first, from the API server itself.
func (p *Policies) stored(ctx context.Context) (all []client.Object, err error) {
	policies, bindings := p.Kind.lists()
	for _, list := range []client.ObjectList{bindings, policies} {
		err = p.Live.List(ctx, list, client.MatchingLabels{v1beta1.ManagedByLabel: v1beta1.ManagedBy})
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error {
				all = append(all, o.(client.Object)) // It has metadata.
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list the policies: %w", err)
		}
	}
	return all, nil
}

// specOf a policy or a binding, of either kind.
func specOf(o client.Object) any { return reflect.ValueOf(o).Elem().FieldByName("Spec").Interface() }

func isStored(due, stored client.Object) bool {
	return stored != nil && equality.Semantic.DeepEqual(specOf(due), specOf(stored)) &&
		equality.Semantic.DeepDerivative(due.GetLabels(), stored.GetLabels()) &&
		equality.Semantic.DeepDerivative(due.GetAnnotations(), stored.GetAnnotations()) &&
		equality.Semantic.DeepDerivative(due.GetOwnerReferences(), stored.GetOwnerReferences())
}

// write writes those that are due, and removes all others. It returns the outcomes of the claim kinds whose policy could not be written, or
// is changed by other clients, since those before were written. An
// API server that serves no policies, or does not let us write them, is no error: only an admin can mend that.
func (p *Policies) write(
	ctx context.Context, due duePolicies, before map[string]duePolicy,
) (failed map[string]PolicyOutcome, err error) {
	failed = map[string]PolicyOutcome{}
	stored, err := p.stored(ctx)
	if fault := p.faultOf(err); fault != nil {
		for claimKind := range due.policies {
			failed[claimKind] = PolicyOutcome{Fault: fault}
		}
		return failed, nil
	}
	if err != nil {
		return nil, err
	}
	errs := []error{p.remove(ctx, stored, due)}
	for _, claimKind := range slices.Sorted(maps.Keys(due.policies)) {
		policy := due.policies[claimKind]
		outcome := due.outcomes[claimKind]
		err := recovered.Do(func() (err error) {
			outcome.Others, err = p.writeOne(ctx, stored, policy, reflect.DeepEqual(policy, before[claimKind]))
			return err
		})
		if fault := p.faultOf(err); fault != nil {
			failed[claimKind] = PolicyOutcome{Fault: fault}
		} else if outcome.Others != "" {
			failed[claimKind] = outcome
		} else {
			errs = append(errs, err) // The others are written all the same.
		}
	}
	return failed, errors.Join(errs...)
}

// NotPermitted is the fault of a policy that classbind may not write.
func NotPermitted(err error) *inventory.Fault {
	return inventory.Faultf(v1beta1.ReasonNotPermitted, "%v: install the component policies of this release (kubectl apply -k "+
		"deploy/components/policies), or set policies.enabled of the Helm chart", truncate.Error(err))
}

// faultOf an error is why a policy is not written, if that is not for this round to mend.
func (p *Policies) faultOf(err error) *inventory.Fault {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return &inventory.Fault{
			Reason: v1beta1.ReasonPolicyNotServed,
			Text:   fmt.Sprintf("the API server does not serve v1 of %s, as Kubernetes %s and later do", p.Kind.name, p.Kind.since),
		}
	case apierrors.IsForbidden(err):
		return NotPermitted(err)
	case apierrors.IsInvalid(err) && apierrors.HasStatusCause(err, metav1.CauseTypeForbidden):
		// It is no 403, and its text describes us at length.
		return &inventory.Fault{Reason: v1beta1.ReasonNotPermitted, Text: fmt.Sprintf("the author of a policy must be allowed to get its "+
			"parameter: label a ClusterRole that allows get of the classes with %s=true", v1beta1.AggregateLabel)}
	case apierrors.IsInvalid(err):
		return &inventory.Fault{Reason: v1beta1.ReasonPolicyRefused, Text: truncate.Error(err).Error()}
	}
	return nil
}

// writeOne writes the policy before its binding: to name a parameter, one must be allowed to read its kind, which the API server finds in
// the policy. What is missing of one that was written was changed by another client; it returns what to say of that.
func (p *Policies) writeOne(ctx context.Context, stored []client.Object, due duePolicy, wasWritten bool) (others string, err error) {
	for _, o := range []client.Object{due.policy, due.binding} {
		what := nameOf(o)
		var now client.Object
		var managers []metav1.ManagedFieldsEntry
		if i := slices.IndexFunc(stored, func(o client.Object) bool { return nameOf(o) == what }); i >= 0 {
			now, managers = stored[i], stored[i].GetManagedFields()
		}
		if left, _ := p.disputes.left(what); !isStored(o, now) && (!wasWritten || left == 0) {
			if err := p.put(ctx, now, o); err != nil {
				return "", fmt.Errorf("cannot write the %s: %w", what, err)
			}
			if wasWritten {
				p.disputes.putBack(ctx, what, managers)
			}
		}
		_, text := p.disputes.left(what)
		others = cmp.Or(others, text)
	}
	return others, nil
}

// nameOf a policy or a binding, with its kind.
func nameOf(o client.Object) string {
	return fmt.Sprintf("%s %q", reflect.TypeOf(o).Elem().Name(), o.GetName())
}

// put creates what is due, or changes what is stored, unless somebody has written since: a leader that was deposed must not put back an
// older policy.
func (p *Policies) put(ctx context.Context, stored, due client.Object) error {
	o := due.DeepCopyObject().(client.Object) // It is a copy of one.
	if stored == nil {
		return p.Client.Create(ctx, o, client.FieldOwner(v1beta1.FieldManager))
	}
	changed := stored.DeepCopyObject().(client.Object) // It is a copy of one.
	reflect.ValueOf(changed).Elem().FieldByName("Spec").Set(reflect.ValueOf(specOf(o)))
	changed.SetLabels(labels.Merge(stored.GetLabels(), due.GetLabels()))
	changed.SetAnnotations(labels.Merge(stored.GetAnnotations(), due.GetAnnotations()))
	changed.SetOwnerReferences(due.GetOwnerReferences())
	err := p.Client.Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(v1beta1.FieldManager))
	if apierrors.IsNotFound(err) { // It was deleted since.
		err = apierrors.NewConflict(schema.GroupResource{Resource: p.Kind.name}, due.GetName(), err)
	}
	return err
}

// remove removes what is neither due nor kept, the bindings first. One without the other does nothing.
func (p *Policies) remove(ctx context.Context, stored []client.Object, due duePolicies) error {
	var errs []error
	for _, o := range stored {
		claimKind, ours := strings.CutSuffix(o.GetName(), p.Kind.suffix)
		_, isDue := due.policies[claimKind]
		registrations, isKept := due.kept[claimKind]
		isKept = isKept && (p.Kind.enforces || slices.Contains(registrations, o.GetAnnotations()[v1beta1.RegistrationsAnnotation]))
		if !ours || isDue || isKept {
			continue
		}
		err := p.Client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID()), ResourceVersion: new(o.GetResourceVersion())})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("cannot remove the policy %q: %w", o.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
