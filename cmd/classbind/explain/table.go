package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// maxRows limits the rows of dropped classes and of near misses.
const maxRows = 5

// table returns the report for people.
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
	*Item

	out *strings.Builder
}

func (t itemTable) write() {
	who := t.Claim.String()
	if t.several {
		who += ", by " + t.Claim.ClaimKind
	}
	fmt.Fprintln(t.out, truncate.Printable(who+": "+t.Headline()))
	t.line("Because", t.Message)
	t.line("Warning", t.Warning)
	t.line("Do", t.Do)
	for _, note := range t.Notes {
		t.line("Note", note)
	}
	t.facts()
	for _, e := range t.InvalidExpressions {
		caret := strings.ReplaceAll(strings.TrimRight(e.Caret, "\n"), "\t", " ") // In both lines, so the caret stays.
		fmt.Fprintf(t.out, "\n  %s of %s, line %d, column %d: %s\n    %s\n",
			e.Field, e.Registration, e.Line, e.Column, truncate.Printable(e.Message), strings.ReplaceAll(caret, "\n", "\n    "))
	}
	name := t.namer()
	t.candidates(name)
	t.dropped(name)
	var rows [][]string
	for _, m := range t.NearMisses {
		has := "no " + m.Unmet.Key
		if m.Value != nil {
			has = m.Unmet.Key + "=" + *m.Value
		}
		if m.Drop != nil {
			has += ", and is " + m.Drop.Text
		}
		rows = append(rows, []string{"  " + name(m.ClassName), m.Unmet.Text, has})
	}
	t.section([]string{"  NEAR MISS", "ASKED", "HAS"}, rows, maxRows)
	t.others()
}

// facts are what expressions say of the claim.
func (t itemTable) facts() {
	for _, o := range t.Related {
		text := o.Name + " is absent: the claim names none"
		switch {
		case o.Found:
			text = fmt.Sprintf("%s is %s %s", o.Name, o.Resource, o.Object)
		case o.Object != "":
			text = fmt.Sprintf("%s is absent: there is no %s %s", o.Name, o.Resource, o.Object)
		}
		t.line("Related", text)
	}
	for n, e := range []*selector.Evaluation{t.BindWhen, t.SelectorFrom, t.Partition, t.Usage} {
		if e != nil && t.Reason != claim.NotYet { // Then it is the message.
			t.line([]string{"Bind when", "Selector", "Partition", "Usage"}[n], EvaluationText(e))
		}
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

// asJSON is a value as an expression has it.
func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // Of a number that JSON does not have.
		return fmt.Sprint(value)
	}
	return string(text)
}

func (t itemTable) candidates(name func(selector.ClassName) string) {
	header := []string{"  CANDIDATE", "WEIGHT", "ODDS"}
	scored := slices.ContainsFunc(t.Candidates, func(c selector.Candidate) bool { return c.Score != nil })
	if scored {
		header = slices.Insert(header, 1, "SCORE")
	}
	var rows [][]string
	for _, c := range t.Candidates {
		mark := "  "
		if c.Chosen {
			mark = "* "
		}
		row := []string{mark + name(c.ClassName), weightText(c.Weight, c.WeightError), Percentage(c.Odds)}
		if scored {
			row = slices.Insert(row, 1, asJSON(c.Score))
		}
		rows = append(rows, row)
	}
	t.section(header, rows, len(rows))
	t.oddsDependOn(t.OddsDependOn)
}

func (t itemTable) oddsDependOn(what string) {
	if what != "" && len(t.Candidates) > 1 {
		fmt.Fprintf(t.out, "  The odds depend on %s.\n", what)
	}
}

func (t itemTable) dropped(name func(selector.ClassName) string) {
	header := []string{"  DROPPED", "BECAUSE IT IS"}
	byExpression := slices.ContainsFunc(t.Dropped, func(d selector.Drop) bool { return d.Expression != "" })
	if byExpression {
		header = append(header, "EXPRESSION", "SAW")
	}
	var rows [][]string
	for _, c := range t.Dropped {
		row := []string{"  " + name(c.ClassName), oneLine(c.Text)}
		if byExpression {
			row = append(row, truncate.String(oneLine(c.Expression), v1beta1.MaxShownBytes), sawText(c.Saw))
		}
		rows = append(rows, row)
	}
	t.section(header, rows, maxRows)
}

// others counts the classes that have no row.
func (t itemTable) others() {
	more := ""
	if len(t.Candidates)+len(t.Dropped)+len(t.NearMisses) > 0 {
		more = " more"
	}
	for n, why := range []string{"kept out by more than one requirement", "not marked default"} {
		count, are := []int{t.FarMisses, t.NotDefault}[n], "classes are"
		if count == 1 {
			are = "class is"
		}
		if count > 0 {
			fmt.Fprintf(t.out, "\n  %d%s %s %s.\n", count, more, are, why)
		}
	}
}

func (t itemTable) line(what, text string) {
	if text != "" {
		fmt.Fprintf(t.out, "  %-8s %s\n", what+":", truncate.Printable(text))
	}
}

// Headline says what happens to the claim.
func (i *Item) Headline() string {
	switch i.Outcome {
	case Bound, Unbound:
		class := fmt.Sprintf("one of %d classes", len(i.Candidates))
		if i.Class != nil {
			class = i.namer()(*i.Class)
		}
		if i.Outcome == Unbound {
			return "stored without a class; created now, it would get " + class
		}
		return "bound to " + class
	case Unmatched:
		return "no class"
	case LeftAlone:
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

// namer returns a function that names a class by its kind, or by its resource if two kinds have the same name.
func (i *Item) namer() func(selector.ClassName) string {
	resources := map[string]sets.Set[string]{} // by kind
	note := func(c selector.ClassName) { resources[c.Kind] = resources[c.Kind].Union(sets.New(c.ClassKind)) }
	for _, c := range i.Candidates {
		note(c.ClassName)
	}
	for _, c := range i.Dropped {
		note(c.ClassName)
	}
	for _, c := range i.NearMisses {
		note(c.ClassName)
	}
	return func(c selector.ClassName) string {
		kind := c.Kind
		if len(resources[kind]) > 1 {
			kind = c.ClassKind
		}
		if c.Namespace != "" {
			kind += "/" + c.Namespace
		}
		return kind + "/" + c.Name
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

// Percentage of odds, or a question mark where they are unknown. It never rounds to 0 % or to 100 %.
func Percentage(o selector.Odds) string {
	if o.Total == 0 {
		return "?"
	}
	percent := new(big.Rat).Mul(big.NewRat(o.Share, o.Total), big.NewRat(100, 1))
	text := strings.TrimSuffix(percent.FloatString(1), ".0")
	switch {
	case o.Share > 0 && text == "0":
		text = "under 0.1"
	case o.Share < o.Total && text == "100":
		text = "over 99.9"
	}
	return text + "%"
}

// section prints at most limit rows, and how many more there are. Without rows, it prints nothing.
func (t itemTable) section(header []string, rows [][]string, limit int) {
	if len(rows) == 0 {
		return
	}
	t.out.WriteString("\n" + output.Columns(slices.Insert(rows[:min(limit, len(rows))], 0, header)...))
	if more := len(rows) - limit; more > 0 {
		fmt.Fprintf(t.out, "  and %d more: see -o json\n", more)
	}
}
