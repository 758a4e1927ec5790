package expression

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// textPerUnit is how many bytes of a text cost one unit.
const textPerUnit = 10

// costs of calls, in the units of Kubernetes. Its own estimator goes by types that are known
// when an expression is compiled, which those of claims and classes are not: it counts a copy
// of a long text, or a search in a long list, as 1.
type costs struct{ library.CostEstimator }

// CallCost implements interpreter.ActualCostEstimator.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := c.CostEstimator.CallCost(function, overload, args, result)
	least := uint64(0)
	switch function {
	case operators.In:
		if list, ok := args[1].(traits.Lister); ok {
			least = units(list)
		}
	case operators.Equals, operators.NotEquals:
		least = min(units(args[0]), units(args[1]))
	case "indexOf", "lastIndexOf":
		least = units(args[0]) * units(args[1])
	case "sum", "min", "max", "isSorted":
		least = units(args[0])
	default:
		if text, ok := result.(types.String); ok {
			least = units(text)
		}
	}
	if least > 1 && (cost == nil || *cost < least) {
		return &least
	}
	return cost
}

// units that it costs to go through a value.
func units(value any) (n uint64) {
	switch v := value.(type) {
	case string:
		return 1 + uint64(len(v))/textPerUnit
	case types.String:
		return 1 + uint64(len(v))/textPerUnit
	case []any:
		for _, element := range v {
			n += units(element)
		}
	case []ref.Val:
		for _, element := range v {
			n += units(element)
		}
	case map[string]any:
		for key, child := range v {
			n += units(key) + units(child)
		}
	case traits.Lister:
		return units(v.Value())
	case *content:
		return units(v.fields)
	}
	return n + 1
}
