package rules

import (
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// Usage is how much a claim uses of a quantity.
type Usage struct {
	Of v1beta1.QuantityName
	// Field of the ClaimKind that has the expression, which is nil if it is invalid.
	Field      string
	Expression *expression.Expression
}

// addUsage compiles how much a claim uses of each quantity. Who asks is not known of a claim that is counted.
func (r *ForClaims) addUsage(s *v1beta1.ClaimKindSpec) {
	scope, readsOthers := scopeOf(s, len(s.Classes.Related)), false
	var looks []fields.Path
	for _, u := range s.Classes.Usage[:min(len(s.Classes.Usage), v1beta1.MaxQuantities)] { // Its CRD allows no more.
		field := "spec.classes.usage[" + string(u.Name) + "].expression"
		e := r.compile(field, u.Expression, expression.Amount, scope)
		if r.Usage = append(r.Usage, Usage{u.Name, field, e}); e != nil {
			looks, readsOthers = append(looks, e.Looks(expression.Claim)...), readsOthers || !ReadsClaimAlone(e)
		}
	}
	if !readsOthers {
		return
	}
	for _, relation := range r.Related {
		for _, e := range []*expression.Expression{relation.ObjectName, relation.ObjectNamespace} {
			if e != nil {
				looks = append(looks, e.Looks(expression.Claim)...)
			}
		}
	}
	r.UsageReadsOthers, r.UsageLooks = true, expression.NewFields(looks...).Paths()
}

// addLimits compiles those of each quantity of a capacity.
func (r *ForClasses) addLimits(capacity []v1beta1.Capacity, ofClass expression.Scope) {
	for i := range capacity {
		var limits [len(v1beta1.LimitFields)]*expression.Expression
		for n, limit := range capacity[i].Limits() {
			if limit != nil {
				limits[n] = r.compile(LimitField(capacity[i].Name, n), limit.Expression, expression.Amount, ofClass)
			}
		}
		r.Limits = append(r.Limits, limits)
	}
}

// Values are those that follow from a class alone, or from it and the objects that it names: its weight, and the limits of its capacity.
func (r *ForClasses) Values() (all []*expression.Expression) {
	if r.Weight != nil {
		all = append(all, r.Weight)
	}
	for i := range r.Limits {
		for _, limit := range r.Limits[i] {
			if limit != nil {
				all = append(all, limit)
			}
		}
	}
	return all
}

// LimitField is the field of the expression for a limit of a quantity.
func LimitField(of v1beta1.QuantityName, limit int) string {
	return "spec.capacity[" + string(of) + "]." + v1beta1.LimitFields[limit] + ".expression"
}

// UsageIndex is that of a quantity in Usage, -1 if the ClaimKind does not name it.
func (r *ForClaims) UsageIndex(quantity v1beta1.QuantityName) int {
	for i := range r.Usage {
		if r.Usage[i].Of == quantity {
			return i
		}
	}
	return -1
}
