package inventory

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Unlimited is a limit of a class without one.
const Unlimited = math.MaxInt64

// Capacity is how much claims may use of one quantity of a class. It is immutable once the class is read.
type Capacity struct {
	// Total is the limit of all claims together, and PerNamespace that of those of one namespace, in whole units.
	Total, PerNamespace int64
	// Err says why a limit is malformed, which then counts as 0. It shows no more than the beginning of the value.
	Err *field.Error
}

// HasCapacity reports whether the claims of a class may use only so much of it.
func (k *ClassKind) HasCapacity() bool { return k.Reserving != nil }

func (k *ClassKind) setLimits(capacity []v1beta1.Capacity) {
	for i := range capacity[:min(len(capacity), v1beta1.MaxQuantities)] { // Its CRD allows no more.
		k.Reserving = &sync.Mutex{}
		var limits [len(v1beta1.LimitFields)]source
		for n, limit := range capacity[i].Limits() {
			if limit != nil {
				limits[n] = newSource(*limit)
			}
		}
		k.Quantities, k.limits = append(k.Quantities, capacity[i].Name), append(k.limits, limits)
	}
}

// newCapacity reads that of a class, nil where the kind has none. What expressions say comes later: see Class.evaluate.
func (k *ClassKind) newCapacity(annotations map[string]string, content map[string]any) []Capacity {
	if !k.HasCapacity() {
		return nil
	}
	all := make([]Capacity, len(k.limits))
	for i := range all {
		all[i] = Capacity{Total: Unlimited, PerNamespace: Unlimited}
		for n, limit := range k.limits[i] {
			value, at := limit.value(annotations, content)
			all[i].set(n, value, at)
		}
	}
	return all
}

// limits in the order of v1beta1.LimitFields.
func (c *Capacity) limits() [len(v1beta1.LimitFields)]*int64 {
	return [len(v1beta1.LimitFields)]*int64{&c.Total, &c.PerNamespace}
}

// set a limit to a value that was found at a place, nil if there is none.
func (c *Capacity) set(limit int, value any, at *field.Path) {
	if value == nil {
		return
	}
	units, _, err := expression.Units(value)
	if *c.limits()[limit] = units; err != nil {
		c.Err = field.Invalid(at, truncate.Value(value), err.Error()+", and counts as 0")
	}
}

// evaluateCapacity has what expressions say of it. derived ones look at what the class names.
func (c *Class) evaluateCapacity(derived bool, in *expression.Input, budget *expression.Budget) {
	for i := range c.Capacity {
		of := &c.Capacity[i]
		for n, limit := range c.Kind.ForClaims.Limits[i] {
			switch {
			case limit == nil:
				continue
			case limit.Uses(expression.ClassRelated) == derived:
			case derived:
				continue
			default: // Until it is derived, it holds nothing.
				*of.limits()[n] = 0
				continue
			}
			value, err := limit.Amount(in, budget)
			if of.set(n, value, field.NewPath("metadata", "name")); err != nil {
				*of.limits()[n], of.Err = 0, c.Kind.failed(rules.LimitField(c.Kind.Quantities[i], n), err, "and counts as 0")
			}
		}
	}
}

// CapacityErr says why a capacity is malformed, nil if none is.
func (c *Class) CapacityErr() *field.Error {
	for i := range c.Capacity {
		if c.Capacity[i].Err != nil {
			return c.Capacity[i].Err
		}
	}
	return nil
}

func equalCapacity(c, o Capacity) bool {
	return c.Total == o.Total && c.PerNamespace == o.PerNamespace && sameError(c.Err, o.Err)
}
