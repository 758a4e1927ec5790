package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
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

// exhausted is the panic of an evaluation that has used up its budget.
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
		constant, ok := args[r.RegexIndex].(interpreter.InterpretableConst)
		if !ok { // It is matches: see mustBeConstant.
			return newMatchOfAny(call, args[0], args[1]), nil
		}
		pattern, _ := constant.Value().(types.String)
		return newMatch(r, call, string(pattern))
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
