package claim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// Ask is what a claim asks for beside its identity, as a short text that can be kept and compared: claims of one namespace that have the
// same Ask have the same candidates. It is empty for a claim that has no opinion, "=" and a selector, or "!" and a problem. What is given
// of a reference comes before the selector, and so do, as JSON, the fields that expressions look at.
type Ask string

// Ask of a claim of this kind, unless it is left alone.
func (r *Reader) Ask(in Intake) Ask {
	if len(in.Problems) > 0 {
		return AskWith(in.Problems[0].Error())
	}
	text := ""
	if g := in.Given; g != nil {
		text = fmt.Sprintf(givenFormat, g.HasGroup, g.Group, g.Kind, g.Namespace)
	}
	if in.Object != nil {
		json, err := factsAt(r.LooksAt.Paths(), in.Object)
		if err != nil {
			return AskWith(err.Error())
		}
		text += json
	}
	if in.Selector != nil {
		text += "=" + in.Selector.String()
	}
	return Ask(text)
}

// factsAt are fields of a claim, as JSON. Equal fields are equal texts.
func factsAt(paths []fields.Path, object map[string]any) (string, error) {
	facts := map[string]any{}
	for _, p := range paths {
		fields.CopyField(facts, object, p)
	}
	json, err := json.Marshal(facts, exactNumbers, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("cannot keep the fields that expressions look at: %w", err)
	}
	return string(json), nil
}

// AskOfUsage has the fields of a claim by which its usage is evaluated again, empty if these are too long to be kept.
func AskOfUsage(paths []fields.Path, object map[string]any) Ask {
	if text, err := factsAt(paths, object); err == nil && len(text) <= v1beta1.MaxRecountedBytes {
		return Ask(text)
	}
	return ""
}

// givenFormat is how an Ask has what is given of a reference.
const givenFormat = "@%t%q%q%q"

// exactNumbers keeps a whole float64 apart from an int64, as CEL does.
var exactNumbers = json.WithMarshalers(json.MarshalToFunc(func(to *jsontext.Encoder, f float64) error {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return to.WriteValue(jsontext.Value(text))
}))

// AskWith a problem, for which none of the claims can be bound. It is a short copy, which does not keep the claim in memory.
func AskWith(problem string) Ask {
	return Ask("!" + strings.Clone(truncate.String(problem, v1beta1.MaxMessageBytes)))
}

// Problem for which none of the claims can be bound; empty, there is none.
func (a Ask) Problem() string {
	if problem, ok := strings.CutPrefix(string(a), "!"); ok {
		return problem
	}
	return ""
}

// Claim of that name with this Ask. It fails only for a text that Reader.Ask did not write.
func (a Ask) Claim(namespace, name string) (c Claim, err error) {
	c.Namespace, c.Name = namespace, name
	rest := string(a)
	if strings.HasPrefix(rest, "@") {
		g, from := &Given{}, strings.NewReader(rest)
		if _, err = fmt.Fscanf(from, givenFormat, &g.HasGroup, &g.Group, &g.Kind, &g.Namespace); err != nil {
			return c, fmt.Errorf("cannot parse %.100q: %w", rest, err)
		}
		c.Given, rest = g, rest[len(rest)-from.Len():]
	}
	if strings.HasPrefix(rest, "{") {
		raw, err := jsontext.NewDecoder(strings.NewReader(rest)).ReadValue()
		if err != nil {
			return c, fmt.Errorf("cannot parse the fields of a claim: %w", err)
		}
		c.Object, _ = fields.ReadWhole(raw, len(raw)).(map[string]any)
		rest = rest[len(raw):]
	}
	if text, ok := strings.CutPrefix(rest, "="); ok {
		if c.Selector, err = labels.Parse(text); err != nil {
			return c, fmt.Errorf("cannot parse the selector %.100q: %w", text, err)
		}
	}
	return c, nil
}
