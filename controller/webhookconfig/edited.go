package webhookconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
)

// StoredClaimEntry returns the entry of a claim kind as the API server stores it, for a
// resource that it serves.
func (w *Configurator) StoredClaimEntry(
	k *v1alpha1.ClaimKind, found cluster.Resource, ca []byte,
) (*admissionregistrationv1.MutatingWebhook, error) {
	stored := &admissionregistrationv1.MutatingWebhook{}
	err := convert(w.claimEntry(k, servedRule(k.Resource(), found), ca), stored)
	stored.ObjectSelector = &metav1.LabelSelector{} // The API server fills it in.
	return stored, err
}

// WithoutRefused leaves out of the entry that is due for a claim kind what the one that is
// stored lacks because the API server did not take it, and says whether there is such a thing.
func WithoutRefused(due, stored *admissionregistrationv1.MutatingWebhook) bool {
	isBindWhen := func(c admissionregistrationv1.MatchCondition) bool { return c.Name == bindWhenCondition }
	if slices.ContainsFunc(stored.MatchConditions, isBindWhen) {
		return false
	}
	all := len(due.MatchConditions)
	due.MatchConditions = slices.DeleteFunc(due.MatchConditions, isBindWhen)
	return len(due.MatchConditions) < all
}

// StoredClassEntry does the same as StoredClaimEntry for a class kind, which depends on its
// ClaimKinds.
func (w *Configurator) StoredClassEntry(
	k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind, found cluster.Resource, ca []byte,
) (*admissionregistrationv1.ValidatingWebhook, error) {
	rule := servedRule(k.Name, found).WithOperations(admissionregistrationv1.Update)
	return storedEntry(w.classEntry(k, claimKinds, rule, ca))
}

// StoredDeletionEntry does the same for the deletions of a class kind.
func (w *Configurator) StoredDeletionEntry(
	k *v1alpha1.ClassKind, found cluster.Resource, ca []byte,
) (*admissionregistrationv1.ValidatingWebhook, error) {
	return storedEntry(w.deletionEntry(k, servedRule(k.Name, found), ca))
}

func storedEntry(e *classEntry) (*admissionregistrationv1.ValidatingWebhook, error) {
	stored := &admissionregistrationv1.ValidatingWebhook{}
	err := convert(e, stored)
	stored.ObjectSelector = &metav1.LabelSelector{}
	return stored, err
}

// Edited returns the fields in which an entry differs from the one that is due, sorted.
func Edited(due, entry any) ([]string, error) {
	want, got := map[string]any{}, map[string]any{}
	if err := convert(due, &want); err != nil {
		return nil, err
	}
	if err := convert(entry, &got); err != nil {
		return nil, err
	}
	all := maps.Clone(want)
	maps.Copy(all, got)
	same := func(name string) bool { return reflect.DeepEqual(want[name], got[name]) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), same), nil
}

func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("cannot encode an entry: %w", err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("cannot decode an entry: %w", err)
	}
	return nil
}
