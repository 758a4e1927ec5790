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
	// isPlain is a look that is all of the expression, and fails without the field.
	isPlain bool
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
	walk(of, s.visit)
	return s
}

// walk visits the parts of an expression, outer ones first.
func walk(of *ast.AST, visit func(ast.NavigableExpr)) {
	ast.PreOrderVisit(ast.NavigateAST(of), ast.NewExprVisitor(func(e ast.Expr) { visit(e.(ast.NavigableExpr)) }))
}

func (s *search) visit(e ast.NavigableExpr) {
	if s.err != nil {
		return
	}
	switch e.Kind() {
	case ast.CallKind:
		if part, what := mustBeConstant(e.AsCall()); part != nil {
			s.fail(e, "the "+what+" of "+e.AsCall().FunctionName()+" must be a constant text")
		}
	case ast.IdentKind:
		if name, ok := strings.CutPrefix(e.AsIdent(), "."); ok {
			s.fail(e, "write "+name+" without a dot before it")
			return
		}
		i := slices.Index(variables, e.AsIdent())
		if i >= 0 && loopOfVariable(e) == nil {
			s.add(newLook(variables[i], e), e)
		}
	default:
	}
}

// loopOfVariable returns the comprehension of which an identifier is a variable, nil if it is none.
func loopOfVariable(ident ast.NavigableExpr) ast.NavigableExpr {
	name := ident.AsIdent()
	for at, above := ident, parentOf(ident); above != nil; at, above = above, parentOf(above) {
		if above.Kind() == ast.ComprehensionKind {
			c := above.AsComprehension()
			isOutside := at.ID() == c.IterRange().ID() || at.ID() == c.AccuInit().ID()
			isInLoop := !isOutside && at.ID() != c.Result().ID()
			if !isOutside && name == c.AccuVar() || isInLoop && (name == c.IterVar() || c.HasIterVar2() && name == c.IterVar2()) {
				return above
			}
		}
	}
	return nil
}

// parentOf an expression, nil for the whole.
func parentOf(e ast.NavigableExpr) ast.NavigableExpr {
	above, _ := e.Parent()
	return above
}

// newLook reads an expression like class.spec["a"].?b, from its variable on.
func newLook(variable string, ident ast.NavigableExpr) look {
	l := look{field: field{variable: variable}, isPlain: true}
	for at, above := ident, parentOf(ident); above != nil; at, above = above, parentOf(above) {
		name, isField := fieldOf(above, at.ID())
		if !isField {
			l.isPlain = false
			break
		}
		isSelect := above.Kind() == ast.SelectKind
		l.presence = isSelect && above.AsSelect().IsTestOnly()
		l.isPlain = l.isPlain && !l.presence && (isSelect || above.AsCall().FunctionName() == operators.Index)
		l.path = append(l.path, name)
	}
	return l
}

// fieldOf returns the name of the field that an expression takes of its part with this ID. It is false for other expressions.
func fieldOf(e ast.Expr, part int64) (string, bool) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().FieldName(), true
	}
	if e.Kind() != ast.CallKind || !slices.Contains(indexes, e.AsCall().FunctionName()) {
		return "", false
	}
	args := e.AsCall().Args()
	if args[0].ID() != part || args[1].Kind() != ast.LiteralKind {
		return "", false
	}
	name, ok := args[1].AsLiteral().(types.String)
	return string(name), ok
}

// indexes are the operators that take a field whose name is a text.
var indexes = []string{operators.Index, operators.OptIndex, operators.OptSelect}

func (s *search) add(f look, ident ast.NavigableExpr) {
	switch {
	case !slices.Contains(s.scope.Variables, f.variable):
		s.fail(ident, f.variable+" cannot be used here; "+s.scope.words())
		return
	case len(f.path) == 0:
		s.fail(ident, "name a field of "+f.variable)
		return
	case hasObjects(f.variable):
		if names := s.scope.objects(f.variable); names != nil && !slices.Contains(names, f.path[0]) {
			s.fail(ident, relatedWords(f.variable, names, f.path[0]))
			return
		}
		if f.variable == Related && slices.Contains(s.scope.Lists, f.path[0]) {
			s.addElements(f, ident)
			return
		}
		if len(f.path) == 1 {
			if !f.presence {
				s.fail(ident, "name a field of "+f.path.In(f.variable))
				return
			}
			f.path = append(f.path, "metadata", "name")
		}
	}
	s.found = append(s.found, f)
}

// addElements adds the fields of the elements of a list at which a loop looks. Nothing else may be done with the list: what it holds of its
// elements would not be known.
func (s *search) addElements(f look, ident ast.NavigableExpr) {
	list := parentOf(ident)
	loop := parentOf(list)
	isLoop := loop != nil && loop.Kind() == ast.ComprehensionKind && loop.AsComprehension().IterRange().ID() == list.ID()
	if len(f.path) > 1 || f.presence || !isLoop {
		s.fail(ident, f.path[:1].In(Related)+" is a list: go through it with all, exists, exists_one or map")
		return
	}
	c := loop.AsComprehension()
	name := c.IterVar()
	if c.HasIterVar2() { // The first is the index.
		name = c.IterVar2()
	}
	elements := f.path.Below(fields.Element)
	s.found = append(s.found, look{field: field{Related, slices.Concat(elements, fields.Path{"metadata", "name"})}, presence: true})
	ast.PreOrderVisit(loop, ast.NewExprVisitor(func(e ast.Expr) {
		element := e.(ast.NavigableExpr)
		if s.err != nil || e.Kind() != ast.IdentKind || e.AsIdent() != name {
			return
		}
		if by := loopOfVariable(element); by == nil || by.ID() != loop.ID() {
			return
		}
		of := newLook(Related, element)
		if len(of.path) == 0 {
			s.fail(element, "name a field of "+name+", such as "+name+".metadata.name")
			return
		}
		of.path, of.isPlain = slices.Concat(elements, of.path), false
		s.found = append(s.found, of)
	}))
}

// objects that may be related in a variable, nil for any.
func (s Scope) objects(variable string) []string {
	if variable == ClassRelated {
		return s.ClassRelated
	}
	return append([]string{}, s.Related...)
}

// relatedWords say that there is no related object of this name, and which there are.
func relatedWords(variable string, names []string, name string) string {
	text := "there is no " + fields.Path{name}.In(variable) + " here"
	if len(names) == 0 {
		return text
	}
	all := make([]string, len(names))
	for i, r := range names {
		all[i] = variable + "." + r
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
