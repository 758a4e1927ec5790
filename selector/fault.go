package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// unknownValue is the fault of a ClaimKind with a value that this release does not
// know, nil if there is none. Another release accepted it: to use the default instead
// would permanently bind claims in a way nobody configured. An absent value is the default: the
// API server fills that in, except for a field that its CRD does not have yet.
func unknownValue(k *v1beta1.ClaimKind) *inventory.Fault {
	strategyNames := make([]v1beta1.Strategy, 0, len(strategies))
	for name := range strategies {
		strategyNames = append(strategyNames, name)
	}
	formNames := make([]string, len(claim.Forms))
	for i, f := range claim.Forms {
		formNames[i] = string(f.Name)
	}
	type enumeration struct {
		field, value string
		known        []string
	}
	all := []enumeration{
		{"reference.form", string(k.Spec.Reference.Form), formNames},
		{
			"reference.whenEmpty", string(k.Spec.Reference.WhenEmpty),
			claim.Strings(v1beta1.LeaveEmptyAlone, v1beta1.BindEmpty),
		},
		{
			"reference.whenAbsent", string(k.Spec.Reference.WhenAbsent),
			claim.Strings(v1beta1.BindAbsent, v1beta1.LeaveAbsentAlone),
		},
		{"reference.explicit", string(k.Spec.Reference.Explicit), claim.Strings(v1beta1.AllowExplicit, v1beta1.CheckExplicit)},
		{"classes.precedence", string(k.Spec.Classes.Precedence), claim.Strings(v1beta1.PrecedenceName, v1beta1.PrecedenceListed)},
		{
			"reference.whenParentAbsent", string(k.Spec.Reference.WhenParentAbsent),
			claim.Strings(v1beta1.CreateParent, v1beta1.LeaveClaimAlone),
		},
		{
			"selector.whenAbsent", string(k.Spec.Selector.WhenAbsent),
			claim.Strings(v1beta1.NoSelectorDefault, v1beta1.NoSelectorDefaultIfAny, v1beta1.NoSelectorAny,
				v1beta1.NoSelectorLeaveAlone),
		},
		{
			"classes.namespaces.from", string(k.Spec.Classes.Namespaces.From),
			claim.Strings(v1beta1.FromSameAsClaim, v1beta1.FromAll, v1beta1.FromNames),
		},
		{"choice.strategy", string(k.Spec.Choice.Strategy), claim.Strings(strategyNames...)},
		{"choice.annotate", string(k.Spec.Choice.Annotate), claim.Strings(v1beta1.AnnotateNothing, v1beta1.AnnotateDecision)},
		{"choice.seed", string(k.Spec.Choice.Seed), claim.Strings(v1beta1.SeedClaim, v1beta1.SeedRequest)},
		{"whenUnmatched", string(k.Spec.WhenUnmatched), claim.Strings(v1beta1.Admit, v1beta1.Deny, v1beta1.BindLater)},
		{"admission.defaulting", string(k.Spec.Admission.Defaulting), claim.Strings(v1beta1.DefaultingWebhook, v1beta1.DefaultingPolicy)},
		{"reference.onUnbind", string(k.Spec.Reference.OnUnbind), claim.Strings(v1beta1.RestoreReference, v1beta1.AllowUnbind)},
		{"admission.order", string(k.Spec.Admission.Order), claim.Strings(v1beta1.OrderLast, v1beta1.OrderFirst)},
		{"admission.failurePolicy", string(k.Spec.Admission.FailurePolicy), claim.Strings(v1beta1.Fail, v1beta1.Ignore)},
	}
	for i, e := range k.Spec.Claims.NamespaceSelector.MatchExpressions {
		all = append(all, enumeration{
			fmt.Sprintf("claims.namespaceSelector.matchExpressions[%d].operator", i), string(e.Operator),
			claim.Strings(claim.NamespaceOperators...),
		})
	}
	for _, f := range all {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			slices.Sort(f.known)
			return inventory.Faultf(v1beta1.ReasonUnknownValue,
				"claim kind %q has the %s %q, which this release of classbind does not know: "+
					"set spec.%s to one of %s, or upgrade classbind",
				k.Name, f.field, f.value, f.field, strings.Join(f.known, ", "))
		}
	}
	return nil
}

// OfPaths reports whether a fault with this reason is that of a registration that does not fit the
// schema of its claims.
func OfPaths(reason string) bool {
	return reason == v1beta1.ReasonReferencePruned || reason == v1beta1.ReasonPathsInvalid
}
