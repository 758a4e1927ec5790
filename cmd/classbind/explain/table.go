package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
	"github.com/classbind/classbind/selector/expression"
)

// maxRows limits the rows of dropped classes and of near misses.
const maxRows = 5

// absent is the value of a field that an expression saw and that is not there.
const absent = "absent"

// table returns the report for people.
func (r *Report) table() ([]byte, error) {
	var out bytes.Buffer
	for n := range r.Items {
		if n > 0 {
			out.WriteString("\n")
		}
		if err := r.Items[n].table(&out); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func (i *Item) table(out *bytes.Buffer) error {
	by := ""
	if i.several {
		by = ", by " + i.Claim.ClaimKind
	}
	fmt.Fprintln(out, brief.Printable(fmt.Sprintf("%s%s: %s", i.Claim, by, i.headline())))
	i.line(out, "Because", i.Message)
	i.line(out, "Warning", i.Warning)
	for _, note := range i.Notes {
		i.line(out, "Note", note)
	}
	i.facts(out)
	for _, e := range i.InvalidExpressions {
		fmt.Fprintf(out, "\n  %s of %s, line %d, column %d: %s\n%s\n",
			e.Field, e.Registration, e.Line, e.Column, brief.Printable(e.Message), indented(e.Caret))
	}
	if err := i.candidates(out); err != nil {
		return err
	}
	if err := i.dropped(out); err != nil {
		return err
	}

	name := i.namer()
	var rows [][]string
	for _, m := range i.NearMisses {
		has := "no " + m.Unmet.Key
		if m.Value != nil {
			has = m.Unmet.Key + "=" + *m.Value
		}
		if m.Drop != nil {
			has += ", and is " + m.Drop.Text
		}
		rows = append(rows, []string{"  " + name(m.ClassName), m.Unmet.Text, has})
	}
	if err := section(out, []string{"  NEAR MISS", "ASKED", "HAS"}, rows, maxRows); err != nil {
		return err
	}
	i.others(out)
	return nil
}

// facts are what expressions say of the claim.
func (i *Item) facts(out *bytes.Buffer) {
	for _, r := range i.Related {
		text := r.Name + " is absent: the claim names none"
		switch {
		case r.Found:
			text = fmt.Sprintf("%s is %s %s", r.Name, r.Resource, r.Object)
		case r.Object != "":
			text = fmt.Sprintf("%s is absent: there is no %s %s", r.Name, r.Resource, r.Object)
		}
		i.line(out, "Related", text)
	}
	for _, e := range []struct {
		what       string
		evaluation *selector.Evaluation
	}{{"Bind when", i.BindWhen}, {"Selector", i.SelectorFrom}, {"Partition", i.Partition}} {
		if e.evaluation != nil && i.Reason != selector.NotYet { // Then it is the message.
			i.line(out, e.what, evaluationText(e.evaluation))
		}
	}
}

// evaluationText is what people read of an evaluation.
func evaluationText(e *selector.Evaluation) string {
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
		if s.Value == absent {
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

func indented(text string) string {
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\t", " ") // In both lines, so the caret stays.
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

func (i *Item) candidates(out *bytes.Buffer) error {
	name := i.namer()
	header := []string{"  CANDIDATE", "WEIGHT", "ODDS"}
	scored := slices.ContainsFunc(i.Candidates, func(c selector.Candidate) bool { return c.Score != nil })
	if scored {
		header = slices.Insert(header, 1, "SCORE")
	}
	var rows [][]string
	for _, c := range i.Candidates {
		mark, weight := " ", fmt.Sprint(c.Weight)
		if c.Chosen {
			mark = "*"
		}
		if c.WeightError != "" {
			weight += " (malformed)"
		}
		row := []string{mark + " " + name(c.ClassName), weight, percentage(c.Odds)}
		if scored {
			row = slices.Insert(row, 1, asJSON(c.Score))
		}
		rows = append(rows, row)
	}
	err := section(out, header, rows, len(rows))
	if err == nil && i.OddsDependOn != "" && len(i.Candidates) > 1 {
		fmt.Fprintf(out, "  The odds depend on %s.\n", i.OddsDependOn)
	}
	return err
}

func (i *Item) dropped(out *bytes.Buffer) error {
	name := i.namer()
	header := []string{"  DROPPED", "BECAUSE IT IS"}
	byExpression := slices.ContainsFunc(i.Dropped, func(d selector.Drop) bool { return d.Expression != "" })
	if byExpression {
		header = append(header, "EXPRESSION", "SAW")
	}
	var rows [][]string
	for _, c := range i.Dropped {
		row := []string{"  " + name(c.ClassName), oneLine(c.Text)}
		if byExpression {
			row = append(row, brief.Text(oneLine(c.Expression), v1alpha1.MaxShownBytes), sawText(c.Saw))
		}
		rows = append(rows, row)
	}
	return section(out, header, rows, maxRows)
}

// others counts the classes that have no row.
func (i *Item) others(out *bytes.Buffer) {
	more := len(i.Candidates)+len(i.Dropped)+len(i.NearMisses) > 0
	if i.FarMisses > 0 {
		fmt.Fprintf(out, "\n  %s kept out by more than one requirement.\n", classesAre(i.FarMisses, more))
	}
	if i.NotDefault > 0 {
		fmt.Fprintf(out, "\n  %s not marked default.\n", classesAre(i.NotDefault, more))
	}
}

func (i *Item) line(out *bytes.Buffer, what, text string) {
	if text != "" {
		fmt.Fprintf(out, "  %-8s %s\n", what+":", brief.Printable(text))
	}
}

func (i *Item) headline() string {
	switch i.Outcome {
	case Bound:
		if i.Class == nil {
			return fmt.Sprintf("bound to one of %d classes", len(i.Candidates))
		}
		return "bound to " + i.namer()(*i.Class)
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

// namer returns a function that names a class by its kind, or by its resource if two
// kinds have the same name.
func (i *Item) namer() func(selector.ClassName) string {
	resources := map[string]string{}
	ambiguous := map[string]bool{}
	note := func(c selector.ClassName) {
		if before, ok := resources[c.Kind]; ok && before != c.ClassKind {
			ambiguous[c.Kind] = true
		}
		resources[c.Kind] = c.ClassKind
	}
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
		if ambiguous[kind] {
			kind = c.ClassKind
		}
		if c.Namespace != "" {
			kind += "/" + c.Namespace
		}
		return kind + "/" + c.Name
	}
}

func (c Claim) String() string {
	name := c.Name
	if name == "" {
		name = "(generated)"
	}
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	return c.Kind + " " + name
}

// percentage of odds, or a question mark where they are unknown. It never rounds
// to 0 % or to 100 %.
func percentage(o selector.Odds) string {
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

// section prints at most limit rows, and how many more there are. Without rows, it
// prints nothing.
func section(out *bytes.Buffer, header []string, rows [][]string, limit int) error {
	if len(rows) == 0 {
		return nil
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows[:min(limit, len(rows))]...) {
		for i := range row {
			row[i] = brief.Printable(row[i])
		}
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines("\n" + text.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n")) // The last cells may be empty.
	}
	if more := len(rows) - limit; more > 0 {
		fmt.Fprintf(out, "  and %d more: see -o json\n", more)
	}
	return nil
}

// classesAre returns the start of a sentence, such as "4 more classes are".
func classesAre(n int, more bool) string {
	words := []string{fmt.Sprint(n)}
	if more {
		words = append(words, "more")
	}
	if n == 1 {
		return strings.Join(append(words, "class is"), " ")
	}
	return strings.Join(append(words, "classes are"), " ")
}
