package expression

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// What follows keeps values of claims and classes from functions whose cost cannot be told from
// the length of their arguments.

// usual quantities are those with which Kubernetes calculates in microseconds.
var usual = regexp.MustCompile(`^[^eE]{0,64}([eE][-+]?[0-9]{0,2})?(Ei)?$`)

// quantities makes no quantity of a text such as 1e-999999999.
func quantities() []cel.EnvOption {
	parse := func(text ref.Val) ref.Val {
		s, ok := text.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(text)
		}
		if !usual.MatchString(string(s)) {
			return types.NewErr("the quantity is too long, or out of range")
		}
		q, err := resource.ParseQuantity(string(s))
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

// maxMappedNodes are how many nodes of the syntax tree optMap and optFlatMap may follow. The
// macros write what they follow twice, so a chain of n would have 2^n times as many.
const maxMappedNodes = 40

// shortChains limits what the macros of optional values follow.
func shortChains(base *cel.Env) cel.EnvOption {
	var macros []cel.Macro
	for _, m := range base.Macros() {
		if name := m.Function(); name == "optMap" || name == "optFlatMap" {
			macros = append(macros, cel.ReceiverMacro(name, m.ArgCount(),
				func(factory cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
					nodes := 0
					ast.PreOrderVisit(target, ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
					if nodes > maxMappedNodes {
						return nil, factory.NewError(target.ID(), name+" must follow a shorter expression: use has() and ?: instead")
					}
					return m.Expander()(factory, target, args)
				}))
		}
	}
	return cel.Macros(macros...)
}

// mustBeConstant returns the part of a call that must be a constant, nil if there is none, and
// what it is: a text that is put into another one many times, or a pattern.
func mustBeConstant(call ast.CallExpr) (part ast.Expr, what string) {
	all := call.Args()
	if call.IsMemberFunction() {
		all = append([]ast.Expr{call.Target()}, all...)
	}
	at := 1
	switch call.FunctionName() {
	case "matches", "find", "findAll":
		what = "pattern"
	case "join":
		what = "separator"
	case "replace":
		at, what = 2, "replacement"
	case "format":
		at, what = 0, "format"
	}
	if what == "" || at >= len(all) || all[at].Kind() == ast.LiteralKind {
		return nil, ""
	}
	return all[at], what
}
