package selector

import (
	"fmt"
	"slices"
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
	key   text // in the index
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
func (f *fit) servedBy(c *Class, budget *expression.Budget) (by *expression.Expression, why error) {
	in := expression.Input{Class: c.Fields}
	for _, term := range f.ofClass {
		if ok, err := term.Bool(&in, budget); !ok || err != nil {
			return term, err
		}
	}
	return nil, nil
}

// drops reports whether a class does not fit the claim of the facts. By is the term that says so.
func (f *fit) drops(facts *facts, c *Class) (by *expression.Expression, why error) {
	if failed := facts.claimTerm(f); failed != nil {
		return failed.term, failed.err
	}
	facts.input.Class = c.Fields
	for _, e := range f.equal {
		if met, err := facts.meets(e, c); !met || err != nil {
			return e.term, err
		}
	}
	for _, term := range f.rest {
		if ok, err := facts.bool(term); !ok || err != nil {
			return term, err
		}
	}
	return nil, nil
}

// row is the filter that drops the classes that do not fit.
func (f *fit) row() compiledFilter {
	return compiledFilter{f.name, f.text, func(claim subject, c *Class) (bool, error) {
		by, err := f.drops(claim.facts, c)
		return by != nil || err != nil, err
	}}
}

// linkedFit is what the filter for the fits of one name of class kinds says.
type linkedFit struct{ name, text string }

// rowOf the fits of these names of class kinds.
func rowOf(reason, text string, names ...string) compiledFilter {
	return compiledFilter{reason, text, func(claim subject, c *Class) (bool, error) {
		for _, f := range c.Kind.rules.fits {
			if slices.Contains(names, f.name) {
				if by, err := f.drops(claim.facts, c); by != nil || err != nil {
					return true, err
				}
			}
		}
		return false, nil
	}}
}

// otherFit is the reason of the fits of class kinds that have no filter of their own, because
// there are too many.
const otherFit = "OtherFit"

// compileFits adds the filters for the fits of the kind and of its class kinds.
func (k *ClaimKind) compileFits() {
	k.free = len(k.filters)
	for _, f := range k.fits {
		k.addJudges(f.row())
	}
	room := min(len(k.linkedFits), max(maxFilters-len(k.filters)-3, 0)) // They are for TooCostly, otherFit and the score.
	for _, f := range k.linkedFits[:room] {
		k.addJudges(rowOf(f.name, f.text, f.name))
	}
	var others []string
	for _, f := range k.linkedFits[room:] {
		others = append(others, f.name)
	}
	if len(others) > 0 {
		k.addJudges(rowOf(otherFit, "unfit", others...))
	}
	if k.score != nil {
		k.addJudges(compiledFilter{"NoScore", "without a score", func(claim subject, c *Class) (bool, error) {
			_, err := claim.facts.rank(k, c)
			return err != nil, err
		}})
	}
}

// serves reports whether a class can serve claims of the kind. If not, by is the condition that
// it does not meet, and term the part of it, and why an error.
func (r *rules) serves(c *Class) (by *fit, term *expression.Expression, why error) {
	return r.servesWithin(c, &expression.Budget{Left: v1alpha1.MaxClassExpressionCost})
}

func (r *rules) servesWithin(c *Class, budget *expression.Budget) (by *fit, term *expression.Expression, why error) {
	for _, fits := range [...][]*fit{r.fits, c.Kind.rules.fits} {
		for _, f := range fits {
			if term, why = f.servedBy(c, budget); term != nil {
				return f, term, why
			}
		}
	}
	return nil, nil, nil
}

// Serves reports whether a class can serve claims of the kind.
func (r *rules) Serves(c *Class) bool {
	by, _, _ := r.serves(c)
	return by == nil
}

// mayExclude reports whether some classes of a kind may not serve the claims.
func (r *rules) mayExclude(classes *ClassKind) bool {
	isJudge := func(f *fit) bool { return len(f.ofClass) > 0 }
	return slices.ContainsFunc(r.fits, isJudge) || slices.ContainsFunc(classes.rules.fits, isJudge)
}

// Unlinked is the fault of a view whose kinds do not know yet what they need of each other,
// nil if they do.
func (k *ClaimKind) Unlinked(classes *ClassKind) *Fault {
	missesFit := slices.ContainsFunc(classes.rules.fits, func(f *fit) bool {
		return !slices.ContainsFunc(k.linkedFits, func(l linkedFit) bool { return l.name == f.name })
	})
	if !missesFit && classes.holds(k.class) && k.looksAt.Covers(classes.rules.claim...) {
		return nil
	}
	return &Fault{v1alpha1.ReasonNotSynced, fmt.Sprintf(
		"the classes of %q are being read again, because the expressions of claim kind %q, or of the class kind, look at other fields; "+
			"try again in a moment",
		classes.Name, k.Name)}
}

// derivedKey is the key of a field in the index. No label has it.
func derivedKey(p fields.Path) text { return text("=" + strings.Join(p, "\x00")) }

// derivedValue is the text of a value in the index, so that equal values have the same; false
// if the index does not have such values.
func derivedValue(value any) (text, bool) {
	const exact = 1 << 53 // Above, a float64 equals several integers.
	switch v := value.(type) {
	case string:
		return text("s" + v), true
	case bool:
		return text(fmt.Sprintf("b%t", v)), true
	case int64:
		if v > -exact && v < exact {
			return text(fmt.Sprintf("n%d", v)), true
		}
	case float64:
		if v == float64(int64(v)) && v > -exact && v < exact {
			return text(fmt.Sprintf("n%d", int64(v))), true
		}
	}
	return "", false
}
