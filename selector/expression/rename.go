package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
)

// Rename returns the text of the expression with other names for its variables.
func (e *Expression) Rename(names map[string]string) string {
	r := renamer{text: e.text, names: map[string]string{}, info: e.ast.SourceInfo(), edits: map[int]edit{}}
	for variable, name := range names {
		r.names[inCEL(variable)] = name
	}
	walk(e.ast, r.visit)
	for _, macro := range r.info.MacroCalls() {
		if first := macro.AsCall().Args()[0]; first.Kind() == ast.IdentKind { // It declares a variable.
			r.edit(first, r.free(first.AsIdent()))
		}
	}
	text := []rune(e.text)
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(r.edits))) {
		text = slices.Replace(text, at, at+len([]rune(r.edits[at].old)), []rune(r.edits[at].new)...)
	}
	return string(text)
}

// renamer finds where variables stand in the text of an expression.
type renamer struct {
	text string
	// names of variables, by the identifier in CEL.
	names map[string]string
	info  *ast.SourceInfo
	// edits by the character of the text at which they begin.
	edits map[int]edit
}

// edit of a name.
type edit struct{ old, new string }

func (r *renamer) visit(e ast.NavigableExpr) {
	if e.Kind() != ast.IdentKind {
		return
	}
	if isBound(e) {
		r.edit(e, r.free(e.AsIdent()))
	} else if name, ok := r.names[e.AsIdent()]; ok {
		r.edit(e, name)
	}
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

func (r *renamer) edit(ident ast.Expr, name string) {
	old := ident.AsIdent()
	written := strings.Replace(old, reserved, Namespace, 1)
	place, known := r.info.GetOffsetRange(ident.ID())
	// Macros use their variable in places where it is not written.
	if known && name != old && strings.HasPrefix(string([]rune(r.text)[place.Start:]), written) {
		r.edits[int(place.Start)] = edit{old, name}
	}
}
