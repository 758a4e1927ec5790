package expression

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// A unit of cost is at most 50 ns of CPU on a machine of 2024, whatever the expression and its
// values: BenchmarkUnits has the worst of each function.
const (
	// callCost is that of an evaluation, beside what it does.
	callCost = 10
	// bytesPerUnit is how many bytes of a string a function goes through in a unit.
	bytesPerUnit = 10
	// statesPerUnit is how many states of a pattern one byte may visit in a unit.
	statesPerUnit = 8
	// matchCost is that of one match among all of a pattern.
	matchCost = 5
	// nodeCost is that of each part of an expression, and mapCost of a map and each entry that
	// an expression makes.
	nodeCost, mapCost = 2, 15
	// mapOrderCost is that of one key, when a map is put in order.
	mapOrderCost = 8
)

// isCheap reports whether a function takes the same time for all values.
func isCheap(function string) bool {
	switch function {
	case operators.LogicalNot, operators.Negate, operators.NotStrictlyFalse,
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, "size", "type", "dyn", "double", "uint":
		return true
	}
	return false
}

// price of a function whose calls cost more than what they go through.
type price struct {
	// each call costs at least so much, and so many times what it goes through.
	each, times uint64
}

var prices = map[string]price{
	// They make strings, or lists of them, or go through each byte.
	"format": {1, 10}, "join": {1, 3}, "lowerAscii": {1, 3}, "replace": {1, 3}, "split": {1, 10},
	"string": {1, 10}, "upperAscii": {1, 3}, "validate": {10, 10},
	// They parse.
	"cidr": {10, 10}, "containsCIDR": {10, 10}, "containsIP": {10, 10}, "duration": {5, 10}, "int": {10, 1}, "ip": {10, 10},
	"isURL": {10, 10}, "quantity": {30, 1}, "timestamp": {5, 10}, "url": {10, 10},
	"sets.contains": {1, 2}, "sets.equivalent": {1, 4}, "sets.intersects": {1, 2},
	// They look at each element as a value of CEL.
	"indexOf": {1, 2}, "isSorted": {1, 3}, "lastIndexOf": {1, 2}, "max": {1, 2}, "min": {1, 2}, "sum": {1, 3},
}

const (
	// equalElements is how many times more it costs to compare two lists or maps than two strings.
	equalElements = 12
	// concatCost is that of a list made of two.
	concatCost = 6
	// zoneCost is that of a time in a time zone, which is read from a file.
	zoneCost = 1000
)

// cost of a call, at most a little more than limit.
func cost(function string, args []ref.Val, limit uint64) uint64 {
	n := uint64(1)
	switch function {
	case operators.Add:
		if _, isList := args[0].(traits.Lister); isList {
			return concatCost // It refers to both.
		}
		n = total(args, limit)
	case operators.In:
		if _, isMap := args[1].(traits.Mapper); !isMap {
			n = units(args[1], limit)
		}
	case operators.Equals, operators.NotEquals:
		if n = shorter(args[0], args[1], limit); args[0].Type().HasTrait(traits.ContainerType) {
			n *= equalElements
		}
	case "indexOf", "lastIndexOf", "replace", "join", "sets.contains", "sets.equivalent", "sets.intersects":
		for _, arg := range args {
			n *= units(arg, limit) // One goes through the next.
		}
	default:
		if n = total(args, limit); len(args) == 2 && args[0].Type() == types.TimestampType && args[1].Type() == types.StringType {
			n += zoneCost + bytesPerUnit*units(args[1], limit)
		}
	}
	if p, ok := prices[function]; ok {
		return p.each + p.times*n
	}
	return n
}

// shorter returns the units of the shorter of two values, and does not go through much more.
func shorter(a, b ref.Val, limit uint64) uint64 {
	const first, factor = 16, 4
	for most := uint64(first); ; most *= factor {
		if n := min(units(a, most), units(b, most)); n <= most || n > limit {
			return n
		}
	}
}

func total(args []ref.Val, limit uint64) (n uint64) {
	for i := 0; i < len(args) && n <= limit; i++ {
		n += units(args[i], limit-n)
	}
	return n
}

// units that it costs to go through a value, at most a little more than limit.
func units(value any, limit uint64) uint64 {
	n := uint64(1)
	switch v := value.(type) {
	case string:
		n += uint64(len(v)) / bytesPerUnit
	case types.String:
		n += uint64(len(v)) / bytesPerUnit
	case types.Bytes:
		n += uint64(len(v)) / bytesPerUnit
	case []any:
		for i := 0; i < len(v) && n <= limit; i++ {
			n += units(v[i], limit-n)
		}
	case map[string]any:
		for key, child := range v {
			if n += units(key, limit); n > limit {
				break
			}
			n += units(child, limit-n)
		}
	case *content:
		return units(v.fields, limit)
	case *elements:
		return units(v.all, limit)
	case traits.Lister:
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += units(it.Next(), limit-n)
		}
	case traits.Mapper:
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += units(key, limit-n)
			if n <= limit {
				n += units(v.Get(key), limit-n)
			}
		}
	}
	return n
}
