package rules

import (
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// Fit is a condition for a class to be given to a claim, taken apart at its conjunction. What
// needs less than claim and class is evaluated where that is known.
type Fit struct {
	Name, Text string
	Field      string
	// looks is what it looks at in a class.
	looks []fields.Path
	// OfClass terms look at the class alone, and not at its status: a class for which one is false serves no claim.
	OfClass []*expression.Expression
	// OfClaim terms do not look at the class.
	OfClaim []*expression.Expression
	// Equal terms are met by classes that the index finds.
	Equal []*Equality
	// Rest of the terms.
	Rest []*expression.Expression
}

// Equality is a term class.PATH == VALUE.
type Equality struct {
	Term  *expression.Expression
	Path  fields.Path
	Key   string // in the index
	Value *expression.Expression
}

// addFit of a list of fits, such as spec.fits.
func (l *looks) addFit(to *[]*Fit, list string, f v1beta1.Fit, scope expression.Scope) {
	field := list + "[" + f.Name + "].expression"
	whole := l.compile(field, f.Expression, expression.Bool, scope)
	if whole == nil {
		return
	}
	compiled := &Fit{Name: f.Name, Field: field, Text: "unfit (" + f.Name + ")", looks: whole.Looks(expression.Class)}
	if f.Message != "" {
		compiled.Text = f.Message
	}
	for _, term := range whole.Terms() {
		path, value, isEqual := term.Equality()
		usesOthers := term.Uses(expression.Claim) || term.Uses(expression.ClassRelated) || !ReadsClaimAlone(term)
		switch {
		case !term.UsesClass():
			compiled.OfClaim = append(compiled.OfClaim, term)
		case !usesOthers && !looksAtStatus(term): // No seat may depend on the status, which is not guarded.
			compiled.OfClass = append(compiled.OfClass, term)
		case isEqual:
			compiled.Equal = append(compiled.Equal, &Equality{term, path, derivedKey(path), value})
		default:
			compiled.Rest = append(compiled.Rest, term)
		}
	}
	*to = append(*to, compiled)
}

// ServedBy reports whether a class can serve claims at all: all terms that look at it alone are
// true. By is the first that is not, and why an error.
func (f *Fit) ServedBy(class *expression.Object, budget *expression.Budget) (by *expression.Expression, why error) {
	in := expression.Input{Class: class}
	for _, term := range f.OfClass {
		if ok, err := term.Bool(&in, budget); !ok || err != nil {
			return term, err
		}
	}
	return nil, nil
}

// LinkedFit is what the test for the fits of one name of class kinds says.
type LinkedFit struct{ Name, Text string }

// derivedKey is the key of a field in the index. No label has it.
func derivedKey(p fields.Path) string { return "=" + strings.Join(p, "\x00") }
