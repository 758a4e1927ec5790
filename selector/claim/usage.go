package claim

import (
	"fmt"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
)

// Usage is how much a claim uses of the quantities that its ClaimKind names, in its order, in whole units.
type Usage [v1beta1.MaxQuantities]int64

// Unknown is in the place of an amount for which a list of related objects is too long.
const Unknown = -1

// Failed is the usage of a claim whose expressions fail, or have never been known.
var Failed = Usage{1, 1, 1, 1}

// Or is the usage with that of before in the place of what is not known.
func (u Usage) Or(before Usage) Usage {
	for i := range u {
		if u[i] == Unknown {
			u[i] = before[i]
		}
	}
	return u
}

// Frees reports whether a claim that uses so much from now on leaves some of what it used to others.
func (u Usage) Frees(now Usage) bool {
	for i := range u {
		if u[i] > now[i] {
			return true
		}
	}
	return false
}

// UsageOf a quantity by an expression: a whole number, rounded up. The error says why there is none. A claim that is stored counts as 1
// then: it must count something, and was let in when another expression was in force. So it does with an invalid expression, which is nil.
func UsageOf(e *expression.Expression, in *expression.Input, budget *expression.Budget) (int64, error) {
	if e == nil {
		return 1, nil
	}
	usage := int64(0)
	amount, err := e.Amount(in, budget)
	if err == nil {
		_, usage, err = expression.Units(amount)
	}
	switch {
	case err != nil:
		return 1, err
	case usage > v1beta1.MaxUsage:
		return 1, fmt.Errorf("must not be more than %d", int64(v1beta1.MaxUsage))
	}
	return usage, nil
}
