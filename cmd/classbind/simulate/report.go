package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector/truncate"
)

// Version is the version of reports. New fields keep it; any other change needs a new version.
const Version = "simulate.classbind.io/v1beta1"

const (
	// maxNames is how many claims of a move are named at most, for programs.
	maxNames = 1000
	// deviations on both sides of what is expected are in an interval. Of two million classes, one is outside.
	deviations = 5
	// maxRows and maxMoves are printed for people, and shownNames of each move.
	maxRows, maxMoves, shownNames = 40, 20, 3
	barWidth                      = 20
)

// Report is what "classbind simulate" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Notes are about the change.
	Notes []string `json:"notes,omitempty"`
	// Kinds of claims, sorted by name.
	Kinds []Kind `json:"kinds"`
}

// Kind is a ClaimKind.
type Kind struct {
	ClaimKind string           `json:"claimKind"`
	Strategy  v1beta1.Strategy `json:"strategy,omitempty"`
	// Claims that were decided on.
	Claims int `json:"claims"`
	// MadeUp reports whether the claims do not exist.
	MadeUp bool `json:"madeUp,omitempty"`
	// Moved claims get another class, or one for the first time. Lost claims no longer get one.
	Moved int `json:"moved"`
	Lost  int `json:"lost"`
	// Unpredictable claims are among these. Of them, it is not known which class each gets, and Rows have intervals.
	Unpredictable int `json:"unpredictable"`
	// Rows are the classes that claims have or get, and what becomes of the others. Those that change most come first.
	Rows []Row `json:"rows"`
	// Moves of claims, the largest first.
	Moves []Move `json:"moves"`
	// Notes say why it may come differently.
	Notes []string `json:"notes,omitempty"`

	warned bool // warned reports whether a note is about the change.
}

// Row counts the claims of a place.
type Row struct {
	world.Place `json:",inline"`
	// Has is how many claims have the class now.
	Has int `json:"has"`
	// Before and After are how many would get it if all were created now, without and with the change.
	Before Estimate `json:"before"`
	After  Estimate `json:"after"`
}

// Estimate of a number of claims. If all of them can be predicted, Low and High are the Sample.
type Estimate struct {
	Sample int `json:"sample"` // Sample is what one draw of every claim gave.
	Low    int `json:"low"`
	High   int `json:"high"`
}

// Move of claims from one place to another.
type Move struct {
	From  world.Place `json:"from"`
	To    world.Place `json:"to"`
	Count int         `json:"count"`
	// Why the first of them gets no class.
	Why string `json:"why,omitempty"`
	// Claims are the first thousand.
	Claims []string `json:"claims"`
}

// First of the claims, for people.
func (m *Move) First() []string { return m.Claims[:min(len(m.Claims), shownNames)] }

func (k *Kind) note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(k.Notes, note) {
		k.Notes = append(k.Notes, note)
	}
}

// estimate of what was counted. The interval is that of a Poisson number, by the square root that makes its variance constant
// (Anscombe 1948, "The transformation of Poisson, binomial and negative-binomial data"). A draw that others influence varies less.
func (n counted) estimate(unsure int) Estimate {
	e := Estimate{Sample: n.certain + n.drawn, Low: n.certain, High: n.certain}
	if unsure == 0 || n.drawn == 0 && n.certain > 0 {
		return e
	}
	const reach = deviations / 2. * math.Sqrt2 // What was drawn varies itself.
	root := math.Sqrt(float64(n.drawn) + 3./8)
	e.Low += int(math.Ceil(max(0, max(0, root-reach)*(root-reach)-3./8)))
	e.High += int(min(float64(unsure), math.Floor((root+reach)*(root+reach)-3./8)))
	return e
}

// End returns what became of all claims that were added.
func (c *Comparison) End() *Kind {
	k := c.result
	for place, n := range c.rows {
		k.Rows = append(k.Rows, Row{place, n.has, n.before.estimate(c.unsure[0]), n.after.estimate(c.unsure[1])})
	}
	slices.SortFunc(k.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(max(b.Delta(), -b.Delta()), max(a.Delta(), -a.Delta())), cmp.Compare(b.After.Sample, a.After.Sample),
			strings.Compare(a.Outcome, b.Outcome), strings.Compare(a.Class.ClassKind, b.Class.ClassKind),
			strings.Compare(a.String(), b.String()))
	})
	moves := slices.Collect(maps.Values(c.moves))
	slices.SortFunc(moves, func(a, b *Move) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.From.String(), b.From.String()), strings.Compare(a.To.String(), b.To.String()))
	})
	for _, m := range moves {
		k.Moves = append(k.Moves, *m)
	}
	if k.Unpredictable > 0 {
		depends := "random numbers"
		if of := c.either().View.Kind; of != nil && of.Strategy.Depends != "" {
			depends = of.Strategy.Depends
		} else if c.remembers {
			depends = "how much of each class is taken"
		}
		k.note("which class each of %s gets depends on %s, which is not known here: their numbers are expected to be "+
			"within the intervals, and CHANGE and SHARE are those of one draw", output.Count(k.Unpredictable, "claim"), depends)
	}
	if c.remembers {
		k.note("the claims are taken in the order of their names, by one replica and from empty classes; claims in flight do not count")
	}
	return k
}

// Delta is the change of the number of claims.
func (r *Row) Delta() int { return r.After.Sample - r.Before.Sample }

// Change is the Delta for people.
func (r *Row) Change() string {
	if r.Delta() == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", r.Delta())
}

// Share of all claims, in percent.
func (k *Kind) Share(e Estimate) float64 { return 100 * float64(e.Sample) / float64(max(k.Claims, 1)) }

// String is a number, or an interval.
func (e Estimate) String() string {
	if e.Low == e.High {
		return strconv.Itoa(e.Low)
	}
	return fmt.Sprintf("%d to %d", e.Low, e.High)
}

func (k *Kind) spread() bool {
	return slices.ContainsFunc(k.Rows, func(r Row) bool { return r.Delta() != 0 })
}

// Changes reports whether the change matters to the claims of the kind.
func (k *Kind) Changes() bool { return len(k.Moves) > 0 || k.spread() || k.warned }

// Summary of a kind in a sentence.
func (k *Kind) Summary() string {
	claims := output.Count(k.Claims, "claim") + ": "
	var changes []string
	if k.Moved > 0 {
		changes = append(changes, fmt.Sprintf("%d would get another class", k.Moved))
	}
	if k.Lost > 0 {
		changes = append(changes, fmt.Sprintf("%d would no longer get a class", k.Lost))
	}
	switch {
	case len(changes) > 0:
		return claims + strings.Join(changes, ", and ")
	case k.spread():
		return claims + "some would get another class"
	}
	return claims + "none would get another class"
}

// table for people. Without all, the kinds for which nothing changes are one line.
func (r *Report) table(all bool) string {
	var parts []string
	for _, note := range r.Notes {
		parts = append(parts, "Note: "+truncate.Printable(note)+"\n")
	}
	same, claims := 0, 0
	for i := range r.Kinds {
		k := &r.Kinds[i]
		if !all && !k.Changes() {
			same, claims = same+1, claims+k.Claims
			continue
		}
		var out strings.Builder
		k.write(&out)
		parts = append(parts, out.String())
	}
	if same > 0 {
		parts = append(parts, fmt.Sprintf("Nothing changes for %s, which %s %s; --all shows them\n", output.Count(same, "kind"),
			map[bool]string{true: "has", false: "have"}[same == 1], output.Count(claims, "claim")))
	}
	return strings.Join(parts, "\n")
}

func (k *Kind) write(out *strings.Builder) {
	fmt.Fprintf(out, "%s, %s\n", truncate.Printable(k.ClaimKind), k.Summary())
	for _, note := range k.Notes {
		fmt.Fprintf(out, "  Note: %s\n", truncate.Printable(note))
	}
	if len(k.Rows) > 0 {
		rows := [][]string{{"  CLASS", "NOW", "BEFORE", "AFTER", "CHANGE", "SHARE"}}
		for _, r := range k.Rows {
			share := k.Share(r.After)
			rows = append(rows, []string{
				"  " + r.String(), strconv.Itoa(r.Has), r.Before.String(), r.After.String(), r.Change(),
				fmt.Sprintf("%.1f%%", share), strings.Repeat("#", int(math.Round(share*barWidth/100))),
			})
		}
		if k.MadeUp { // They have no class now.
			for i := range rows {
				rows[i] = slices.Delete(rows[i], 1, 2)
			}
		}
		output.Section(out, rows, maxRows)
	}
	if len(k.Moves) == 0 {
		return
	}
	rows := [][]string{{"  CLAIMS", "FROM", "TO", "SUCH AS"}}
	for _, m := range k.Moves {
		rows = append(rows, []string{"  " + strconv.Itoa(m.Count), m.From.String(), m.To.String(), strings.Join(m.First(), ", ")})
	}
	output.Section(out, rows, maxMoves)
	for _, m := range k.Moves[:min(len(k.Moves), maxMoves)] {
		if m.Why != "" {
			fmt.Fprintf(out, "  %s, %s: %s\n", truncate.Printable(m.Claims[0]), m.To, truncate.Printable(m.Why))
		}
	}
}

// exit returns an error if claims lose their class, or if strict, if any claim gets another.
func (r *Report) exit(strict bool) error {
	lost, moved, spread := 0, 0, false
	for _, k := range r.Kinds {
		lost, moved, spread = lost+k.Lost, moved+k.Moved, spread || k.spread()
	}
	switch {
	case lost > 0:
		return exit.Finding(fmt.Errorf("%s would no longer get a class", output.Count(lost, "claim")))
	case strict && (moved > 0 || spread):
		return exit.Finding(errors.New("some claims would get another class"))
	}
	return nil
}
