package selector

import (
	"cmp"
	"context"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
	"github.com/classbind/classbind/selector/expression"
)

// Explanation is a decision with its reasons.
type Explanation struct {
	Decision Decision
	// Reproducible says that this claim always gets this class from these classes.
	// Otherwise the next draw may give another.
	Reproducible bool
	// Candidates of the draw, the likeliest first.
	Candidates []Candidate
	// Dropped are the classes that the claim asked for and may not get.
	Dropped []Drop
	// NearMisses are the classes that meet all requirements of the selector but one,
	// the nearest first.
	NearMisses []NearMiss
	// FarMisses counts the classes that fail several requirements.
	FarMisses int
	// NotDefault counts the classes that are not marked default, for a claim that
	// gets the default class.
	NotDefault int

	// BindWhen, SelectorFrom and Partition are what the claim kind's expressions say of the
	// claim: also of one that is left alone, or has problems, because of that. They are nil
	// where there is no such expression, or the claim does not need it.
	BindWhen, SelectorFrom, Partition *Evaluation
	// Related objects in the order of the claim kind.
	Related []RelatedObject
}

// Candidate is a class that may be drawn.
type Candidate struct {
	Class *Class
	// Odds are zero if the draw depends on more than is known here.
	Odds Odds
	// Score by which the class is ranked, nil for a strategy without one.
	Score any
}

// Odds of a candidate are exactly Share in Total. An int64 holds the sum of 9 * 10^12
// of the greatest weights: there are never so many classes.
type Odds struct{ Share, Total int64 }

// Drop is why a claim may not get a class.
type Drop struct {
	Class *Class
	// Reason in a word, for programs, and as it reads after "is".
	Reason, Text string
	// Expression that says so, as far as it is not true, and what it saw; empty if none does.
	Expression string
	Saw        []expression.Saw
}

// NearMiss is a class that meets all requirements of a selector but one.
type NearMiss struct {
	Class *Class
	// Unmet is that requirement.
	Unmet labels.Requirement
	// Value of the class's label, if it has one.
	Value string
	Has   bool
	// Drop is why the claim could not get the class even then, nil if it could.
	Drop *Drop
}

// Explain decides without any effect, and gathers the reasons: it looks at every class
// that the claim is offered. It says nothing about other classes, which the claim's
// author may not be allowed to know. It has no reasons for a claim that is left alone or
// has problems.
func (d *Decider) Explain(ctx context.Context, v *View, in Intake) (e Explanation, err error) {
	if e.Decision, err = d.Decide(ctx, v, in, Explain); err == nil {
		e.addFacts(in)
	}
	if err != nil || !e.Decision.Drawn() {
		return e, err
	}
	claim, asked := e.Decision.Claim.Claim, map[*Class]bool{}
	if claim.Facts != nil { // The decision had its budget. Its reasons are evaluated several times.
		claim.Facts.budget.Left = math.MaxUint64
	}
	v.each(claim, func(c *Class) {
		asked[c] = true
		if drop := e.Decision.drops(c); drop != nil {
			e.Dropped = append(e.Dropped, *drop)
		} else {
			e.Candidates = append(e.Candidates, e.candidate(c))
		}
	})
	e.addUnequal(asked)
	e.addUnserving()
	if e.Decision.asks() == nil {
		e.addDefaults(asked)
	}
	slices.SortFunc(e.Dropped, func(a, b Drop) int { return compare(a.Class, b.Class) })
	v.Kind.Strategy.setOdds(e.Candidates, e.score())
	slices.SortFunc(e.Candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Odds.Share, a.Odds.Share), compare(a.Class, b.Class))
	})
	e.Reproducible = e.certain() || v.Kind.Strategy.Depends == "" && !v.Kind.drawsAfresh(claim)
	if e.Decision.asks() != nil {
		e.addMisses(asked)
	}
	return e, nil
}

// drops says why the claim may not get a class, nil if it may.
func (d *Decision) drops(c *Class) *Drop {
	if i, err := d.View.Kind.dropping(d.Claim.Claim, c); i >= 0 {
		f := &d.View.Kind.filters[i]
		drop := &Drop{Class: c, Reason: f.reason, Text: f.text}
		if err != nil {
			drop.Text += ": " + brief.Text(expression.Detail(err), v1alpha1.MaxMessageBytes)
		}
		drop.addExpression(d.View.Kind, d.Claim.Facts)
		return drop
	}
	for _, r := range d.Refused {
		if r.Class == c {
			return &Drop{Class: c, Reason: r.Gate.Reason, Text: r.Gate.Text}
		}
	}
	return nil
}

// certain says that every draw ends the same.
func (e *Explanation) certain() bool {
	return len(e.Candidates) <= 1 || e.Candidates[0].Odds.Total > 0 && e.Candidates[0].Odds.Share == e.Candidates[0].Odds.Total
}

// setOdds derives the odds from how the strategy places a candidate. One with the
// highest rank wins. There, the key is -ln(u) divided by the candidate's share, so
// u = 1/2 gives the share, a whole number.
func (s Strategy) setOdds(candidates []Candidate, score func(*Class) int64) {
	if s.Depends != "" {
		return
	}
	var total, highest int64
	ranks := make([]int64, len(candidates))
	for i := range candidates {
		rank, key := s.place(0.5, candidates[i].Class.Weight)
		if score != nil {
			rank = score(candidates[i].Class)
		}
		if i == 0 || rank > highest {
			total, highest = 0, rank
		}
		ranks[i] = rank
		if rank == highest {
			candidates[i].Odds.Share = int64(math.Round(math.Ln2 / key))
			total += candidates[i].Odds.Share
		}
	}
	for i := range candidates {
		if ranks[i] < highest {
			candidates[i].Odds.Share = 0
		}
		candidates[i].Odds.Total = total
	}
}

// addDefaults adds the defaults of all namespaces if the claim's namespace has its own,
// and counts the classes that are not default.
func (e *Explanation) addDefaults(asked map[*Class]bool) {
	claim, view := e.Decision.Claim.Claim, e.Decision.View
	for _, s := range view.Classes {
		s.eachOffered(&view.Kind.reach, claim.Namespace, func(c *Class) {
			switch {
			case !c.Default:
				e.NotDefault++
			case !asked[c]:
				e.Dropped = append(e.Dropped, e.otherSeat(c))
			}
		})
	}
}

// addMisses adds the classes that the selector does not match.
func (e *Explanation) addMisses(asked map[*Class]bool) {
	claim, view := e.Decision.Claim.Claim, e.Decision.View
	requirements, _ := e.Decision.asks().Requirements()
	distances := map[*Class]int{}
	for _, s := range view.Classes {
		s.eachOffered(&view.Kind.reach, claim.Namespace, func(c *Class) {
			if asked[c] {
				return
			}
			unmet := slices.DeleteFunc(slices.Clone(requirements), func(r labels.Requirement) bool { return r.Matches(c.Labels) })
			if len(unmet) != 1 {
				e.FarMisses++
				return
			}
			miss := NearMiss{Class: c, Unmet: unmet[0], Drop: e.Decision.drops(c)}
			miss.Value, miss.Has = c.Labels.Lookup(miss.Unmet.Key())
			distances[c] = miss.distance()
			e.NearMisses = append(e.NearMisses, miss)
		})
	}
	slices.SortFunc(e.NearMisses, func(a, b NearMiss) int {
		return cmp.Or(cmp.Compare(distances[a.Class], distances[b.Class]), compare(a.Class, b.Class))
	})
}

// distance is smallest for what looks like a typing error, and largest for a class that
// would be dropped anyway.
func (m *NearMiss) distance() int {
	const longest = 63 // characters of a label's value
	distance := longest + 1
	switch m.Unmet.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		if m.Has {
			for _, value := range m.Unmet.ValuesUnsorted() {
				distance = min(distance, edits(m.Value, value))
			}
		}
	default: // Other operators ask for no value that another could resemble.
	}
	if m.Drop != nil {
		distance += longest + 2
	}
	return distance
}

// edits is the Levenshtein distance: the number of characters to insert, delete or
// replace to turn one text into the other.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
