package expression

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/classbind/classbind/selector/fields"
)

// look at a field. A look for presence only asks whether there is the field.
type look struct {
	field
	presence bool
}

// search finds what an expression looks at.
type search struct {
	info  *ast.SourceInfo
	scope Scope
	found []look
	err   *Error
}

func newSearch(of *ast.AST, scope Scope) *search {
	s := &search{info: of.SourceInfo(), scope: scope}
	s.visit(of.Expr(), nil)
	return s
}

// visit an expression, in which the hidden names are variables of comprehensions.
func (s *search) visit(e ast.Expr, hidden []string) {
	if s.err != nil || e == nil {
		return
	}
	if f, ident, ok := chain(e, hidden); ok {
		s.add(f, ident)
		return
	}
	switch e.Kind() {
	case ast.ComprehensionKind:
		s.visitComprehension(e.AsComprehension(), hidden)
		return
	case ast.CallKind:
		if part, what := mustBeConstant(e.AsCall()); part != nil {
			s.fail(e, "the "+what+" of "+e.AsCall().FunctionName()+" must be a constant text")
			return
		}
	case ast.IdentKind: // It is no variable of ours.
		if name, ok := strings.CutPrefix(e.AsIdent(), "."); ok {
			s.fail(e, "write "+name+" without a dot before it")
		}
	default:
	}
	for _, part := range parts(e) {
		s.visit(part, hidden)
	}
}

// parts of an expression, in their order. A comprehension, whose parts see different variables, has
// none here.
func parts(e ast.Expr) (all []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			all = append(all, e.AsCall().Target())
		}
		return append(all, e.AsCall().Args()...)
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			all = append(all, f.AsStructField().Value())
		}
	default: // An identifier or a literal.
	}
	return all
}

func (s *search) visitComprehension(c ast.ComprehensionExpr, hidden []string) {
	s.visit(c.IterRange(), hidden)
	s.visit(c.AccuInit(), hidden)
	inner := append(slices.Clone(hidden), c.AccuVar(), c.IterVar())
	if c.HasIterVar2() {
		inner = append(inner, c.IterVar2())
	}
	s.visit(c.LoopCondition(), inner)
	s.visit(c.LoopStep(), inner)
	s.visit(c.Result(), append(slices.Clone(hidden), c.AccuVar()))
}

// chain reads an expression like class.spec["a"].?b. The second result is the variable in it.
func chain(e ast.Expr, hidden []string) (look, ast.Expr, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		i := slices.IndexFunc(variables, func(name string) bool { return inCEL(name) == e.AsIdent() })
		if i < 0 || slices.Contains(hidden, e.AsIdent()) {
			return look{}, nil, false
		}
		return look{field: field{variable: variables[i]}}, e, true
	case ast.SelectKind:
		sel := e.AsSelect()
		f, ident, ok := chain(sel.Operand(), hidden)
		f.path = append(f.path, sel.FieldName())
		f.presence = sel.IsTestOnly()
		return f, ident, ok
	case ast.CallKind:
		call := e.AsCall()
		name := call.FunctionName()
		if name != operators.Index && name != operators.OptIndex && name != operators.OptSelect {
			return look{}, nil, false
		}
		key, ok := constant(call.Args()[1]).(types.String)
		if !ok {
			return look{}, nil, false
		}
		f, ident, ok := chain(call.Args()[0], hidden)
		f.path = append(f.path, string(key))
		return f, ident, ok
	default:
		return look{}, nil, false
	}
}

// constant returns the value of a literal, nil for other expressions.
func constant(e ast.Expr) any {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	return e.AsLiteral()
}

func (s *search) add(f look, ident ast.Expr) {
	switch {
	case !slices.Contains(s.scope.Variables, f.variable):
		s.fail(ident, f.variable+" cannot be used here; "+s.scope.words())
		return
	case len(f.path) == 0:
		s.fail(ident, "name a field of "+f.variable)
		return
	case f.variable == Related:
		if !slices.Contains(s.scope.Related, f.path[0]) {
			s.fail(ident, s.scope.relatedWords(f.path[0]))
			return
		}
		if len(f.path) == 1 {
			if !f.presence {
				s.fail(ident, "name a field of "+f.path.In(Related))
				return
			}
			f.path = append(f.path, "metadata", "name")
		}
	}
	s.found = append(s.found, f)
}

// relatedWords say that there is no related object of this name, and which there are.
func (s Scope) relatedWords(name string) string {
	text := "there is no " + fields.Path{name}.In(Related) + " here"
	if len(s.Related) == 0 {
		return text
	}
	all := make([]string, len(s.Related))
	for i, r := range s.Related {
		all[i] = Related + "." + r
	}
	return text + "; there is " + strings.Join(all, ", ")
}

func (s *search) fail(at ast.Expr, text string) {
	location := s.info.GetStartLocation(at.ID())
	s.err = &Error{Line: max(location.Line(), 1), Column: max(location.Column()+1, 1), Text: text}
}

// fieldRefs are the paths by variable. A path that is only asked for its presence is left out
// if there is one below it: what is below has its presence with it.
func (s *search) fieldRefs() map[string][]fields.Path {
	all := map[string][]fields.Path{}
	for _, f := range s.found {
		below := func(o look) bool {
			return o.variable == f.variable && len(o.path) > len(f.path) && o.path.StartsWith(f.path)
		}
		if f.presence && slices.ContainsFunc(s.found, below) {
			continue
		}
		all[f.variable] = append(all[f.variable], f.path)
	}
	for variable, paths := range all {
		all[variable] = tops(paths)
	}
	return all
}

// tops sorts paths, and leaves out those that are below others.
func tops(paths []fields.Path) []fields.Path {
	paths = slices.Clone(paths)
	slices.SortFunc(paths, slices.Compare)
	var result []fields.Path
	for _, p := range paths {
		if len(result) == 0 || !p.StartsWith(result[len(result)-1]) {
			result = append(result, p)
		}
	}
	return result
}

// plainField returns the field that an expression is, nil for other expressions.
func plainField(e ast.Expr) *field {
	for at := e; at.Kind() != ast.IdentKind; {
		switch {
		case at.Kind() == ast.SelectKind && !at.AsSelect().IsTestOnly():
			at = at.AsSelect().Operand()
		case at.Kind() == ast.CallKind && at.AsCall().FunctionName() == operators.Index:
			at = at.AsCall().Args()[0]
		default:
			return nil
		}
	}
	f, _, ok := chain(e, nil)
	if !ok {
		return nil
	}
	return &f.field
}
