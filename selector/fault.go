package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Fault of a registration: the reason of its Ready condition, and a text.
type Fault struct{ Reason, Text string }

func (f *Fault) Error() string { return f.Text }

// fault is why no claim can be bound to these classes, nil if one can.
func (k *ClaimKind) fault(classes []*Classes) *Fault {
	if k.unknown != nil {
		return k.unknown
	}
	if len(classes) <= 1 || k.form.namesKind {
		return nil
	}
	names := make([]string, len(classes))
	for i, s := range classes {
		names[i] = s.Kind.Name
	}
	return &Fault{v1alpha1.ReasonAmbiguousReference, fmt.Sprintf(
		"claim kind %q has class kinds %q, which a reference of the form %s cannot tell apart: "+
			"set spec.classRefFormat to %s, or leave one class kind",
		k.Name, names, k.form.name, strings.Join(formsThatNameKinds(), " or "))}
}

func formsThatNameKinds() (names []string) {
	for _, f := range referenceForms {
		if f.namesKind {
			names = append(names, string(f.name))
		}
	}
	return names
}

// unknownValue is the fault of a ClaimKind with a value that this release does not
// know, nil if there is none. Another release accepted it: to use the default instead
// would bind claims for good as nobody asked for. An absent value is the default: the
// API server fills that in, except for a field that its CRD does not have yet.
func unknownValue(k *v1alpha1.ClaimKind) *Fault {
	strategyNames := make([]v1alpha1.Strategy, 0, len(strategies))
	for name := range strategies {
		strategyNames = append(strategyNames, name)
	}
	formNames := make([]string, len(referenceForms))
	for i, f := range referenceForms {
		formNames[i] = string(f.name)
	}
	for _, f := range []struct {
		field, value string
		known        []string
	}{
		{"classRefFormat", string(k.Spec.ClassRefFormat), formNames},
		{
			"classNamespaces.from", string(k.Spec.ClassNamespaces.From),
			toStrings(v1alpha1.FromSameAsClaim, v1alpha1.FromAll, v1alpha1.FromNames),
		},
		{"strategy", string(k.Spec.Strategy), toStrings(strategyNames...)},
		{"seed", string(k.Spec.Seed), toStrings(v1alpha1.SeedClaim, v1alpha1.SeedRequest)},
		{"whenUnmatched", string(k.Spec.WhenUnmatched), toStrings(v1alpha1.Admit, v1alpha1.Deny, v1alpha1.BindLater)},
		{"failurePolicy", string(k.Spec.FailurePolicy), toStrings(v1alpha1.Fail, v1alpha1.Ignore)},
	} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			slices.Sort(f.known)
			return &Fault{v1alpha1.ReasonUnknownValue, fmt.Sprintf(
				"claim kind %q has the %s %q, which this release of classbind does not know: "+
					"set spec.%s to one of %s, or upgrade classbind",
				k.Name, f.field, f.value, f.field, strings.Join(f.known, ", "))}
		}
	}
	return nil
}

func toStrings[T ~string](values ...T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}
