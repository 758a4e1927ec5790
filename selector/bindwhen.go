package selector

import (
	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// BindWhen returns the expression bindWhen of a ClaimKind as the API server can evaluate it,
// with this name for the claim. It is empty where there is none, where it looks at more than
// the claim and who creates it, and where it is at fault. decides says that it looks at the
// class reference, and so decides on claims that have one.
func BindWhen(k *v1alpha1.ClaimKind, claim string) (condition string, decides bool) {
	if k.Spec.BindWhen == "" {
		return "", false
	}
	e, err := expression.Compile(string(k.Spec.BindWhen), expression.Bool, scopeOfClaim(&k.Spec))
	if err != nil {
		return "", false
	}
	if !e.Uses(expression.Namespace) && !e.Uses(expression.Related) {
		condition = e.Rename(map[string]string{expression.Claim: claim})
	}
	return condition, decidesOn(e, k.Spec.Reference.Place().Names())
}

// AsksOthers reports whether bindWhen looks at more than the claim: a claim alone does not
// show whether it is to be bound now.
func (r *Reader) AsksOthers() bool {
	return r.bindWhen != nil && !readsClaimAlone(r.bindWhen)
}

// Given says that the claim refers to its class already, so there is nothing to write. That
// is so where bindWhen is true for such a claim, too.
func (d *Decision) Given() bool {
	k, in := d.View.Kind, &d.Claim
	if d.Class == nil || !k.decides {
		return false
	}
	to, has := k.refersTo(in.Object)
	if !has {
		return false
	}
	counts := k.countsFor(in.Namespace, to)
	return counts[0] == k.countedAs(d.Class) || counts[1] != 0 && counts[1] == k.countedAs(d.Class)
}
