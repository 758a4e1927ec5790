package expression

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Terms of a conjunction: an expression that is none is its own only term.
func (e *Expression) Terms() []*Expression {
	texts := split(e.text)
	if len(texts) < 2 || len(texts) != operands(e.ast.Expr()) {
		return []*Expression{e}
	}
	terms := make([]*Expression, len(texts))
	for i, text := range texts {
		term, err := Compile(text, Bool, e.scope)
		if err != nil {
			return []*Expression{e}
		}
		e.narrow(term)
		terms[i] = term
	}
	return terms
}

// narrow what a term looks at to what the whole expression looks at. A term that only asks
// whether there is a field, of which another term looks at parts, needs no more than these.
func (e *Expression) narrow(term *Expression) {
	for variable, paths := range term.looks {
		var narrowed []Path
		for _, p := range paths {
			for _, whole := range e.looks[variable] {
				if p.startsWith(whole) {
					narrowed = append(narrowed, p)
				} else if whole.startsWith(p) {
					narrowed = append(narrowed, whole)
				}
			}
		}
		term.looks[variable] = tops(narrowed)
	}
}

// operands counts what && joins.
func operands(e ast.Expr) int {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return 1
	}
	n := 0
	for _, arg := range e.AsCall().Args() {
		n += operands(arg)
	}
	return n
}

// Equality returns the two sides of class.PATH == VALUE, where VALUE does not use class, and
// is a text, a number, true, false or null, as far as its type is known.
func (e *Expression) Equality() (class Path, value *Expression, ok bool) {
	root := e.ast.Expr()
	if root.Kind() != ast.CallKind || root.AsCall().FunctionName() != operators.Equals {
		return nil, nil, false
	}
	text := unwrap(e.text)
	var sides []string
	scan(text, func(at, depth int) {
		if depth == 0 && strings.HasPrefix(text[at:], "==") {
			sides = []string{text[:at], text[at+len("=="):]} // The last one, which binds least.
		}
	})
	if sides == nil {
		return nil, nil, false
	}
	for i, side := range sides {
		one, err := Compile(side, anything, e.scope)
		if err != nil || one.plain == nil || one.plain.variable != Class {
			continue
		}
		other, err := Compile(strings.TrimSpace(sides[1-i]), anything, e.scope)
		if err == nil && !other.Uses(Class) && isScalar(other.ast.GetType(other.ast.Expr().ID())) {
			return one.plain.path, other, true
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

// split a text at the && that join all of it, also those in parentheses around parts.
func split(text string) []string {
	text = unwrap(text)
	var cuts []int
	other := false
	scan(text, func(at, depth int) {
		rest := text[at:]
		switch {
		case depth > 0:
		case strings.HasPrefix(rest, "&&"):
			cuts = append(cuts, at)
		case strings.HasPrefix(rest, "||"), rest[0] == '?' && !strings.HasSuffix(text[:at], "."):
			other = true // It binds less.
		}
	})
	if other || len(cuts) == 0 {
		return []string{text}
	}
	var parts []string
	from := 0
	for _, cut := range append(cuts, len(text)) {
		parts = append(parts, split(text[from:cut])...)
		from = cut + len("&&")
	}
	return parts
}

// unwrap takes off space and the parentheses around a whole text.
func unwrap(text string) string {
	for {
		text = strings.TrimSpace(text)
		whole := strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")")
		scan(text, func(at, depth int) {
			if depth == 0 && at > 0 && at < len(text)-1 {
				whole = false
			}
		})
		if !whole {
			return text
		}
		text = text[1 : len(text)-1]
	}
}

// scan calls see for each byte of an expression that is neither in a literal nor in a
// comment, with the number of brackets around it. A bracket is not around itself.
func scan(text string, see func(at, depth int)) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			i = endOfLiteral(text, i)
			see(i, depth) // The last quote stands for the literal.
		case strings.HasPrefix(text[i:], "//"):
			if end := strings.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(text)
			}
		case strings.IndexByte(")]}", c) >= 0:
			depth--
			see(i, depth)
		default:
			see(i, depth)
			if strings.IndexByte("([{", c) >= 0 {
				depth++
			}
		}
	}
}

// endOfLiteral returns the place of the last quote of the literal whose first quote is at
// start.
func endOfLiteral(text string, start int) int {
	quote := text[start : start+1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(text[start:], three) {
		quote = three
	}
	before := strings.TrimRight(text[:start], "rRbB")
	raw := strings.ContainsAny(text[len(before):start], "rR")
	for i := start + len(quote); i < len(text); i++ {
		if text[i] == '\\' && !raw {
			i++
		} else if strings.HasPrefix(text[i:], quote) {
			return i + len(quote) - 1
		}
	}
	return len(text) - 1
}
