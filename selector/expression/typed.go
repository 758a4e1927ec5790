package expression

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/classbind/classbind/selector/fields"
)

// TypeOf returns the type in the schema of a variable's objects of the field at a path, as OpenAPI has it: string,
// integer, number, boolean, array, object, or empty if it is not known. A path in Related starts with the name of the
// object. The error says that no object has the field.
type TypeOf func(variable string, p fields.Path) (string, error)

// scalars are the types of fields that have no parts. A number has none: in an object, it is an integer or not.
var scalars = map[string]*types.Type{"string": types.StringType, "integer": types.IntType, "boolean": types.BoolType}

// CheckTypes returns an *Error if the expression fails for objects that their schemas allow: it looks at a field that
// none of them has, or at one whose type a function does not take. What evaluates without an error is not wrong: a field
// that has() asks for may be missing, and values of any types may be compared for equality.
//
// CEL's own checker knows fields of objects only by one static type, which refuses both.
func (e *Expression) CheckTypes(of TypeOf) error {
	t := &typer{of: of, ast: e.ast}
	root := t.visit(e.ast.Expr(), nil)
	for _, m := range t.missing {
		if !slices.ContainsFunc(t.asked, m.field.is) {
			m.err.Source = e.text
			return m.err
		}
	}
	switch {
	case t.mistyped != nil:
		t.mistyped.Source = e.text
		return t.mistyped
	case !e.result.is(root.is):
		return &Error{1, 1, "must be " + e.result.words() + ", is of type " + root.is.String(), e.text}
	}
	return nil
}

// typer finds the types of the parts of an expression.
type typer struct {
	of  TypeOf
	ast *ast.AST
	// missing are the fields that no object has, and asked those for whose presence the expression asks.
	missing []missingField
	asked   []*field
	// mistyped is the first call of a function that does not take its arguments.
	mistyped *Error
}

type missingField struct {
	field *field
	err   *Error
}

func (f *field) is(o *field) bool { return f.variable == o.variable && slices.Equal(f.path, o.path) }

// part of an expression: the field that it is, if it is one, and its type, which is dyn if it is not known.
type part struct {
	field *field
	is    *types.Type
}

// locals are the variables of the comprehensions around a part, nil for those of which nothing is known.
type locals map[string]*field

func (t *typer) visit(e ast.Expr, in locals) part {
	p := part{is: t.ast.GetType(e.ID())}
	switch e.Kind() {
	case ast.IdentKind:
		local, isLocal := in[e.AsIdent()]
		i := slices.IndexFunc(variables, func(name string) bool { return inCEL(name) == e.AsIdent() })
		switch {
		case isLocal:
			p.field = local
		case i >= 0:
			p.field = &field{variable: variables[i]}
		}
	case ast.SelectKind:
		of := t.visit(e.AsSelect().Operand(), in)
		if e.AsSelect().IsTestOnly() {
			t.ask(of.field, e.AsSelect().FieldName())
			return p
		}
		p.field = t.child(e, of.field, e.AsSelect().FieldName())
	case ast.CallKind:
		p = t.visitCall(e, in)
	case ast.ListKind:
		t.visitAll(e.AsList().Elements(), in)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			t.visitAll([]ast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()}, in)
		}
	case ast.ComprehensionKind:
		t.visitComprehension(e.AsComprehension(), in)
	default:
	}
	if is := t.typeOf(p.field); is != nil {
		p.is = is
	}
	return p
}

func (t *typer) visitAll(all []ast.Expr, in locals) []part {
	parts := make([]part, len(all))
	for i, e := range all {
		parts[i] = t.visit(e, in)
	}
	return parts
}

func (t *typer) visitCall(e ast.Expr, in locals) part {
	call := e.AsCall()
	args := arguments(call)
	parts, function := t.visitAll(args, in), call.FunctionName()
	unknown := part{is: t.ast.GetType(e.ID())}
	if slices.Contains(indexes, function) {
		name, isField := fieldOf(e, args[0].ID())
		if !isField {
			name = fields.Element
		}
		if function != operators.Index { // It asks for the field, and yields an optional value.
			t.ask(parts[0].field, name)
			return unknown
		}
		return part{t.child(e, parts[0].field, name), unknown.is}
	}
	if function == operators.In && args[0].Kind() == ast.LiteralKind {
		t.ask(parts[1].field, literal(args[0]))
	}
	result, takes := resultOf(call, parts)
	switch {
	case takes:
		return part{is: result}
	case t.mistyped == nil:
		t.mistyped = t.errorAt(e, "found no matching overload for '"+function+"' applied to '"+signature(call, parts)+"'")
	}
	return unknown
}

// resultOf a function that is called with these arguments, which is dyn if it depends on more than their types. It is false if
// the function does not take them.
func resultOf(call ast.CallExpr, args []part) (result *types.Type, takes bool) {
	function, isDeclared := declared()[call.FunctionName()]
	if !isDeclared {
		return types.DynType, true
	}
	for _, o := range function.OverloadDecls() {
		if o.IsMemberFunction() != call.IsMemberFunction() || !slices.EqualFunc(args, o.ArgTypes(), part.mayBe) {
			continue
		}
		if is := o.ResultType(); is.Kind() == types.TypeParamKind || result != nil && !result.IsExactType(is) {
			result = types.DynType
		} else {
			result = is
		}
		takes = true
	}
	return result, takes
}

var declared = sync.OnceValue(func() map[string]*decls.FunctionDecl { return env().Functions() })

// mayBe reports whether a parameter of this type may take the part.
func (p part) mayBe(t *types.Type) bool {
	isAny := func(t *types.Type) bool {
		return slices.Contains([]types.Kind{types.DynKind, types.AnyKind, types.TypeParamKind, types.NullTypeKind}, t.Kind())
	}
	return isAny(p.is) || isAny(t) || p.is.Kind() == t.Kind() && p.is.TypeName() == t.TypeName()
}

// signature of a call, as CEL writes it.
func signature(call ast.CallExpr, args []part) string {
	before := ""
	if call.IsMemberFunction() {
		before, args = args[0].is.String()+".", args[1:]
	}
	all := make([]string, len(args))
	for i, p := range args {
		all[i] = p.is.String()
	}
	return before + "(" + strings.Join(all, ", ") + ")"
}

// visitComprehension knows the variables of a loop over the elements of a field.
func (t *typer) visitComprehension(c ast.ComprehensionExpr, in locals) {
	of := t.visit(c.IterRange(), in).field
	t.visit(c.AccuInit(), in)
	inside := maps.Clone(in)
	if inside == nil {
		inside = locals{}
	}
	element := t.child(c.IterRange(), of, fields.Element)
	inside[c.AccuVar()], inside[c.IterVar()] = nil, nil
	if c.HasIterVar2() { // The first is an index, or a key.
		inside[c.IterVar2()] = element
	} else if of != nil {
		if is, _ := t.of(of.variable, of.path); is == "array" {
			inside[c.IterVar()] = element
		}
	}
	t.visitAll([]ast.Expr{c.LoopCondition(), c.LoopStep(), c.Result()}, inside)
}

// typeOf a field that has no parts, nil if it is not known.
func (t *typer) typeOf(f *field) *types.Type {
	if f == nil {
		return nil
	}
	is, _ := t.of(f.variable, f.path)
	return scalars[is]
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
	t.missing = append(t.missing, missingField{f, t.errorAt(e, err.Error())})
	return nil
}

func (t *typer) errorAt(e ast.Expr, text string) *Error {
	s := search{info: t.ast.SourceInfo()}
	s.fail(e, text)
	return s.err
}

// ask whether a field has a field.
func (t *typer) ask(of *field, name string) {
	if of != nil {
		t.asked = append(t.asked, &field{of.variable, of.path.Below(name)})
	}
}
