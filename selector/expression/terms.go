package expression

import (
	"math"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/classbind/classbind/selector/fields"
)

// Terms of a conjunction: another expression is its own only term.
func (e *Expression) Terms() []*Expression {
	operands := conjuncts(e.ast.Expr())
	if len(operands) < 2 {
		return []*Expression{e}
	}
	terms := make([]*Expression, len(operands))
	for i, operand := range operands {
		term, err := e.part(operand, Bool)
		if err != nil {
			return []*Expression{e}
		}
		e.narrow(term)
		terms[i] = term
	}
	return terms
}

// conjuncts are what && joins.
func conjuncts(e ast.Expr) (all []ast.Expr) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	for _, arg := range e.AsCall().Args() {
		all = append(all, conjuncts(arg)...)
	}
	return all
}

// part is a part of the expression by itself.
func (e *Expression) part(of ast.Expr, result Result) (*Expression, error) {
	text, err := parser.Unparse(of, e.ast.SourceInfo(), parser.WrapOnColumn(math.MaxInt))
	if err != nil { // It is for people alone.
		text = e.text
	}
	return compile(text, ast.NewCheckedAST(ast.NewAST(of, e.ast.SourceInfo()), e.ast.TypeMap(), e.ast.ReferenceMap()), result, e.scope)
}

// narrow what a term looks at to what the whole expression looks at. A term that only asks
// whether there is a field, whose parts another term looks at, needs no more than these.
func (e *Expression) narrow(term *Expression) {
	for variable, paths := range term.looks {
		var narrowed []fields.Path
		for _, p := range paths {
			for _, whole := range e.looks[variable] {
				if p.StartsWith(whole) {
					narrowed = append(narrowed, p)
				} else if whole.StartsWith(p) {
					narrowed = append(narrowed, whole)
				}
			}
		}
		term.looks[variable] = tops(narrowed)
	}
}

// Equality returns the two sides of class.PATH == VALUE, where VALUE uses neither class nor classRelated, and
// is a text, a number, true, false or null, as far as its type is known.
func (e *Expression) Equality() (class fields.Path, value *Expression, ok bool) {
	root := e.ast.Expr()
	if root.Kind() != ast.CallKind || root.AsCall().FunctionName() != operators.Equals {
		return nil, nil, false
	}
	sides := root.AsCall().Args()
	for i, side := range sides {
		of, err := e.part(side, anything)
		if err != nil || of.plain == nil || of.plain.variable != Class {
			continue
		}
		other, err := e.part(sides[1-i], anything)
		if err == nil && !other.UsesClass() && isScalar(other.ast.GetType(other.ast.Expr().ID())) {
			return of.plain.path, other, true
		}
	}
	return nil, nil, false
}

// isScalar reports whether values of a type may be those of a field that has no parts.
func isScalar(t *types.Type) bool {
	return slices.Contains([]types.Kind{
		types.DynKind, types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.NullTypeKind,
	}, t.Kind())
}
