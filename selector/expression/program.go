package expression

import (
	"fmt"
	"regexp/syntax"
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
// It is planned here, and not by cel.Env.Program, because of the cost tracker of cel-go: that
// looks for the arguments of each call in a stack that grows with every turn of a
// comprehension. A list of 8,000 elements cost it nine times as much CPU a unit as one of 100,
// so its units limited nothing. It also learns the cost of a call only after the call. Here, a
// turn and a call pay before they begin.
type program struct {
	plan interpreter.Interpretable
	// start is what an evaluation costs beside calls and turns, and turn what each turn of a
	// comprehension costs.
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

func newProgram(checked *cel.Ast) (*program, error) {
	e, tree := env(), checked.NativeRep()
	p := &program{}
	ranges := p.price(tree.Expr())
	attributes := interpreter.NewAttributeFactory(e.Container, e.CELTypeAdapter(), e.CELTypeProvider())
	plan, err := interpreter.NewInterpreter(dispatcher(), e.Container, e.CELTypeProvider(), e.CELTypeAdapter(), attributes).
		NewInterpretable(tree, interpreter.Optimize(), interpreter.InterruptableEval(), interpreter.CustomDecorator(metered(ranges)))
	if err != nil {
		return nil, err
	}
	p.plan = plan
	return p, nil
}

// price the parts of an expression that are not calls, and return what comprehensions go
// through, by id. A turn costs as much as that of the comprehension with the longest.
func (p *program) price(root ast.Expr) (ranges map[int64]bool) {
	ranges = map[int64]bool{}
	var visit func(e ast.Expr, nodes *uint64)
	all := func(nodes *uint64, parts ...ast.Expr) {
		for _, part := range parts {
			visit(part, nodes)
		}
	}
	visit = func(e ast.Expr, nodes *uint64) {
		*nodes += nodeCost
		switch e.Kind() {
		case ast.CallKind:
			if call := e.AsCall(); call.IsMemberFunction() {
				visit(call.Target(), nodes)
			}
			all(nodes, e.AsCall().Args()...)
		case ast.SelectKind:
			visit(e.AsSelect().Operand(), nodes)
		case ast.ListKind:
			*nodes += 2 * uint64(len(e.AsList().Elements()))
			all(nodes, e.AsList().Elements()...)
		case ast.MapKind:
			*nodes += mapCost
			for _, entry := range e.AsMap().Entries() {
				*nodes += mapCost
				all(nodes, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
			}
		case ast.StructKind:
			for _, f := range e.AsStruct().Fields() {
				visit(f.AsStructField().Value(), nodes)
			}
		case ast.ComprehensionKind:
			fold := e.AsComprehension()
			ranges[fold.IterRange().ID()] = true
			all(nodes, fold.IterRange(), fold.AccuInit(), fold.Result())
			var turn uint64
			all(&turn, fold.LoopCondition(), fold.LoopStep())
			p.turn = max(p.turn, turn)
		default: // It has no parts.
		}
	}
	p.start = callCost
	visit(root, &p.start)
	return ranges
}

// exhausted is the panic that ends an evaluation whose budget is.
type exhausted struct{}

// eval takes the cost from what is left. It is an error if that is not enough, or the result is.
func (p *program) eval(in *Input, left uint64) (v ref.Val, spent uint64, err error) {
	a := (*activation)(in)
	a.left, a.turn = left, p.turn
	defer func() {
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
	v = p.plan.Eval(a)
	if failed, is := v.(*types.Err); is {
		return nil, 0, failed
	}
	return v, 0, nil
}

// activation gives an Input to CEL, and has what the evaluation may still cost.
type activation Input

// interrupted is the variable that CEL asks for after each turn of a comprehension.
const interrupted = "#interrupted"

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case interrupted:
		a.take(a.turn)
		return nil, false
	case reserved:
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
func activationOf(vars interpreter.Activation) *activation {
	for {
		if a, ok := vars.(*activation); ok {
			return a
		}
		vars = vars.Parent()
	}
}

// metered makes the calls pay whose cost depends on their arguments, and comprehensions for
// putting what they go through in order.
func metered(ranges map[int64]bool) interpreter.InterpretableDecorator {
	return func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
		var err error
		if call, ok := i.(interpreter.InterpretableCall); ok && !isCheap(call.Function()) {
			i, err = newCall(call)
		}
		if _, isConst := i.(interpreter.InterpretableConst); ranges[i.ID()] && !isConst {
			i = meteredRange{i}
		}
		return i, err
	}
}

// meteredRange is what a comprehension goes through.
type meteredRange struct{ interpreter.Interpretable }

// Eval implements interpreter.Interpretable.
func (r meteredRange) Eval(vars interpreter.Activation) ref.Val {
	v := r.Interpretable.Eval(vars)
	if m, ok := v.(traits.Mapper); ok {
		n, _ := m.Size().(types.Int)
		activationOf(vars).take(mapOrderCost * uint64(n)) //nolint:gosec // A size is not negative.
	}
	return v
}

// meteredCall pays before it calls a function.
type meteredCall struct {
	interpreter.InterpretableCall

	args []interpreter.Interpretable
	// function is nil for one that the first argument has itself, as == and !=.
	function *functions.Overload
}

func newCall(call interpreter.InterpretableCall) (interpreter.Interpretable, error) {
	args := call.Args()
	if name := call.Function(); len(args) == 2 && (name == "or" || name == "orValue") {
		return optionalOr{call, args[0], args[1]}, nil
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
	c := &meteredCall{InterpretableCall: call, args: args}
	var ok bool
	if c.function, ok = dispatcher().FindOverload(call.OverloadID()); !ok {
		c.function, _ = dispatcher().FindOverload(call.Function())
	}
	return c, nil
}

// Eval implements interpreter.Interpretable, as cel-go's own calls do.
func (c *meteredCall) Eval(vars interpreter.Activation) ref.Val {
	values := make([]ref.Val, len(c.args))
	strict := c.function == nil || !c.function.NonStrict
	for i, arg := range c.args {
		values[i] = arg.Eval(vars)
		if strict && types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	a := activationOf(vars)
	a.take(cost(c.Function(), values, a.left))
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

// optionalOr is x.or(y) or x.orValue(y), which evaluates y only where x has no value, as cel-go's
// library of optional values has it.
type optionalOr struct {
	interpreter.InterpretableCall

	x, y interpreter.Interpretable
}

// Eval implements interpreter.Interpretable.
func (o optionalOr) Eval(vars interpreter.Activation) ref.Val {
	x := o.x.Eval(vars)
	optional, ok := x.(*types.Optional)
	switch {
	case !ok:
		return x
	case !optional.HasValue():
		return o.y.Eval(vars)
	case o.Function() == "or":
		return x
	default:
		return optional.GetValue()
	}
}

// newMatch is a call with a pattern that is compiled once, and whose states each byte may visit.
func newMatch(r *interpreter.RegexOptimization, call interpreter.InterpretableCall, pattern string) (interpreter.Interpretable, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	states, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	args := call.Args()
	first := meteredString{Interpretable: args[0], states: uint64(len(states.Inst))}
	if r == library.FindAllRegexOptimization {
		first.matches = matchCost
	}
	args[0] = first
	return r.Factory(withArgs{call, args}, pattern)
}

type withArgs struct {
	interpreter.InterpretableCall

	args []interpreter.Interpretable
}

// Args implements interpreter.InterpretableCall.
func (c withArgs) Args() []interpreter.Interpretable { return c.args }

// meteredString pays for what becomes of each of its bytes.
type meteredString struct {
	interpreter.Interpretable

	// states of the pattern, and matches that a byte may be.
	states, matches uint64
}

// Eval implements interpreter.Interpretable.
func (s meteredString) Eval(vars interpreter.Activation) ref.Val {
	v := s.Interpretable.Eval(vars)
	if text, ok := v.(types.String); ok {
		activationOf(vars).take(1 + uint64(len(text)+1)*(s.states/statesPerUnit+s.matches))
	}
	return v
}
