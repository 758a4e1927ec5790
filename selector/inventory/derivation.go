package inventory

import (
	"fmt"
	"iter"
	"slices"
	"unique"

	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// derivation gives classes further keys in the index of a view, beside their labels: the
// fields that equality terms ask for, and of a default class its partition.
type derivation struct {
	paths []derivedPath
	// partitions is the kind whose partition default classes are indexed by, nil if there is none.
	partitions *Demand
}

type derivedPath struct {
	key  keyed // without a label
	path fields.Path
}

// partitionKey is the key of the partition of a default class.
const partitionKey text = "="

func newDerivation(demand *Demand, known []*Classes) *derivation {
	d := &derivation{}
	add := func(fits []*rules.Fit) {
		for _, f := range fits {
			for _, e := range f.Equal {
				if d.find(e.Key) == nil {
					d.paths = append(d.paths, derivedPath{keyed{hash: text(e.Key).Hash(), key: unique.Make(e.Key)}, e.Path})
				}
			}
		}
	}
	add(demand.Fits)
	for _, s := range known {
		add(s.Kind.ForClaims.Fits)
	}
	if demand.PartitionClass != nil {
		d.partitions = demand
	}
	if len(d.paths) == 0 && d.partitions == nil {
		return nil
	}
	return d
}

func (d *derivation) find(key string) *derivedPath {
	for i := range d.paths {
		if d.paths[i].key.key.Value() == key {
			return &d.paths[i]
		}
	}
	return nil
}

// labels are what a class has in the index: its labels, and what is derived. nil has none.
func (d *derivation) labels(c *Class) Labels {
	if c == nil {
		return nil
	}
	if d == nil {
		return c.Labels
	}
	all := slices.Clip(c.Labels)
	for _, p := range d.paths {
		if c.Fields == nil { // A partition may be the same for all classes.
			break
		}
		if value, ok := c.Fields.Lookup(p.path); ok {
			if text, ok := derivedValue(value); ok {
				all = append(all, keyed{p.key.hash, p.key.key, newLabel(p.key.key, string(text))})
			}
		}
	}
	if d.partitions != nil && c.Default {
		if partition, err := d.partitions.PartitionFor(c); err == nil {
			key := unique.Make(string(partitionKey))
			all = append(all, keyed{partitionKey.Hash(), key, newLabel(key, partition)})
		}
	}
	return all
}

// derivedValue is the text of a value in the index, so that equal values have the same; false if the index does not have such values.
func derivedValue(value any) (text, bool) {
	const exact = 1 << 53 // Above, a float64 equals several integers.
	switch v := value.(type) {
	case string:
		return text("s" + v), true
	case bool:
		return text(fmt.Sprintf("b%t", v)), true
	case int64:
		if v > -exact && v < exact {
			return text(fmt.Sprintf("n%d", v)), true
		}
	case float64:
		if v == float64(int64(v)) && v > -exact && v < exact {
			return text(fmt.Sprintf("n%d", int64(v))), true
		}
	}
	return "", false
}

// Value is the claim's side of an equality.
type Value struct {
	Equality *rules.Equality
	Value    any
	Err      error

	text text
	// Indexed says that the index has such values.
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

// indexed yields the values of the equalities of some fits that the index may have.
func (v Values) indexed(fits []*rules.Fit) iter.Seq[*Value] {
	return func(yield func(*Value) bool) {
		for _, f := range fits {
			for _, e := range f.Equal {
				if value := v.Of(e); value != nil && value.Indexed && !yield(value) {
					return
				}
			}
		}
	}
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
