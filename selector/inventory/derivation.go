package inventory

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/selector/rules"
)

// derivation gives classes further keys in the index, beside their labels: for the claims of one kind, the fields that equality terms ask
// for, and of a default class its partition. Without it, the classes of a kind have the same keys for the claims of all kinds.
type derivation struct {
	equal  []*rules.Equality // of different keys
	demand *Demand
}

const (
	// defaultKey is the key of a default class, and its value the partition.
	defaultKey = "="
	// faultyKey is the key of a class with which something is wrong.
	faultyKey = "!"
)

// newDerivation of the classes of a kind, nil if there is none.
func newDerivation(demand *Demand, kind *ClassKind) *derivation {
	d := &derivation{demand: demand}
	for _, f := range slices.Concat(demand.rules.Fits, kind.ForClaims.Fits) {
		for _, e := range f.Equal {
			if !slices.ContainsFunc(d.equal, func(o *rules.Equality) bool { return o.Key == e.Key }) {
				d.equal = append(d.equal, e)
			}
		}
	}
	if len(d.equal) == 0 && demand.rules.PartitionClass == nil {
		return nil
	}
	return d
}

// labels are what a class has in the index: its labels, and what is derived.
func (d *derivation) labels(c *Class) Labels {
	all := slices.Clip(c.Labels)
	if isFaulty(c) {
		all = append(all, newKeyed(faultyKey, ""))
	}
	if c.Default {
		if partition, err := d.partitionFor(c); err == nil {
			all = append(all, newKeyed(defaultKey, partition))
		}
	}
	if d == nil || c.Fields == nil {
		return all
	}
	for _, e := range d.equal {
		if value, ok := c.Fields.Lookup(e.Path); ok {
			if text, ok := derivedValue(value); ok {
				all = append(all, newKeyed(e.Key, text))
			}
		}
	}
	return all
}

func (d *derivation) partitionFor(c *Class) (string, error) {
	if d == nil {
		return "", nil
	}
	return d.demand.PartitionFor(c)
}

// derivedValue is the text of a value in the index, so that equal values have the same; false if the index does not have such values.
func derivedValue(value any) (text string, indexed bool) {
	const exact = 1 << 53 // Above, a float64 equals several integers.
	switch v := value.(type) {
	case string:
		return "s" + v, true
	case bool:
		return fmt.Sprintf("b%t", v), true
	case int64:
		if v > -exact && v < exact {
			return fmt.Sprintf("n%d", v), true
		}
	case float64:
		if v == float64(int64(v)) && v > -exact && v < exact {
			return fmt.Sprintf("n%d", int64(v)), true
		}
	}
	return "", false
}

// Value is the claim's side of an equality.
type Value struct {
	Equality *rules.Equality
	Value    any
	Err      error

	text string
	// Indexed reports whether the index has such values.
	Indexed bool
}

// NewValue of an equality for a claim, or why there is none.
func NewValue(of *rules.Equality, value any, err error) Value {
	v := Value{Equality: of, Value: value, Err: err}
	if err == nil {
		v.text, v.Indexed = derivedValue(value)
	}
	return v
}

// Equals reports whether a class has the value, which the index may have.
func (v *Value) Equals(c *Class) bool {
	if text, isText := v.Value.(string); isText {
		return c.Fields.HasText(v.Equality.Path, text)
	}
	has, ok := c.Fields.Lookup(v.Equality.Path)
	if !ok {
		return false
	}
	text, indexed := derivedValue(has)
	return indexed && text == v.text
}

// Values of the equalities of a claim.
type Values []Value

// terms are the equalities of some fits, with values that the index may have.
func (v Values) terms(lists ...[]*rules.Fit) (terms []term) {
	for _, f := range slices.Concat(lists...) {
		for _, e := range f.Equal {
			if value := v.Of(e); value != nil && value.Indexed {
				terms = append(terms, newTerm(e.Key, selection.In, value.text))
			}
		}
	}
	return terms
}

// Of an equality, nil if it is not known.
func (v Values) Of(e *rules.Equality) *Value {
	for i := range v {
		if v[i].Equality == e {
			return &v[i]
		}
	}
	return nil
}
