package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Fault of a registration: the reason of its Ready condition, and a text.
type Fault struct{ Reason, Text string }

func (f *Fault) Error() string { return f.Text }

// FaultOf a class kind is why its classes are left out, nil if they are not.
func (v *View) FaultOf(classKind string) *Fault {
	i := slices.IndexFunc(v.LeftOut, func(k *ClassKind) bool { return k.Name == classKind })
	if i < 0 {
		return nil
	}
	kind, first := v.LeftOut[i], v.insteadOf(v.LeftOut[i])
	var forms []string
	for _, f := range claim.Forms {
		if !f.Confuses(kind.GroupVersionKind, first.GroupVersionKind) {
			forms = append(forms, string(f.Name))
		}
	}
	return &Fault{v1alpha1.ReasonAmbiguousReference, fmt.Sprintf(
		"the classes of %q are not offered to claims of %q: a reference of the form %s cannot tell them from those of %q, "+
			"whose name comes first: set spec.reference.form of the ClaimKind to one that can (%s), or let one class kind serve it",
		classKind, v.Kind.Name, v.Kind.Form.Name, first.Name, strings.Join(forms, ", "))}
}

// unknownValue is the fault of a ClaimKind with a value that this release does not
// know, nil if there is none. Another release accepted it: to use the default instead
// would permanently bind claims in a way nobody configured. An absent value is the default: the
// API server fills that in, except for a field that its CRD does not have yet.
func unknownValue(k *v1alpha1.ClaimKind) *Fault {
	strategyNames := make([]v1alpha1.Strategy, 0, len(strategies))
	for name := range strategies {
		strategyNames = append(strategyNames, name)
	}
	formNames := make([]string, len(claim.Forms))
	for i, f := range claim.Forms {
		formNames[i] = string(f.Name)
	}
	for _, f := range []struct {
		field, value string
		known        []string
	}{
		{"reference.form", string(k.Spec.Reference.Form), formNames},
		{
			"reference.whenParentAbsent", string(k.Spec.Reference.WhenParentAbsent),
			claim.Strings(v1alpha1.CreateParent, v1alpha1.LeaveClaimAlone),
		},
		{
			"whenNoSelector", string(k.Spec.WhenNoSelector),
			claim.Strings(v1alpha1.NoSelectorDefault, v1alpha1.NoSelectorAny, v1alpha1.NoSelectorLeaveAlone),
		},
		{
			"classNamespaces.from", string(k.Spec.ClassNamespaces.From),
			claim.Strings(v1alpha1.FromSameAsClaim, v1alpha1.FromAll, v1alpha1.FromNames),
		},
		{"strategy", string(k.Spec.Strategy), claim.Strings(strategyNames...)},
		{"seed", string(k.Spec.Seed), claim.Strings(v1alpha1.SeedClaim, v1alpha1.SeedRequest)},
		{"whenUnmatched", string(k.Spec.WhenUnmatched), claim.Strings(v1alpha1.Admit, v1alpha1.Deny, v1alpha1.BindLater)},
		{"defaulting", string(k.Spec.Defaulting), claim.Strings(v1alpha1.DefaultingWebhook, v1alpha1.DefaultingPolicy)},
		{"onUnbind", string(k.Spec.OnUnbind), claim.Strings(v1alpha1.RestoreReference, v1alpha1.AllowUnbind)},
		{"order", string(k.Spec.Order), claim.Strings(v1alpha1.OrderLast, v1alpha1.OrderFirst)},
		{"failurePolicy", string(k.Spec.FailurePolicy), claim.Strings(v1alpha1.Fail, v1alpha1.Ignore)},
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

// faultOf a registration with invalid expressions, nil if there are none.
func faultOf(what, name string, invalid []rules.Invalid) *Fault {
	if len(invalid) == 0 {
		return nil
	}
	texts := make([]string, 0, v1alpha1.MaxErrors)
	for _, i := range invalid[:min(len(invalid), v1alpha1.MaxErrors)] {
		texts = append(texts, i.Error())
	}
	return &Fault{v1alpha1.ReasonInvalidExpression, fmt.Sprintf("%s %q: %s", what, name,
		truncate.String(strings.Join(texts, "; "), 2*v1alpha1.MaxMessageBytes))}
}

// OfPaths reports whether a fault with this reason is that of a registration that does not fit the
// schema of its claims.
func OfPaths(reason string) bool {
	return reason == v1alpha1.ReasonReferencePruned || reason == v1alpha1.ReasonPathsInvalid
}
