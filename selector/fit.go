package selector

import (
	"strings"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// fit is a condition for a class to be given to a claim, taken apart at its conjunction. What
// needs less than claim and class is evaluated where that is known.
type fit struct {
	name, text string
	field      string
	// looks is what it looks at in a class.
	looks []fields.Path
	// ofClass terms look at the class alone, and not at its status: a class for which one is
	// false serves no claim.
	ofClass []*expression.Expression
	// ofClaim terms do not look at the class.
	ofClaim []*expression.Expression
	// equal terms are met by classes that the index finds.
	equal []*equality
	// rest of the terms.
	rest []*expression.Expression
}

// equality is a term class.PATH == VALUE.
type equality struct {
	term  *expression.Expression
	path  fields.Path
	key   string // in the index
	value *expression.Expression
}

func (l *looks) addFit(to *[]*fit, f v1alpha1.Fit, scope expression.Scope) {
	field := "spec.fits[" + f.Name + "].expression"
	whole := l.compile(field, f.Expression, expression.Bool, scope)
	if whole == nil {
		return
	}
	compiled := &fit{name: f.Name, field: field, text: "unfit (" + f.Name + ")", looks: whole.Looks(expression.Class)}
	if f.Message != "" {
		compiled.text = f.Message
	}
	for _, term := range whole.Terms() {
		path, value, isEqual := term.Equality()
		usesOthers := term.Uses(expression.Claim) || !readsClaimAlone(term)
		switch {
		case !term.Uses(expression.Class):
			compiled.ofClaim = append(compiled.ofClaim, term)
		case !usesOthers && !looksAtStatus(term): // No seat may depend on the status, which is not guarded.
			compiled.ofClass = append(compiled.ofClass, term)
		case isEqual:
			compiled.equal = append(compiled.equal, &equality{term, path, derivedKey(path), value})
		default:
			compiled.rest = append(compiled.rest, term)
		}
	}
	*to = append(*to, compiled)
}

// servedBy reports whether a class can serve claims at all: all terms that look at it alone are
// true. By is the first that is not, and why an error.
func (f *fit) servedBy(class *expression.Object, budget *expression.Budget) (by *expression.Expression, why error) {
	in := expression.Input{Class: class}
	for _, term := range f.ofClass {
		if ok, err := term.Bool(&in, budget); !ok || err != nil {
			return term, err
		}
	}
	return nil, nil
}

// linkedFit is what the filter for the fits of one name of class kinds says.
type linkedFit struct{ name, text string }

// derivedKey is the key of a field in the index. No label has it.
func derivedKey(p fields.Path) string { return "=" + strings.Join(p, "\x00") }
