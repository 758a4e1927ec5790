package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// maxRows limits the rows of dropped classes and of near misses.
const maxRows = 5

func (r *Report) table() string {
	return tables(r.Items, func(i *Item, out *strings.Builder) { itemTable{i, out}.write() })
}

// tables of items, with an empty line between them.
func tables[T any](items []T, write func(*T, *strings.Builder)) string {
	var out strings.Builder
	for n := range items {
		if n > 0 {
			out.WriteString("\n")
		}
		write(&items[n], &out)
	}
	return out.String()
}

// itemTable is an Item as people read it.
type itemTable struct {
	Item *Item

	out *strings.Builder
}

func (t itemTable) write() {
	who := t.Item.Claim.String()
	if t.Item.several {
		who += ", by " + t.Item.Claim.ClaimKind
	}
	fmt.Fprintln(t.out, truncate.Printable(who+": "+t.Item.Headline()))
	hint := ""
	if t.Item.hintsUnbound && t.Item.Outcome == LeftAlone && !t.Item.again { // Else the message is another.
		hint = "; --unbound explains the claim as if it was not set"
	}
	t.line("Because", t.Item.Message+hint)
	t.line("Warning", t.Item.Warning)
	t.line("Do", t.Item.Do)
	for _, note := range t.Item.Notes {
		t.line("Note", note)
	}
	t.facts()
	for _, e := range t.Item.InvalidExpressions {
		caret := strings.ReplaceAll(strings.TrimRight(e.Caret, "\n"), "\t", " ") // In both lines, so the caret stays.
		fmt.Fprintf(t.out, "\n  %s of %s, line %d, column %d: %s\n    %s\n",
			e.Field, e.Registration, e.Line, e.Column, truncate.Printable(e.Message), strings.ReplaceAll(caret, "\n", "\n    "))
	}
	t.candidates()
	t.dropped()
	rows := [][]string{{"  NEAR MISS", "ASKED", "HAS"}}
	for _, m := range t.Item.Explanation.NearMisses {
		has := "no " + m.Unmet.Key
		if m.Value != nil {
			has = m.Unmet.Key + "=" + *m.Value
		}
		if m.Drop != nil {
			has += ", and is " + m.Drop.Text
		}
		rows = append(rows, []string{"  " + m.String(), m.Unmet.Text, has})
	}
	output.Section(t.out, rows, maxRows)
	for why, count := range map[string]int{
		"not marked default": t.Item.Explanation.NotDefault, "kept out by more than one requirement": t.Item.Explanation.FarMisses,
	} {
		if count > 0 { // A claim with a selector has the one, and a claim without one the other.
			fmt.Fprintf(t.out, "\n  Classes that are %s: %d\n", why, count)
		}
	}
}

// facts are what expressions say of the claim.
func (t itemTable) facts() {
	why := &t.Item.Explanation
	for _, o := range why.Related {
		text := o.Name + " is absent: the claim names none"
		switch {
		case o.Selected != nil:
			text = fmt.Sprintf("%s is a list of %d: %s %s", o.Name, *o.Selected, o.Resource, o.Object)
		case o.Found:
			text = fmt.Sprintf("%s is %s %s", o.Name, o.Resource, o.Object)
		case o.Object != "":
			text = fmt.Sprintf("%s is absent: there is no %s %s", o.Name, o.Resource, o.Object)
		}
		t.line("Related", text)
	}
	for n, e := range []*selector.Evaluation{why.BindWhen, why.SelectorFrom, why.Partition, why.Seed} {
		if e != nil && t.Item.Reason != claim.NotYet { // Then it is the message.
			t.line([]string{"Bind when", "Selector", "Partition", "Seed"}[n], EvaluationText(e))
		}
	}
	for i := range why.Usage {
		t.line("Usage", fmt.Sprintf("%s: %s", why.Usage[i].Name, EvaluationText(&why.Usage[i].Evaluation)))
	}
}

// EvaluationText is what people read of an evaluation.
func EvaluationText(e *selector.Evaluation) string {
	text := fmt.Sprintf("%s = %s", oneLine(e.Expression), asJSON(e.Value))
	if e.Error != "" {
		text = fmt.Sprintf("%s fails: %s", oneLine(e.Expression), e.Error)
	}
	if len(e.Saw) > 0 {
		text += "; saw " + sawText(e.Saw)
	}
	return text
}

func sawText(saw []expression.Saw) string {
	texts := make([]string, len(saw))
	for n, s := range saw {
		texts[n] = s.Field + " = " + s.Value
		if s.Value == "absent" {
			texts[n] = "no " + s.Field
		}
	}
	return strings.Join(texts, ", ")
}

// oneLine is the text of a registration as a part of a line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // Of a number that JSON does not have.
		return fmt.Sprint(value)
	}
	return string(text)
}

func (t itemTable) candidates() {
	header := []string{"  CANDIDATE", "WEIGHT", "ODDS"}
	scored := slices.ContainsFunc(t.Item.Explanation.Candidates, func(c selector.Candidate) bool { return c.Score != nil })
	if scored {
		header = slices.Insert(header, 1, "SCORE")
	}
	rows := [][]string{header}
	for _, c := range t.Item.Explanation.Candidates {
		mark := "  "
		if c.Chosen {
			mark = "* "
		}
		row := []string{mark + c.String(), weightText(c.Weight, c.WeightError), Percentage(c.Odds)}
		if scored {
			row = slices.Insert(row, 1, asJSON(c.Score))
		}
		rows = append(rows, row)
	}
	output.Section(t.out, rows, len(rows))
	t.oddsDependOn(t.Item.OddsDependOn)
}

func (t itemTable) oddsDependOn(what string) {
	if what != "" && len(t.Item.Explanation.Candidates) > 1 {
		fmt.Fprintf(t.out, "  The odds depend on %s.\n", what)
	}
}

func (t itemTable) dropped() {
	header := []string{"  DROPPED", "BECAUSE IT IS"}
	byExpression := slices.ContainsFunc(t.Item.Explanation.Dropped, func(d selector.Drop) bool { return d.Expression != "" })
	if byExpression {
		header = append(header, "EXPRESSION", "SAW")
	}
	rows := [][]string{header}
	for _, c := range t.Item.Explanation.Dropped {
		row := []string{"  " + c.String(), oneLine(c.Text)}
		if byExpression {
			row = append(row, truncate.String(oneLine(c.Expression), v1beta1.MaxShownBytes), sawText(c.Saw))
		}
		rows = append(rows, row)
	}
	output.Section(t.out, rows, maxRows)
}

func (t itemTable) line(what, text string) {
	if text != "" {
		fmt.Fprintf(t.out, "  %-8s %s\n", what+":", truncate.Printable(text))
	}
}

// drawn is the class of a claim that is not certain.
func (i *Item) drawn() string {
	if all := i.Explanation.Candidates; len(all) == 1 {
		return all[0].String() + ", or no class"
	}
	return "one of " + output.Count(len(i.Explanation.Candidates), "class")
}

// Headline says what happens to the claim.
func (i *Item) Headline() string {
	switch i.Outcome {
	case Bound, Unbound:
		class := i.drawn()
		if i.Class != nil {
			class = i.Class.String()
		}
		if i.Outcome == Unbound {
			return "stored without a class; created now, it would get " + class
		}
		return "bound to " + class
	case Unmatched:
		return "no class"
	case LeftAlone:
		if i.again || i.Claim.Source == world.OfTheCluster && i.Has != nil {
			return i.headlineOfClass()
		}
		return "left alone"
	case Malformed:
		if i.Reason != malformedClaim {
			return "mistaken"
		}
		return "malformed, refused"
	default:
		return "cannot be decided"
	}
}

func (c Claim) String() string {
	name := cmp.Or(c.Name, "(generated)")
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	return c.Kind + " " + name
}

func weightText(weight int64, malformed string) string {
	if malformed != "" {
		return fmt.Sprint(weight, " (malformed)")
	}
	return fmt.Sprint(weight)
}

// Percentage of odds, or a question mark where they are unknown. Odds that are neither never round to 0 % or 100 %.
func Percentage(o selector.Odds) string {
	if o.Total == 0 {
		return "?"
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", 100*float64(o.Share)/float64(o.Total)), ".0")
	switch {
	case o.Share > 0 && text == "0":
		text = "under 0.1"
	case o.Share < o.Total && text == "100":
		text = "over 99.9"
	}
	return text + "%"
}
