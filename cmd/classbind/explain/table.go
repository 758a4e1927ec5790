package explain

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"text/tabwriter"
)

// maxRows limits the rows of dropped classes and of near misses.
const maxRows = 5

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
	fmt.Fprintf(out, "%s%s: %s\n", i.Claim, by, i.headline())
	i.line(out, "Because", i.Message)
	i.line(out, "Warning", i.Warning)
	for _, note := range i.Notes {
		i.line(out, "Note", note)
	}
	name := i.namer()

	var rows [][]string
	for _, c := range i.Candidates {
		mark, weight := " ", fmt.Sprint(c.Weight)
		if c.Chosen {
			mark = "*"
		}
		if c.WeightError != "" {
			weight += " (malformed)"
		}
		rows = append(rows, []string{mark + " " + name(c.Class), weight, c.Odds.String()})
	}
	if err := section(out, []string{"  CANDIDATE", "WEIGHT", "ODDS"}, rows, len(rows)); err != nil {
		return err
	}
	if i.OddsDependOn != "" && len(i.Candidates) > 1 {
		fmt.Fprintf(out, "  The odds depend on %s.\n", i.OddsDependOn)
	}

	rows = nil
	for _, c := range i.Dropped {
		rows = append(rows, []string{"  " + name(c.Class), c.Message})
	}
	if err := section(out, []string{"  DROPPED", "BECAUSE IT IS"}, rows, maxRows); err != nil {
		return err
	}

	rows = nil
	for _, m := range i.NearMisses {
		has := "no " + m.Unmet.Key
		if m.Value != nil {
			has = m.Unmet.Key + "=" + *m.Value
		}
		if m.Dropped != nil {
			has += ", and is " + m.Dropped.Message
		}
		rows = append(rows, []string{"  " + name(m.Class), m.Unmet.Text, has})
	}
	if err := section(out, []string{"  NEAR MISS", "ASKED", "HAS"}, rows, maxRows); err != nil {
		return err
	}
	i.others(out)
	return nil
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
		fmt.Fprintf(out, "  %-9s%s\n", what+":", text)
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
func (i *Item) namer() func(Class) string {
	resources := map[string]string{}
	ambiguous := map[string]bool{}
	note := func(c Class) {
		if before, ok := resources[c.Kind]; ok && before != c.ClassKind {
			ambiguous[c.Kind] = true
		}
		resources[c.Kind] = c.ClassKind
	}
	for _, c := range i.Candidates {
		note(c.Class)
	}
	for _, c := range i.Dropped {
		note(c.Class)
	}
	for _, c := range i.NearMisses {
		note(c.Class)
	}
	return func(c Class) string {
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

// String returns a percentage, or a question mark for unknown odds. It never rounds
// to 0 % or to 100 %.
func (o *Odds) String() string {
	if o == nil {
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
	out.WriteString("\n")
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows[:min(limit, len(rows))]...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
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
