package expression

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/classbind/classbind/selector/fields"
)

// TypeOf returns the type in the schema of a variable's objects of the field at a path, as OpenAPI has it: string,
// integer, number, boolean, array, object, or empty if it is not known. A path in Related starts with the name of the
// object. The error means that no object has the field.
type TypeOf func(variable string, p fields.Path) (string, error)

// typed has a variable for each type of a field that has no parts. No expression can name it. A number has none: in an
// object, it is an integer or not.
var typed = sync.OnceValue(func() *cel.Env {
	e, err := env().Extend(
		cel.Variable("@string", cel.StringType), cel.Variable("@integer", cel.IntType), cel.Variable("@boolean", cel.BoolType))
	if err != nil {
		panic(err) // It depends on nothing but env.
	}
	return e
})

// CheckTypes returns an error, mostly an *Error, if the expression fails for objects that their schemas allow: it looks at a field that
// none of them has, or at one whose type a function does not take. What evaluates without an error is not wrong: a field
// that has() asks for may be missing, and values of any types may be compared for equality.
//
// CEL's own checker knows fields of objects only by one static type, which refuses both. So it gets the types of the
// fields that have no parts, each where a function takes it.
func (e *Expression) CheckTypes(of TypeOf) error {
	copied := ast.Copy(e.ast)
	t := &typer{of: of, ast: copied, lastID: ast.MaxID(copied)}
	root := copied.Expr()
	t.takes(root, t.visit(root, nil))
	for _, m := range t.missing {
		if !slices.ContainsFunc(t.asked, m.field.is) {
			m.err.Source = e.text
			return m.err
		}
	}
	tree, err := ast.ToProto(copied)
	if err != nil {
		return fmt.Errorf("cannot check the types of an expression: %w", err)
	}
	checked, err := check(typed(), cel.CheckedExprToAst(tree), e.text, e.scope)
	if err != nil {
		return err
	}
	if is := checked.OutputType(); !e.result.is(is) {
		return &Error{1, 1, "must be " + e.result.words() + ", is of type " + is.String(), e.text}
	}
	return nil
}

// typer writes types into the tree of an expression, in place of the fields that have them.
type typer struct {
	of     TypeOf
	ast    *ast.AST
	lastID int64
	// missing are the fields that no object has, and asked those for whose presence the expression asks.
	missing []missingField
	asked   []*field
}

type missingField struct {
	field *field
	err   *Error
}

func (f *field) is(o *field) bool { return f.variable == o.variable && slices.Equal(f.path, o.path) }

// part of an expression: the field that it is, if it is one, and whether it has typed parts.
type part struct {
	field   *field
	isTyped bool
}

// locals are the variables of the comprehensions around a part, nil for unknown ones.
type locals map[string]*field

func (t *typer) visit(e ast.Expr, in locals) (p part) {
	switch e.Kind() {
	case ast.IdentKind:
		local, isLocal := in[e.AsIdent()]
		i := slices.Index(variables, e.AsIdent())
		switch {
		case isLocal:
			p.field = local
		case i >= 0:
			p.field = &field{variable: variables[i]}
		}
	case ast.SelectKind:
		p = t.visit(e.AsSelect().Operand(), in)
		if e.AsSelect().IsTestOnly() {
			t.ask(p.field, e.AsSelect().FieldName())
			return part{isTyped: p.isTyped}
		}
		p.field = t.child(e, p.field, e.AsSelect().FieldName())
	case ast.CallKind:
		p = t.visitCall(e, in)
	case ast.ListKind:
		if len(e.AsList().OptionalIndices()) == 0 { // The checker takes no dyn for an optional value.
			p.isTyped = t.anyOf(e.AsList().Elements(), in)
		}
	case ast.MapKind:
		var keys, values []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			if entry.AsMapEntry().IsOptional() {
				return p
			}
			keys, values = append(keys, entry.AsMapEntry().Key()), append(values, entry.AsMapEntry().Value())
		}
		p.isTyped = t.anyOf(keys, in)
		p.isTyped = t.anyOf(values, in) || p.isTyped
	case ast.ComprehensionKind:
		p.isTyped = t.visitComprehension(e.AsComprehension(), in)
	default:
	}
	return p
}

func (t *typer) visitCall(e ast.Expr, in locals) (p part) {
	call := e.AsCall()
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	if slices.Contains(indexes, call.FunctionName()) {
		p = t.visit(args[0], in)
		p.isTyped = t.anyOf(args[1:], in) || p.isTyped
		name, isField := fieldOf(e, args[0].ID())
		if !isField {
			name = fields.Element
		}
		if call.FunctionName() != operators.Index { // It asks for the field, and yields an optional value.
			t.ask(p.field, name)
			p.field = nil
		}
		p.field = t.child(e, p.field, name)
		return p
	}
	if !isStrict(call.FunctionName()) {
		parts := t.visitAll(args, in)
		if call.FunctionName() == operators.In && args[0].Kind() == ast.LiteralKind {
			if name, ok := args[0].AsLiteral().(types.String); ok {
				t.ask(parts[1].field, string(name))
			}
		}
		p.isTyped = t.untyped(args, parts)
		return p
	}
	for _, arg := range args {
		p.isTyped = t.takes(arg, t.visit(arg, in)) || p.isTyped
	}
	return p
}

// isStrict reports whether a function fails for an argument of another type than it declares. One with a parameter for a
// type, such as equality, may do with others.
func isStrict(function string) bool {
	f, ok := declared()[function]
	hasTypeParams := func(o *decls.OverloadDecl) bool { return len(o.TypeParams()) > 0 }
	return ok && (function == operators.Add || !slices.ContainsFunc(f.OverloadDecls(), hasTypeParams))
}

var declared = sync.OnceValue(func() map[string]*decls.FunctionDecl { return env().Functions() })

// visitComprehension knows the variables of a loop over the elements of a field.
func (t *typer) visitComprehension(c ast.ComprehensionExpr, in locals) (isTyped bool) {
	of := t.visit(c.IterRange(), in)
	isTyped = t.anyOf([]ast.Expr{c.AccuInit()}, in) || of.isTyped
	inside := maps.Clone(in)
	if inside == nil {
		inside = locals{}
	}
	element := t.child(c.IterRange(), of.field, fields.Element)
	inside[c.AccuVar()], inside[c.IterVar()] = nil, nil
	switch {
	case c.HasIterVar2(): // The first is an index, or a key.
		inside[c.IterVar2()] = element
	case of.field != nil && t.typeOf(of.field) == "array":
		inside[c.IterVar()] = element
	}
	for _, e := range []ast.Expr{c.LoopCondition(), c.LoopStep()} {
		isTyped = t.visit(e, inside).isTyped || isTyped
	}
	return t.visit(c.Result(), inside).isTyped || isTyped
}

// anyOf visits parts that may be of any type, and reports whether one has typed parts.
func (t *typer) anyOf(all []ast.Expr, in locals) bool { return t.untyped(all, t.visitAll(all, in)) }

func (t *typer) visitAll(all []ast.Expr, in locals) []part {
	parts := make([]part, len(all))
	for i, e := range all {
		parts[i] = t.visit(e, in)
	}
	return parts
}

// untyped takes their types from all of some parts if one has typed parts: CEL's checker would compare the types with
// each other. It reports whether one has.
func (t *typer) untyped(all []ast.Expr, parts []part) bool {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.isTyped }) {
		return false
	}
	for _, e := range all {
		t.lastID++
		inner := ast.NewExprFactory().NewUnspecifiedExpr(t.lastID)
		inner.SetKindCase(e)
		e.SetKindCase(ast.NewExprFactory().NewCall(e.ID(), "dyn", inner))
		if at, ok := t.ast.SourceInfo().GetOffsetRange(e.ID()); ok {
			t.ast.SourceInfo().SetOffsetRange(inner.ID(), at)
		}
	}
	return true
}

// takes writes into a part the type that a function needs, and reports whether it has typed parts.
func (t *typer) takes(e ast.Expr, p part) bool {
	if p.field == nil {
		return p.isTyped
	}
	name := "@" + t.typeOf(p.field)
	if !slices.Contains([]string{"@string", "@integer", "@boolean"}, name) {
		return p.isTyped
	}
	e.SetKindCase(ast.NewExprFactory().NewIdent(e.ID(), name))
	return true
}

func (t *typer) typeOf(f *field) string {
	is, _ := t.of(f.variable, f.path)
	return is
}

// child is a field of a field, nil if nothing is known of it.
func (t *typer) child(e ast.Expr, of *field, name string) *field {
	if of == nil {
		return nil
	}
	f := &field{of.variable, of.path.Below(name)}
	_, err := t.of(f.variable, f.path)
	if err == nil {
		return f
	}
	at := search{info: t.ast.SourceInfo()}
	at.fail(e, err.Error())
	t.missing = append(t.missing, missingField{f, at.err})
	return nil
}

// ask whether a field has a field.
func (t *typer) ask(of *field, name string) {
	if of != nil {
		t.asked = append(t.asked, &field{of.variable, of.path.Below(name)})
	}
}
