package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// Budget limits the cost of evaluations, in units of 50 ns of CPU at most.
type Budget struct{ Left uint64 }

func (b *Budget) take(cost uint64) error {
	if cost > b.Left {
		b.Left = 0
		return ErrBudget
	}
	b.Left -= cost
	return nil
}

// lookUpCost is that of a related object which a class names: 1 µs, among 10,000 objects.
const lookUpCost = 20

// LookUp pays for a look-up of a related object.
func (b *Budget) LookUp() error { return b.take(lookUpCost) }

// Input has the values of the variables. Those that an expression may use must be set.
type Input struct {
	// Claim, Namespace and Request are of map[string]any or *Object, or nil.
	Claim, Namespace, Request any
	Class                     *Object
	// Related objects by name, without those that are absent: those that the claim names, and those that the class names. A list of
	// them is of []any.
	Related, ClassRelated map[string]any
	// Object is a related object, while it is decoded.
	Object *Object

	// left is what the evaluation under way may still cost.
	left uint64
}

func (in *Input) variable(name string) any {
	switch name {
	case Claim:
		return in.Claim
	case Class:
		if in.Class != nil {
			return in.Class
		}
	case Namespace:
		return in.Namespace
	case Request:
		return in.Request
	case Related:
		return in.Related
	case ClassRelated:
		return in.ClassRelated
	case RelatedObject:
		if in.Object != nil {
			return in.Object
		}
	}
	return nil
}

// Bool evaluates an expression with that result, as do Text and Number.
func (e *Expression) Bool(in *Input, budget *Budget) (bool, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, typeError(Bool, v)
	}
	return bool(b), nil
}

// Text evaluates an expression for a text.
func (e *Expression) Text(in *Input, budget *Budget) (string, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return "", err
	}
	s, ok := v.(types.String)
	if !ok {
		return "", typeError(Text, v)
	}
	return string(s), nil
}

// Number evaluates an expression for a number: an int64 or a float64, never NaN.
func (e *Expression) Number(in *Input, budget *Budget) (any, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return nil, err
	}
	return asNumber(v)
}

func asNumber(v ref.Val) (any, error) {
	switch n := v.(type) {
	case types.Int:
		return int64(n), nil
	case types.Uint:
		return number(n), nil
	case types.Double:
		if math.IsNaN(float64(n)) {
			return nil, errors.New("must be a number, is NaN")
		}
		return float64(n), nil
	default:
		return nil, typeError(Number, v)
	}
}

func number(n types.Uint) any {
	if n > math.MaxInt64 {
		return float64(n)
	}
	return int64(n)
}

// Time evaluates an expression for a time. The zero time is that of an empty text.
func (e *Expression) Time(in *Input, budget *Budget) (time.Time, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return time.Time{}, err
	}
	switch v := v.(type) {
	case types.Timestamp:
		return v.Time, nil
	case types.String:
		if v == "" {
			return time.Time{}, nil
		}
		return time.Parse(time.RFC3339, string(v))
	}
	return time.Time{}, typeError(Time, v)
}

// Value evaluates any expression: the result is as JSON is decoded, with int64 and float64.
func (e *Expression) Value(in *Input, budget *Budget) (any, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return nil, err
	}
	return decoded(v)
}

func decoded(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Uint:
		return number(v), nil
	case types.String, types.Bool, types.Int, types.Double, types.Null:
		return native(v), nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			element, err := decoded(it.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		return list, nil
	case traits.Mapper:
		fields := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.(types.String)
			if !ok {
				return nil, typeError(Text, key)
			}
			child, err := decoded(v.Get(key))
			if err != nil {
				return nil, err
			}
			fields[string(name)] = child
		}
		return fields, nil
	default:
		return nil, typeError(anything, v)
	}
}

func typeError(want Result, is ref.Val) error {
	return fmt.Errorf("must be %s, is of type %s", want.words(), is.Type().TypeName())
}

func (e *Expression) eval(in *Input, budget *Budget) (ref.Val, error) {
	if e.plain != nil { // If it is there, no program is needed.
		v, err := find(in.variable(e.plain.variable), e.plain.path)
		if cost := callCost + 1 + uint64(len(e.plain.path)); v != nil && err == nil {
			return adapter{}.NativeToValue(v), budget.take(cost)
		}
	}
	v, spent, err := e.program.eval(in, min(budget.Left, maxCost))
	if exceeded := budget.take(spent); exceeded != nil {
		return nil, exceeded
	}
	if err != nil {
		return nil, e.evalError(in, err)
	}
	return v, nil
}

// evalError says shortly why an evaluation failed.
func (e *Expression) evalError(in *Input, err error) error {
	if errors.Is(err, ErrBudget) {
		return err
	}
	if long := (*tooLongError)(nil); errors.As(err, &long) {
		return errors.New(e.describe(in, long))
	}
	return &failure{e, in.Related, in.ClassRelated, err}
}

// failure is the error of an evaluation. What it says is made where somebody reads it: it may go through a long text, and one expression
// may fail for thousands of classes.
type failure struct {
	of                    *Expression
	related, classRelated map[string]any
	err                   error
}

func (f *failure) Error() string { return f.read().Error() }

// Is implements errors.Is. It reads nothing to compare with ErrBudget, as the judge of each class does.
func (f *failure) Is(target error) bool { return target == ErrAbsent && errors.Is(f.read(), ErrAbsent) }

// As implements errors.As.
func (f *failure) As(target any) bool { return errors.As(f.read(), target) }

func (f *failure) read() error {
	text, e := f.err.Error(), f.of
	name, isKey := strings.CutPrefix(text, "no such key: ")
	if isKey {
		isName := func(p fields.Path) bool { return p[0] == name }
		if _, present := f.related[name]; !present && slices.ContainsFunc(e.looks[Related], isName) {
			return &absentError{Related, name}
		}
		if _, present := f.classRelated[name]; !present && slices.ContainsFunc(e.looks[ClassRelated], isName) {
			return &absentError{ClassRelated, name}
		}
		if e.names(name) {
			return errors.New("no such key: " + truncate.String(name, v1beta1.MaxShownBytes))
		}
	}
	text = plain(text)
	if name, ok := strings.CutSuffix(text, isNotKnown); ok && slices.Contains(variables, name) {
		return errors.New(text)
	}
	return &valueError{kindOfError(text), truncate.String(text, v1beta1.MaxShownBytes)}
}

// names reports whether a key is part of the expression itself: it is not a value.
func (e *Expression) names(key string) bool {
	for _, paths := range e.looks {
		if slices.ContainsFunc(paths, func(p fields.Path) bool { return slices.Contains(p, key) }) {
			return true
		}
	}
	return false
}

const (
	keyIsWrong   = "a key must be a text or a number"
	fieldIsWrong = "a field on the way is a list, or is too long"
	isNotKnown   = " is not known"
)

// plain words for errors of CEL that speak of its own types.
func plain(text string) string {
	switch name, isUnknown := strings.CutPrefix(text, "no such attribute(s): "); {
	case isUnknown:
		return name + isNotKnown
	case strings.HasPrefix(text, "invalid qualifier type: "):
		return keyIsWrong
	case strings.HasPrefix(text, "unsupported conversion to ref.Val: "): // The caller did not read it.
		return fieldIsWrong
	default:
		return text
	}
}

// describe a field that is too long, with its variable.
func (e *Expression) describe(in *Input, long *tooLongError) string {
	for _, variable := range variables {
		for _, path := range e.looks[variable] {
			if _, err := find(in.variable(variable), path); !errors.Is(err, long) {
				continue
			}
			if hasObjects(variable) {
				variable = path[:1].In(variable)
			}
			return long.in(variable)
		}
	}
	return long.Error()
}

// Saw is what an expression looked at: a field, and its value as JSON, or "absent".
type Saw struct {
	// Field as the expression names it, such as class.driver.
	Field string `json:"field"`
	// Value as JSON, cut if it is long, or "absent".
	Value string `json:"value"`
}

// Saw returns what an expression looks at in an input, short enough to be shown.
func (e *Expression) Saw(in *Input) []Saw {
	var all []Saw
	for _, variable := range variables {
		for _, path := range e.looks[variable] {
			all = append(all, Saw{path.Shown(variable), shown(in.variable(variable), path)})
		}
	}
	return all
}

func shown(value any, path fields.Path) string {
	value, err := find(value, path)
	switch {
	case err != nil:
		return tooLong
	case value == nil:
		return "absent"
	}
	text, err := json.Marshal(native(value))
	if err != nil {
		return "of a type that JSON does not have"
	}
	return truncate.String(string(text), v1beta1.MaxShownBytes)
}

// elementsAt are the fields of the elements of a list that have one at a path.
func elementsAt(all []any, path fields.Path) (any, error) {
	found := make([]any, 0, len(all))
	for _, element := range all {
		value, err := find(element, path)
		if err != nil {
			return nil, err
		}
		if value != nil {
			found = append(found, native(value))
		}
	}
	return found, nil
}

// find a field of a value as it is held, nil if it is absent. The error means that it is too long.
func find(value any, path fields.Path) (any, error) {
	for i, name := range path {
		if o, ok := value.(*Object); ok {
			return o.lookup(path[i:])
		}
		if all, ok := value.([]any); ok && name == fields.Element {
			return elementsAt(all, path[i+1:])
		}
		content, _ := value.(map[string]any)
		child, ok := content[name]
		if !ok {
			return nil, nil
		}
		if value = child; value == nil {
			value = types.NullValue
		}
	}
	return value, nil
}
