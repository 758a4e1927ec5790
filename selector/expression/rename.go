package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// Rename returns the text of the expression with other names for its variables.
func (e *Expression) Rename(names map[string]string) string {
	text := []rune(e.text)
	r := renamer{text: e.text, names: map[string]string{}, info: e.ast.SourceInfo()}
	for variable, name := range names {
		r.names[inCEL(variable)] = name
	}
	r.visit(e.ast.Expr(), nil)
	slices.SortFunc(r.edits, func(a, b edit) int { return a.at - b.at })
	r.edits = slices.CompactFunc(r.edits, func(a, b edit) bool { return a.at == b.at })
	b := strings.Builder{}
	from := 0
	for _, edit := range r.edits {
		b.WriteString(string(text[from:edit.at]) + edit.new)
		from = edit.at + len([]rune(edit.old))
	}
	b.WriteString(string(text[from:]))
	return b.String()
}

// renamer finds where variables stand in the text of an expression.
type renamer struct {
	text string
	// names of variables, by the identifier in CEL.
	names map[string]string
	info  *ast.SourceInfo
	edits []edit
}

// edit of a name at a character of the text.
type edit struct {
	at       int
	old, new string
}

// visit an expression, in which variables of comprehensions have the inner names.
func (r *renamer) visit(e ast.Expr, inner map[string]string) {
	switch e.Kind() {
	case ast.IdentKind:
		name, ok := inner[e.AsIdent()]
		if !ok {
			name, ok = r.names[e.AsIdent()]
		}
		r.edit(e, name, ok)
	case ast.ComprehensionKind:
		r.visitComprehension(e, inner)
	default:
		for _, part := range parts(e) {
			r.visit(part, inner)
		}
	}
}

func (r *renamer) visitComprehension(e ast.Expr, inner map[string]string) {
	c := e.AsComprehension()
	r.visit(c.IterRange(), inner)
	r.visit(c.AccuInit(), inner)
	inner = maps.Clone(inner)
	if inner == nil {
		inner = map[string]string{}
	}
	name := r.free(c.IterVar())
	inner[c.IterVar()] = name
	inner[c.AccuVar()] = c.AccuVar()
	if macro, ok := r.info.GetMacroCall(e.ID()); ok && name != c.IterVar() {
		r.edit(macro.AsCall().Args()[0], name, true)
	}
	r.visit(c.LoopCondition(), inner)
	r.visit(c.LoopStep(), inner)
	r.visit(c.Result(), inner)
}

// free returns a name for the variable of a comprehension. It hides none of the new names,
// and nothing that is in the text.
func (r *renamer) free(name string) string {
	taken := slices.Collect(maps.Values(r.names))
	if name != reserved && !slices.Contains(taken, name) {
		return name
	}
	for name == reserved || strings.Contains(r.text, name) || slices.Contains(taken, name) {
		name += "_"
	}
	return name
}

func (r *renamer) edit(ident ast.Expr, name string, ok bool) {
	old := ident.AsIdent()
	place, known := r.info.GetOffsetRange(ident.ID())
	if ok && known && name != old {
		r.edits = append(r.edits, edit{int(place.Start), old, name})
	}
}
