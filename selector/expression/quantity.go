package expression

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Amount evaluates an expression for a number or a text that may be a quantity: see Units.
func (e *Expression) Amount(in *Input, budget *Budget) (any, error) {
	v, err := e.eval(in, budget)
	if err != nil {
		return nil, err
	}
	if s, ok := v.(types.String); ok {
		return string(s), nil
	}
	return asNumber(v)
}

// Units are the whole units of an amount, as an expression or JSON has it, rounded down and up. What an int64 cannot hold
// counts as its greatest value.
func Units(amount any) (down, up int64, err error) {
	switch v := amount.(type) {
	case int64:
		down, up = v, v
	case float64:
		down, up = whole(math.Floor(v)), whole(math.Ceil(v))
	case string:
		q, err := parseQuantity(v)
		if err != nil {
			return 0, 0, errors.New("must be a number or a quantity, such as 50 or 10Ti")
		}
		if q.Sign() < 0 {
			down = -1
			break
		}
		if up = math.MaxInt64; q.CmpInt64(up) < 0 {
			up = q.Value() // It rounds up.
		}
		if down = up; q.CmpInt64(up) < 0 {
			down--
		}
	default:
		return 0, 0, fmt.Errorf("must be %s", Amount.words())
	}
	if down < 0 {
		return 0, 0, errors.New("must not be negative")
	}
	return down, up, nil
}

func whole(f float64) int64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(max(f, -1))
}

// usual quantities are those with which Kubernetes calculates in microseconds.
var usual = regexp.MustCompile(`^[^eE]{0,64}([eE][-+]?[0-9]{0,2})?(Ei)?$`)

// quantities makes no quantity of a text such as 1e-999999999.
func quantities() []cel.EnvOption {
	parse := func(text ref.Val) ref.Val {
		s, ok := text.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(text)
		}
		q, err := parseQuantity(string(s))
		if err != nil {
			return types.WrapErr(err)
		}
		return apiservercel.Quantity{Quantity: &q}
	}
	parses := func(text ref.Val) ref.Val { return types.Bool(!types.IsError(parse(text))) }
	of := []*cel.Type{cel.StringType}
	return []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", of, apiservercel.QuantityType, cel.UnaryBinding(parse))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", of, cel.BoolType, cel.UnaryBinding(parses))),
	}
}

func parseQuantity(text string) (resource.Quantity, error) {
	if !usual.MatchString(text) {
		return resource.Quantity{}, errors.New("the quantity is too long, or out of range")
	}
	return resource.ParseQuantity(text)
}
