package expression

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// program evaluates an expression, and stops it at a cost.
//
// It is planned here, and not by cel.Env.Program, because of the cost tracker of cel-go: that looks for the arguments of each call in a
// stack that grows with every turn of a comprehension. A list of 8,000 elements cost it nine times as much CPU a unit as one of 100, so its
// units limited nothing. It also learns the cost of a call only after the call. Here, a turn and a call pay before they begin.
type program struct {
	plan interpreter.InterpretableV2
	// start is what an evaluation costs beside arguments and turns, and turn what each turn of a comprehension costs.
	start, turn uint64
	// meters are the parts of the expression that pay when they are evaluated, by their id.
	meters map[int64]meter
}

// meter has a part of an expression pay.
type meter func(interpreter.InterpretableV2) interpreter.InterpretableV2

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
	p := &program{meters: map[int64]meter{}}
	p.price(tree)
	attributes := interpreter.NewAttributeFactory(e.Container, e.CELTypeAdapter(), e.CELTypeProvider())
	plan, err := interpreter.NewInterpreter(dispatcher(), e.Container, e.CELTypeProvider(), e.CELTypeAdapter(), attributes).
		NewInterpretable(tree, interpreter.Optimize(), interpreter.CompileRegexConstants(
			interpreter.MatchesRegexOptimization, library.FindRegexOptimization, library.FindAllRegexOptimization,
		), interpreter.CustomDecoratorV2(p.decorate))
	p.plan, p.meters = plan, nil
	return p, err
}

// price the parts of an expression. A turn costs as much as that of the comprehension with the longest.
func (p *program) price(tree *ast.AST) {
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
			p.meters[fold.IterRange().ID()], p.meters[fold.LoopStep().ID()] = newRange, p.newStep
		case ast.CallKind:
			cost += p.priceCall(e.AsCall())
		default: // It costs no more than its parts.
		}
		costs[loopOf(e)] += cost
	})
	p.start = callCost + costs[0]
	delete(costs, 0)
	for _, turn := range costs {
		p.turn = max(p.turn, turn)
	}
}

// priceCall returns what a call costs whatever its arguments are. For what it goes through, the arguments pay.
func (p *program) priceCall(call ast.CallExpr) uint64 {
	function, args := call.FunctionName(), arguments(call)
	price, isPriced := prices[function]
	if _, multiplies := products[function]; !isPriced && !multiplies {
		price.times = 1
	}
	switch {
	case function == operators.In, function == operators.Equals || function == operators.NotEquals:
		// The shorter of two values limits what it costs to compare them, and one that the expression has is short.
		if kind := args[1].Kind(); function == operators.In || kind == ast.LiteralKind || kind == ast.ListKind || kind == ast.MapKind {
			args = args[1:]
		} else {
			args = args[:1]
		}
	case len(args) == 2 && strings.HasPrefix(function, "get"):
		price = inTimeZone
	}
	switch part, what := constantPart(call); what {
	case pattern:
		args, price.times = args[:1], statesOf(part)
		if function == "findAll" {
			price.times += bytesPerUnit * matchCost
		}
	case separator, replacement: // It may be put in at each byte.
		price.times *= 1 + uint64(len(literal(part)))/bytesPerUnit
	}
	cost := price.each
	for _, arg := range args {
		switch {
		case price.times == 0:
		case arg.Kind() == ast.LiteralKind:
			cost += price.of(arg.AsLiteral(), maxCost)
		default:
			p.meters[arg.ID()] = price.newArgument
		}
	}
	return cost
}

// statesOf a pattern returns how many it has for each byte of a unit.
func statesOf(pattern ast.Expr) uint64 {
	parsed, err := syntax.Parse(literal(pattern), syntax.Perl)
	if err != nil {
		return 1 // The plan says what is wrong.
	}
	states, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 1
	}
	return 1 + bytesPerUnit*uint64(len(states.Inst))/statesPerUnit
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

// decorate has those parts of the plan pay that have a meter.
func (p *program) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	id := i.ID()
	if call, ok := i.(interpreter.InterpretableCall); ok {
		function := call.Function()
		if each, multiplies := products[function]; multiplies {
			i = newProduct(call, each)
		} else if len(call.Args()) == 2 && (function == "or" || function == "orValue") {
			i = newOptionalOr(call)
		}
	}
	if m := p.meters[id]; m != nil {
		i = m(i)
	}
	return i, nil
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
		return sortedMap{m}
	}}
}

// newProduct is a call that goes through one argument for each part of the other, which costs so much each. It measures
// them before.
func newProduct(call interpreter.InterpretableCall, each uint64) interpreter.InterpretableV2 {
	return metered{call, func(frame *interpreter.ExecutionFrame) ref.Val {
		a, cost := activationOf(frame), each
		for _, arg := range call.Args() {
			cost *= units(arg.Exec(frame), a.left)
		}
		a.take(cost)
		return call.Exec(frame)
	}}
}

// newOptionalOr is x.or(y) or x.orValue(y), which evaluates y only where x has no value, as cel-go's library of optional values has it.
func newOptionalOr(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	x, y := call.Args()[0], call.Args()[1]
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

// price of a call.
type price struct {
	// each is what it costs beside going through its arguments, and times how many units each unit of these costs.
	each, times uint64
	// isFree reports whether a function does not go through an argument. Nil is never.
	isFree func(ref.Val) bool
}

// of an argument, where limit is left.
func (p price) of(v ref.Val, limit uint64) uint64 {
	if p.isFree != nil && p.isFree(v) {
		return 0
	}
	return p.times * units(v, limit)
}

// newArgument pays for what becomes of its value. The parts of a constant have paid, and the plan looks for it.
func (p price) newArgument(i interpreter.InterpretableV2) interpreter.InterpretableV2 {
	if _, isConstant := i.(interpreter.InterpretableConst); isConstant {
		return i
	}
	return metered{i, func(frame *interpreter.ExecutionFrame) ref.Val {
		v, a := i.Exec(frame), activationOf(frame)
		a.take(p.of(v, a.left))
		return v
	}}
}

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
	// nodeCost is that of each part of an expression, and mapCost of a map and each entry that an expression makes.
	nodeCost, mapCost = 2, 15
	// mapOrderCost is that of one key, when a map is put in order.
	mapOrderCost = 8
)

var (
	// prices of the functions that do not cost 1 unit for each unit of their arguments.
	prices = map[string]price{
		// All values take the same time.
		operators.LogicalNot: {}, operators.Negate: {}, operators.NotStrictlyFalse: {}, operators.Subtract: {}, operators.Multiply: {},
		operators.Divide: {}, operators.Modulo: {}, operators.LogicalAnd: {}, operators.LogicalOr: {}, operators.Conditional: {},
		operators.Index: {2, 0, nil}, operators.OptIndex: {}, operators.OptSelect: {}, "or": {}, "orValue": {}, "hasValue": {}, "value": {},
		"size": {}, "type": {}, "dyn": {}, "double": {}, "uint": {},
		// A list made of two refers to both.
		operators.Add:    {6, 1, func(v ref.Val) bool { _, isList := v.(traits.Lister); return isList }},
		operators.In:     {0, 1, func(v ref.Val) bool { _, isMap := v.(traits.Mapper); return isMap }},
		operators.Equals: {0, 12, hasNoElements}, operators.NotEquals: {0, 12, hasNoElements},
		// They make strings, or lists of them, or go through each byte.
		"format": {1, 10, nil}, "join": {1, 3, nil}, "lowerAscii": {1, 3, nil}, "replace": {1, 3, nil}, "split": {1, 10, nil},
		"string": {1, 10, nil}, "upperAscii": {1, 3, nil}, "validate": {10, 10, nil},
		// They parse.
		"cidr": {10, 10, nil}, "containsCIDR": {10, 10, nil}, "containsIP": {10, 10, nil}, "duration": {5, 10, nil},
		"int": {10, 1, nil}, "ip": {10, 10, nil}, "isURL": {10, 10, nil}, "quantity": {30, 1, nil}, "timestamp": {5, 10, nil},
		"url": {10, 10, nil},
		// They look at each element as a value of CEL.
		"isSorted": {1, 3, nil}, "max": {1, 2, nil}, "min": {1, 2, nil}, "sum": {1, 3, nil},
	}
	// products are the functions that go through one argument for each unit of another, and what each of these costs.
	products = map[string]uint64{"indexOf": 2, "lastIndexOf": 2, "sets.contains": 2, "sets.equivalent": 4, "sets.intersects": 2}
	// inTimeZone is for a part of a time in a time zone, which is read from a file.
	inTimeZone = price{1000, bytesPerUnit, nil}
)

func hasNoElements(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return false
	}
	return true
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
	case *types.Optional:
		if v.HasValue() {
			n = units(v.GetValue(), limit)
		}
	case traits.Lister:
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += 1 + units(it.Next(), limit-n) // To make a value of it costs as much again.
		}
	case traits.Mapper:
		if fields, ok := v.Value().(map[string]any); ok {
			return units(fields, limit)
		}
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
