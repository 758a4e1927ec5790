package webhookconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
)

// EditedClaimEntry returns the fields of a claim kind's entry that are not as the
// Configurator writes them, sorted. It takes the CA of the entry for granted.
func (w *Configurator) EditedClaimEntry(
	k *v1alpha1.ClaimKind, found cluster.Resource, stored *admissionregistrationv1.MutatingWebhook,
) ([]string, error) {
	return edited(w.claimEntry(k, servedRule(k.Name, found), stored.ClientConfig.CABundle), stored)
}

// EditedClassEntry does the same for the entry of a class kind.
func (w *Configurator) EditedClassEntry(
	k *v1alpha1.ClassKind, found cluster.Resource, stored *admissionregistrationv1.ValidatingWebhook,
) ([]string, error) {
	rule := servedRule(k.Name, found).WithOperations(admissionregistrationv1.Update)
	return edited(w.classEntry(k, rule, stored.ClientConfig.CABundle), stored)
}

// edited returns the fields in which a stored entry differs from the due one.
func edited(due, stored any) ([]string, error) {
	want, err := fieldsOf(due)
	if err != nil {
		return nil, err
	}
	want["objectSelector"] = map[string]any{} // The API server fills it in.
	got, err := fieldsOf(stored)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(want)
	maps.Copy(all, got)
	same := func(name string) bool { return reflect.DeepEqual(want[name], got[name]) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), same), nil
}

func fieldsOf(entry any) (map[string]any, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("cannot encode an entry: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("cannot compare an entry: %w", err)
	}
	return fields, nil
}
