package selector

import (
	"slices"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// BindWhen returns the expression bindWhen of a ClaimKind as the API server can evaluate it,
// with this name for the claim. It is empty where there is none, where it looks at more than
// the claim and who creates it, and where it is at fault. decides says that bindWhen looks at
// the class reference, and so decides on claims that have one.
func BindWhen(k *v1alpha1.ClaimKind, claim string) (condition string, decides bool) {
	if k.Spec.BindWhen == "" {
		return "", false
	}
	scope := expression.Scope{Variables: []string{expression.Claim, expression.Namespace, expression.Request, expression.Related}}
	for _, r := range k.Spec.Related {
		scope.Related = append(scope.Related, r.Name)
	}
	e, err := expression.Compile(string(k.Spec.BindWhen), expression.Bool, scope)
	if err != nil {
		return "", false
	}
	if !e.Uses(expression.Namespace) && !e.Uses(expression.Related) {
		condition = e.Rename(map[string]string{expression.Claim: claim})
	}
	return condition, looksAt(e, k.Spec.Reference.Place().Names())
}

// looksAt says whether an expression looks at a place in a claim, or above or below it.
func looksAt(e *expression.Expression, place []string) bool {
	for _, p := range e.Looks(expression.Claim) {
		n := min(len(p), len(place))
		if slices.Equal(p[:n], expression.Path(place[:n])) {
			return true
		}
	}
	return false
}

const NotYet = "NotYet" // STUB

// Given says whether the claim refers to its class already: bindWhen decides on claims that
// have a reference.
func (d *Decision) Given() bool { return false } // STUB
