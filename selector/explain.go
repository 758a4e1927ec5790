package selector

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Explanation is a decision with all that led to it.
type Explanation struct {
	Decision Decision
	// Reproducible says that this claim gets this class of these classes whenever
	// it is asked for. Otherwise the class is that of one draw, and the next may
	// be another.
	Reproducible bool
	// Candidates from which the class was drawn, the likeliest first.
	Candidates []Candidate
	// Dropped are the classes that the claim asked for and may not get.
	Dropped []Drop
	// NearMisses are the classes that one requirement of the selector keeps out,
	// the nearest first.
	NearMisses []NearMiss
	// FarMisses counts those that more than one requirement keeps out.
	FarMisses int
	// NotDefault counts the classes that are not marked default, for a claim that
	// has no selector.
	NotDefault int
}

// Candidate is a class that may be drawn.
type Candidate struct {
	Class *Class
	// Odds are zero where the draw depends on more than is known here.
	Odds Odds
}

// Odds of a candidate are exactly Share in Total. An int64 holds the sum of
// 9 * 10^12 of the greatest weights, more classes than there can be.
type Odds struct{ Share, Total int64 }

// Drop is why a claim may not get a class.
type Drop struct {
	Class *Class
	// Reason in a word, for programs, and as it reads after "is".
	Reason, Text string
}

// NearMiss is a class that meets all of a selector but one requirement.
type NearMiss struct {
	Class *Class
	// Unmet is that requirement.
	Unmet labels.Requirement
	// Value of its label that the class has, where it has one.
	Value string
	Has   bool
	// Drop is why the claim would not get the class all the same; nil, it could.
	Drop *Drop
}

// Explain decides as Choose does, with the work that the reasons take: it looks
// at every class that the claim is offered. Of others it tells nothing, as the
// claim's author may not be allowed to know of them.
func (v *View) Explain(claim Claim, fresh uint64) Explanation {
	e := Explanation{Decision: v.Choose(claim, fresh)}
	asked := map[*Class]bool{}
	v.each(claim, func(c *Class) {
		asked[c] = true
		if drop := v.drop(claim, c); drop != nil {
			e.Dropped = append(e.Dropped, *drop)
		} else {
			e.Candidates = append(e.Candidates, Candidate{Class: c})
		}
	})
	if claim.Selector == nil {
		e.addDefaults(asked)
	}
	slices.SortFunc(e.Dropped, func(a, b Drop) int { return compare(a.Class, b.Class) })
	v.Kind.Strategy.setOdds(e.Candidates)
	slices.SortFunc(e.Candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Odds.Share, a.Odds.Share), compare(a.Class, b.Class))
	})
	e.Reproducible = e.certain() || v.Kind.Strategy.Depends == "" && !v.Kind.drawsAfresh(claim)
	if claim.Selector != nil {
		e.addMisses(asked)
	}
	return e
}

func (v *View) drop(claim Claim, c *Class) *Drop {
	if i := v.dropping(claim, c); i >= 0 {
		return &Drop{Class: c, Reason: filters[i].reason, Text: filters[i].text}
	}
	return nil
}

// certain says that no draw can end otherwise.
func (e *Explanation) certain() bool {
	return len(e.Candidates) <= 1 || e.Candidates[0].Odds.Total > 0 && e.Candidates[0].Odds.Share == e.Candidates[0].Odds.Total
}

// setOdds reads them from how the draw places a candidate. One of the highest
// rank wins; there the key is -ln(u) over the candidate's share, so that at
// u = 1/2 it tells the share, which is a whole number.
func (s Strategy) setOdds(candidates []Candidate) {
	if s.Depends != "" {
		return
	}
	var total, highest int64
	ranks := make([]int64, len(candidates))
	for i := range candidates {
		rank, key := s.place(0.5, candidates[i].Class.Weight)
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

// addDefaults that were not asked for, because the claim's namespace has its own,
// and count what is no default.
func (e *Explanation) addDefaults(asked map[*Class]bool) {
	claim, view := e.Decision.Claim, e.Decision.View
	for _, s := range view.Classes {
		s.eachOffered(&view.Kind.reach, claim.Namespace, func(c *Class) {
			switch {
			case !c.Default:
				e.NotDefault++
			case !asked[c]:
				e.Dropped = append(e.Dropped, Drop{
					Class: c, Reason: "NotOfNamespace", Text: "the default of namespaces that have none of their own",
				})
			}
		})
	}
}

// addMisses of the classes that were not asked for.
func (e *Explanation) addMisses(asked map[*Class]bool) {
	claim, view := e.Decision.Claim, e.Decision.View
	requirements, _ := claim.Selector.Requirements()
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
			miss := NearMiss{Class: c, Unmet: unmet[0], Drop: view.drop(claim, c)}
			miss.Value, miss.Has = c.Labels.Lookup(miss.Unmet.Key())
			distances[c] = miss.distance()
			e.NearMisses = append(e.NearMisses, miss)
		})
	}
	slices.SortFunc(e.NearMisses, func(a, b NearMiss) int {
		return cmp.Or(cmp.Compare(distances[a.Class], distances[b.Class]), compare(a.Class, b.Class))
	})
}

// distance puts first what looks like a slip of the pen, and last what would be
// dropped all the same.
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

// edits is Levenshtein's distance: how many characters have to be inserted,
// deleted or replaced to make one text of the other.
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
