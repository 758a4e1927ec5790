package expression

import (
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// A unit of cost is at most 50 ns of CPU on a machine of 2024, whatever the expression and its
// values: TestPrices has each function, and BenchmarkUnits loops and patterns.
const (
	// callCost is that of an evaluation, beside what it does.
	callCost = 10
	// bytesPerUnit is how many bytes of a string a function goes through in a unit.
	bytesPerUnit = 10
	// statesPerUnit is how many states of a pattern one byte may visit in a unit.
	statesPerUnit = 8
	// rangesPerState are how many limits of ranges of a class take as long as another state.
	rangesPerState = 64
	// matchCost is that of one match among all of a pattern.
	matchCost = 5
	// nodeCost is that of each part of an expression, and mapCost of a map and each entry that an expression makes.
	nodeCost, mapCost = 2, 15
	// mapOrderCost is that of one key, when a map is put in order.
	mapOrderCost = 8
)

// price of the overloads of a function. Its measure says how much a call goes through, and is nil for one that takes the same time whatever
// its values are: nodeCost pays for that.
type price struct {
	// each call costs at least so much, and so many times what it goes through.
	each, times uint64
	measure     func(args []ref.Val, limit uint64) uint64
}

// priced has every function that an expression may call, and how many overloads it had when TestPrices measured them: with another one, it
// has no price, and an expression that calls it does not compile.
var priced = []struct {
	price

	functions string
}{
	{price{}, `!_/1 -_/2 @not_strictly_false/1 _%_/2 _&&_/1 _*_/3 _-_/6 _/_/3 _?._/1 _?_:_/1 _[?_]/4 _[_]/4
		__not_strictly_false__/1 _||_/1 dyn/1 format.byte/1 format.date/1 format.datetime/1 format.dns1035Label/1
		format.dns1035LabelPrefix/1 format.dns1123Label/1 format.dns1123LabelPrefix/1 format.dns1123Subdomain/1
		format.dns1123SubdomainPrefix/1 format.labelValue/1 format.qualifiedName/1 format.uri/1 format.uuid/1 optional.none/1 type/1`},
	{price{0, 1, added}, "_+_/9"},
	{price{0, 1, searched}, "@in/2 _in_/2 in/2"},
	{price{0, 1, compared}, "_==_/1 _!=_/1"},
	{price{0, 1, texts}, "size/8"},
	{price{0, 1, total}, `_<=_/14 _<_/14 _>=_/14 _>_/14 add/2 allowed/1 asApproximateFloat/1 asInteger/1 bool/2 bytes/2 charAt/1
		check/2 compareTo/1 contains/1 endsWith/1 error/1 errored/1 family/1 fieldSelector/1 find/1 findAll/2 first/1 format.named/1
		getEscapedPath/1 getHost/1 getHostname/1 getPort/1 getQuery/1 getScheme/1 group/1 hasValue/1 isGlobalUnicast/1 isGreaterThan/1
		isInteger/1 isLessThan/1 isLinkLocalMulticast/1 isLinkLocalUnicast/1 isLoopback/1 isUnspecified/1 labelSelector/1 last/1
		masked/1 matches/2 name/1 namespace/1 optional.of/1 optional.ofNonZeroValue/1 optional.unwrap/1 or/1 orValue/1 path/1
		prefixLength/1 reason/1 resource/1 serviceAccount/1 sign/1 startsWith/1 sub/2 subresource/1 substring/2 trim/1 unwrapOpt/1
		value/1`},
	// They make strings, or lists of them, or go through each byte.
	{price{1, 10, total}, "format/1 split/2 string/10"},
	{price{1, 3, total}, "lowerAscii/1 upperAscii/1 strings.quote/1 ip.isCanonical/1 isCIDR/1 isIP/1"},
	{price{1, 3, product}, "join/2 replace/2"},
	// They parse.
	{price{10, 10, total}, "validate/1 cidr/1 containsCIDR/2 containsIP/2 ip/2 isURL/1 url/1"},
	{price{5, 10, total}, "duration/2 timestamp/3"},
	{price{10, 1, total}, "int/6 uint/4"},
	{price{10, 2, total}, "double/4"},
	{price{30, 1, total}, "quantity/1 isQuantity/1"},
	{price{40, 1, selected}, "labelSelectorMatches/2"},
	// They look at each element as a value of CEL.
	{price{1, 2, product}, "indexOf/3 lastIndexOf/3 sets.contains/1 sets.intersects/1"},
	{price{1, 4, product}, "sets.equivalent/1"},
	{price{1, 3, total}, "isSorted/8 sum/4"},
	{price{1, 2, total}, "max/8 min/8"},
	{price{0, 1, zoned}, `getDate/2 getDayOfMonth/2 getDayOfWeek/2 getDayOfYear/2 getFullYear/2 getHours/3 getMilliseconds/3
		getMinutes/3 getMonth/2 getSeconds/3`},
}

var prices = sync.OnceValue(func() map[string]price { return pricesOf(env().Functions()) })

// pricesOf the functions that have as many overloads as were measured.
func pricesOf(functions map[string]*decls.FunctionDecl) map[string]price {
	all := map[string]price{}
	for _, p := range priced {
		for function := range strings.FieldsSeq(p.functions) {
			at := strings.LastIndexByte(function, '/')
			name, overloads := function[:at], function[at+1:]
			if f, ok := functions[name]; ok && strconv.Itoa(len(f.OverloadDecls())) == overloads {
				all[name] = p.price
			}
		}
	}
	return all
}

const (
	// equalElements is how many times more it costs to compare two lists or maps than two strings.
	equalElements = 12
	// concatCost is that of a list made of two.
	concatCost = 6
	// selectorCost is how many times more it costs to read a label selector, whose parts are checked, than a string, and labelsCost that
	// of labels, which CEL puts in order.
	selectorCost, labelsCost = 15, 4
	// zoneCost is that of a time in a time zone, which is read from a file.
	zoneCost = 1000
)

// cost of a call, at most a little more than limit.
func (p price) cost(args []ref.Val, limit uint64) uint64 {
	return p.each + p.times*p.measure(args, limit)
}

// added is what + goes through.
func added(args []ref.Val, limit uint64) uint64 {
	if _, isList := args[0].(traits.Lister); isList {
		return concatCost // It refers to both.
	}
	return total(args, limit)
}

// searched is what the operator in goes through: a map is not.
func searched(args []ref.Val, limit uint64) uint64 {
	if _, isMap := args[1].(traits.Mapper); isMap {
		return 1
	}
	return units(args[1], limit)
}

// texts are gone through, and no lists.
func texts(args []ref.Val, limit uint64) uint64 {
	if args[0].Type().HasTrait(traits.IteratorType) {
		return 1
	}
	return units(args[0], limit)
}

func compared(args []ref.Val, limit uint64) uint64 {
	n := shorter(args[0], args[1], limit)
	switch args[0].(type) {
	case types.String, types.Bytes:
		return n
	}
	if n > 1 {
		n *= equalElements
	}
	return n
}

// selected is what it takes to read a label selector and labels.
func selected(args []ref.Val, limit uint64) uint64 {
	return selectorCost*units(args[0], limit/selectorCost) + labelsCost*units(args[1], limit/labelsCost)
}

// product is for functions that go through one argument for each part of the next.
func product(args []ref.Val, limit uint64) uint64 {
	n := uint64(1)
	for _, arg := range args {
		n *= units(arg, limit)
	}
	return n
}

func zoned(args []ref.Val, limit uint64) uint64 {
	if len(args) == 1 {
		return 1
	}
	return zoneCost + bytesPerUnit*units(args[1], limit)
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
	case apiservercel.URL:
		n += uint64(len(v.Host)+len(v.Path)+len(v.RawPath)+len(v.RawQuery)+len(v.Fragment)) / bytesPerUnit
	case *types.Optional:
		if v.HasValue() {
			n += units(v.GetValue(), limit)
		}
	case *Object:
		return n + v.Length()
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
