package expression

import (
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// The cost of a call is known only after it. What follows keeps values of claims and classes
// from functions that take seconds, or hundreds of megabytes, for a field of some KiB.

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

// maxPairs of elements that the functions on sets compare in one call.
const maxPairs = 100_000

// sets are the functions of CEL, for lists that are not too long.
func sets() []cel.EnvOption {
	contains := func(a, b traits.Lister) ref.Val {
		for it := b.Iterator(); it.HasNext() == types.True; {
			if has := a.Contains(it.Next()); has != types.True {
				return has
			}
		}
		return types.True
	}
	return []cel.EnvOption{
		ofSets("contains", contains),
		ofSets("equivalent", func(a, b traits.Lister) ref.Val {
			if has := contains(a, b); has != types.True {
				return has
			}
			return contains(b, a)
		}),
		ofSets("intersects", func(a, b traits.Lister) ref.Val {
			for it := a.Iterator(); it.HasNext() == types.True; {
				if b.Contains(it.Next()) == types.True {
					return types.True
				}
			}
			return types.False
		}),
	}
}

func ofSets(name string, of func(a, b traits.Lister) ref.Val) cel.EnvOption {
	list := cel.ListType(cel.TypeParamType("T"))
	binding := cel.BinaryBinding(func(a, b ref.Val) ref.Val {
		x, isList := a.(traits.Lister)
		y, areLists := b.(traits.Lister)
		if !isList || !areLists {
			return types.MaybeNoSuchOverloadErr(a)
		}
		xs, _ := x.Size().(types.Int)
		if ys, _ := y.Size().(types.Int); xs*ys > maxPairs {
			return types.NewErr("the lists are too long for sets.%s", name)
		}
		return of(x, y)
	})
	return cel.Function("sets."+name, cel.Overload("list_sets_"+name+"_list", []*cel.Type{list, list}, cel.BoolType, binding))
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
