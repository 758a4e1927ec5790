package inventory

import (
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// Unlimited is a limit of a class without one.
const Unlimited = math.MaxInt64

// Capacity is how much claims may use of a class. It is immutable once the class is read.
type Capacity struct {
	// Total is the limit of all claims together, and PerNamespace that of those of one namespace, in whole units.
	Total, PerNamespace int64
	// Err says why a limit is malformed, which then counts as 0. It shows no more than the beginning of the value.
	Err *field.Error
}

// HasCapacity reports whether the claims of a class may use only so much of it.
func (k *ClassKind) HasCapacity() bool { return k.Reserving != nil }

func (k *ClassKind) setLimits(capacity *v1beta1.Capacity) {
	if capacity == nil {
		return
	}
	k.Reserving = &sync.Mutex{}
	for i, limit := range capacity.Limits() {
		if limit != nil {
			k.limits[i] = newSource(*limit)
		}
	}
}

// newCapacity reads that of a class, nil where the kind has none. What expressions say comes later: see Class.evaluate.
func (k *ClassKind) newCapacity(annotations map[string]string, content map[string]any) *Capacity {
	if !k.HasCapacity() {
		return nil
	}
	c := &Capacity{Total: Unlimited, PerNamespace: Unlimited}
	for i, limit := range k.limits {
		value, at := limit.value(annotations, content)
		c.set(i, value, at)
	}
	return c
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

func (c *Capacity) equal(o *Capacity) bool {
	return c == o || c != nil && o != nil && c.Total == o.Total && c.PerNamespace == o.PerNamespace && sameError(c.Err, o.Err)
}
