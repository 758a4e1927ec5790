package expression

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// program evaluates an expression, and stops it at a cost.
//
// It is planned here, and not by cel.Env.Program, because of the cost tracker of cel-go: that looks for the arguments of each call in a
// stack that grows with every turn of a comprehension. A list of 8,000 elements cost it nine times as much CPU a unit as one of 100, so its
// units limited nothing. It also learns the cost of a call only after the call. Here, a turn and a call pay before they begin.
type program struct {
	plan interpreter.InterpretableV2
	// start is what an evaluation costs beside calls and turns, and turn what each turn of a comprehension costs.
	start, turn uint64
}

// dispatcher has the functions of the environment.
var dispatcher = sync.OnceValue(func() interpreter.Dispatcher {
	d := interpreter.NewDispatcher()
	for _, function := range env().Functions() {
		bindings, err := function.Bindings()
		if err == nil {
			err = d.Add(bindings...)
		}
		if err != nil {
			panic(err) // It depends on nothing but env.
		}
	}
	return d
})

func newProgram(tree *ast.AST) (*program, error) {
	e := env()
	p := &program{}
	ranges, steps, err := p.price(tree)
	if err != nil {
		return nil, err
	}
	attributes := interpreter.NewAttributeFactory(e.Container, e.CELTypeAdapter(), e.CELTypeProvider())
	plan, err := interpreter.NewInterpreter(dispatcher(), e.Container, e.CELTypeProvider(), e.CELTypeAdapter(), attributes).
		NewInterpretable(tree, interpreter.Optimize(), interpreter.CustomDecoratorV2(p.meter(ranges, steps)))
	if err != nil {
		return nil, err
	}
	p.plan = plan
	return p, nil
}

// price the parts of an expression that are not calls, and return the ids of what comprehensions
// go through, and of their steps. A turn costs as much as that of the comprehension with the longest.
func (p *program) price(tree *ast.AST) (ranges, steps map[int64]bool, err error) {
	ranges, steps = map[int64]bool{}, map[int64]bool{}
	costs := map[int64]uint64{} // by the comprehension each of whose turns pays, 0 without one
	walk(tree, func(e ast.NavigableExpr) {
		cost := uint64(nodeCost)
		switch e.Kind() {
		case ast.ListKind:
			cost += 2 * uint64(len(e.AsList().Elements()))
		case ast.MapKind:
			cost += mapCost * uint64(1+len(e.AsMap().Entries()))
		case ast.ComprehensionKind:
			fold := e.AsComprehension()
			ranges[fold.IterRange().ID()], steps[fold.LoopStep().ID()] = true, true
		case ast.CallKind:
			if _, isPriced := prices()[e.AsCall().FunctionName()]; !isPriced {
				err = fmt.Errorf("%s must not be used here: what it costs is not known", e.AsCall().FunctionName())
			}
		default: // It costs no more than its parts.
		}
		costs[loopOf(e)] += cost
	})
	p.start = callCost + costs[0]
	delete(costs, 0)
	for _, turn := range costs {
		p.turn = max(p.turn, turn)
	}
	return ranges, steps, err
}

// loopOf returns the ID of the innermost comprehension that evaluates an expression in each turn, 0 if there is none.
func loopOf(e ast.NavigableExpr) int64 {
	for at, above := e, parentOf(e); above != nil; at, above = above, parentOf(above) {
		if above.Kind() == ast.ComprehensionKind {
			fold := above.AsComprehension()
			if at.ID() == fold.LoopCondition().ID() || at.ID() == fold.LoopStep().ID() {
				return above.ID()
			}
		}
	}
	return 0
}

// exhausted is the panic that ends an evaluation whose budget is.
type exhausted struct{}

// eval takes the cost from what is left. It is an error if that is not enough, or the result is.
func (p *program) eval(in *Input, left uint64) (v ref.Val, spent uint64, err error) {
	a := (*activation)(in)
	a.left = left
	frame, err := interpreter.NewExecutionFrame(a)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		frame.Close()
		spent = left - a.left
		switch r := recover().(type) {
		case nil:
		case exhausted:
			v, spent, err = nil, left, ErrBudget
		default:
			v, err = nil, fmt.Errorf("internal error: %v", r)
		}
	}()
	a.take(p.start)
	v = p.plan.Exec(frame)
	if failed, is := v.(*types.Err); is {
		return nil, 0, failed
	}
	return v, 0, nil
}

// activation gives an Input to CEL, and has what the evaluation may still cost.
type activation Input

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	if name == reserved {
		name = Namespace
	}
	v := (*Input)(a).variable(name)
	return v, v != nil
}

// Parent implements cel.Activation.
func (*activation) Parent() cel.Activation { return nil }

func (a *activation) take(cost uint64) {
	if cost > a.left {
		panic(exhausted{})
	}
	a.left -= cost
}

// activationOf returns what the activations of comprehensions are made on.
func activationOf(frame *interpreter.ExecutionFrame) *activation {
	for vars := frame.Unwrap(); ; vars = vars.Parent() {
		if a, ok := vars.(*activation); ok {
			return a
		}
	}
}

// metered replaces how a part of a program is evaluated, to pay for it.
type metered struct {
	interpreter.InterpretableV2

	exec func(*interpreter.ExecutionFrame) ref.Val
}

// Exec implements interpreter.InterpretableV2.
func (m metered) Exec(frame *interpreter.ExecutionFrame) ref.Val { return m.exec(frame) }

// Eval implements interpreter.Interpretable.
func (m metered) Eval(vars interpreter.Activation) ref.Val {
	return m.exec(interpreter.AsFrame(vars))
}

// meter makes the calls pay whose cost depends on their arguments, and comprehensions for each
// turn and for putting what they go through in order.
func (p *program) meter(ranges, steps map[int64]bool) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		id := i.ID()
		var err error
		if call, ok := i.(interpreter.InterpretableCall); ok {
			if of := prices()[call.Function()]; of.measure != nil {
				i, err = newCall(call, of)
			}
		}
		if ranges[id] {
			i = newRange(i)
		}
		if steps[id] {
			i = p.newStep(i)
		}
		return i, err
	}
}

// newStep pays for each turn of a comprehension before its step.
func (p *program) newStep(step interpreter.InterpretableV2) interpreter.InterpretableV2 {
	return metered{step, func(frame *interpreter.ExecutionFrame) ref.Val {
		activationOf(frame).take(p.turn)
		return step.Exec(frame)
	}}
}

// newRange is what a comprehension goes through. A map pays for the order of its keys, so that an
// expression says the same each time: maps of CEL have the random order of Go.
func newRange(i interpreter.InterpretableV2) interpreter.InterpretableV2 {
	return metered{i, func(frame *interpreter.ExecutionFrame) ref.Val {
		v := i.Exec(frame)
		m, ok := v.(traits.Mapper)
		if !ok {
			return v
		}
		n, _ := m.Size().(types.Int)
		activationOf(frame).take(mapOrderCost * uint64(n)) //nolint:gosec // A size is not negative.
		if _, isSorted := v.(*content); isSorted {
			return v
		}
		return sortedMap{m}
	}}
}

// newCall pays before it calls a function.
func newCall(call interpreter.InterpretableCall, p price) (interpreter.InterpretableV2, error) {
	args := call.Args()
	if name := call.Function(); len(args) == 2 && (name == "or" || name == "orValue") {
		return newOptionalOr(call, args[0], args[1]), nil
	}
	for _, r := range []*interpreter.RegexOptimization{
		interpreter.MatchesRegexOptimization, library.FindRegexOptimization, library.FindAllRegexOptimization,
	} {
		if r.Function != call.Function() || len(args) <= r.RegexIndex {
			continue
		}
		if constant, ok := args[r.RegexIndex].(interpreter.InterpretableConst); ok {
			pattern, _ := constant.Value().(types.String)
			return newMatch(r, call, string(pattern))
		}
	}
	c := &meteredCall{InterpretableCall: call, args: args, price: p}
	var ok bool
	if c.function, ok = dispatcher().FindOverload(call.OverloadID()); !ok {
		c.function, _ = dispatcher().FindOverload(call.Function())
	}
	return metered{call, c.exec}, nil
}

type meteredCall struct {
	interpreter.InterpretableCall

	args  []interpreter.InterpretableV2
	price price
	// function is nil for one that the first argument has itself, as == and !=.
	function *functions.Overload
}

// exec evaluates the arguments and calls the function, as cel-go's own calls do.
func (c *meteredCall) exec(frame *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, len(c.args))
	strict := c.function == nil || !c.function.NonStrict
	for i, arg := range c.args {
		values[i] = arg.Exec(frame)
		if strict && types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	a := activationOf(frame)
	a.take(c.price.cost(values, a.left))
	return types.LabelErrNode(c.ID(), c.invoke(values))
}

func (c *meteredCall) invoke(values []ref.Val) ref.Val {
	switch c.Function() {
	case operators.Equals:
		return types.Equal(values[0], values[1])
	case operators.NotEquals:
		return types.Bool(types.Equal(values[0], values[1]) != types.True)
	}
	if len(values) == 0 {
		return c.function.Function()
	}
	if f := c.function; f != nil && (f.OperandTrait == 0 || values[0].Type().HasTrait(f.OperandTrait)) {
		switch {
		case len(values) == 1 && f.Unary != nil:
			return f.Unary(values[0])
		case len(values) == 2 && f.Binary != nil:
			return f.Binary(values[0], values[1])
		case f.Function != nil:
			return f.Function(values...)
		}
	}
	if receiver, ok := values[0].(traits.Receiver); ok {
		return receiver.Receive(c.Function(), c.OverloadID(), values[1:])
	}
	return types.NewErr("no such overload: %s", c.Function())
}

// newOptionalOr is x.or(y) or x.orValue(y), which evaluates y only where x has no value, as cel-go's library of optional values has it.
func newOptionalOr(call interpreter.InterpretableCall, x, y interpreter.InterpretableV2) interpreter.InterpretableV2 {
	return metered{call, func(frame *interpreter.ExecutionFrame) ref.Val {
		v := x.Exec(frame)
		optional, ok := v.(*types.Optional)
		switch {
		case !ok:
			return types.MaybeNoSuchOverloadErr(v)
		case !optional.HasValue():
			return y.Exec(frame)
		case call.Function() == "or":
			return v
		default:
			return optional.GetValue()
		}
	}}
}

// newMatch is a call with a pattern that is compiled once, and whose states each byte may visit.
func newMatch(r *interpreter.RegexOptimization, call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableV2, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	args := call.Args()
	perByte := states(parsed) / statesPerUnit
	if r == library.FindAllRegexOptimization {
		perByte += matchCost
	}
	args[0] = newString(args[0], perByte)
	return r.Factory(withArgs{call, args}, pattern)
}

// states of a pattern, at most. They are counted before they are made.
func states(of *syntax.Regexp) uint64 {
	n := uint64(1 + len(of.Rune)/rangesPerState)
	if of.Op == syntax.OpLiteral {
		n = uint64(len(of.Rune))
	}
	for _, part := range of.Sub {
		n += states(part)
	}
	if of.Op == syntax.OpRepeat {
		n *= uint64(max(of.Min+1, of.Max)) //nolint:gosec // They are at most 1,000.
	}
	return n
}

type withArgs struct {
	interpreter.InterpretableCall

	args []interpreter.InterpretableV2
}

// Args implements interpreter.InterpretableCall.
func (c withArgs) Args() []interpreter.InterpretableV2 { return c.args }

// newString pays for what becomes of each of its bytes.
func newString(i interpreter.InterpretableV2, perByte uint64) interpreter.InterpretableV2 {
	return metered{i, func(frame *interpreter.ExecutionFrame) ref.Val {
		v := i.Exec(frame)
		if text, ok := v.(types.String); ok {
			activationOf(frame).take(1 + uint64(len(text)+1)*perByte)
		}
		return v
	}}
}

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
	{price{10, 1, total}, "int/6 double/4 uint/4"},
	{price{30, 1, total}, "quantity/1 isQuantity/1"},
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
