package claim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		return AskWith(problemText(in.Problems))
	}
	text := in.Given.text()
	if in.Object != nil {
		facts, err := r.factsText(in.Object)
		if err != nil {
			return AskWith(err.Error())
		}
		text += facts
	}
	if in.Selector != nil {
		text += "=" + in.Selector.String()
	}
	return Ask(text)
}

// factsText is the JSON of the fields that expressions look at: equal fields are equal texts.
func (r *Reader) factsText(object map[string]any) (string, error) {
	facts := map[string]any{}
	for _, p := range r.LooksAt.Paths() {
		fields.CopyField(facts, object, p)
	}
	text, err := json.Marshal(facts, exactNumbers, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("cannot keep the fields that expressions look at: %w", err)
	}
	return string(text), nil
}

// exactNumbers keeps a whole float64 apart from an int64, as CEL does.
var exactNumbers = json.WithMarshalers(json.MarshalToFunc(func(to *jsontext.Encoder, f float64) error {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return to.WriteValue(jsontext.Value(text))
}))

// parseFacts returns the fields with which the rest of an Ask begins, nil if there are none, and what follows.
func parseFacts(text string) (object map[string]any, rest string, err error) {
	if !strings.HasPrefix(text, "{") {
		return nil, text, nil
	}
	raw, err := jsontext.NewDecoder(strings.NewReader(text)).ReadValue()
	if err != nil { // factsText wrote it.
		return nil, "", fmt.Errorf("cannot parse the fields of a claim: %w", err)
	}
	object, _ = fields.ReadWhole(raw, len(raw)).(map[string]any)
	return object, text[len(raw):], nil
}

// AskWith a problem, for which none of the claims can be bound.
func AskWith(problem string) Ask { return Ask("!" + kept(problem)) }

// Problem for which none of the claims can be bound; empty, there is none.
func (a Ask) Problem() string {
	if problem, ok := strings.CutPrefix(string(a), "!"); ok {
		return problem
	}
	return ""
}

// Claim of that name with this Ask.
func (a Ask) Claim(namespace, name string) (Claim, error) {
	given, rest, err := parseGiven(string(a))
	c := Claim{Namespace: namespace, Name: name, Given: given}
	if err == nil {
		c.Object, rest, err = parseFacts(rest)
	}
	text, ok := strings.CutPrefix(rest, "=")
	if !ok || err != nil {
		return c, err
	}
	parsed, err := labels.Parse(text)
	if err != nil { // Selector.String wrote it.
		return c, fmt.Errorf("cannot parse the selector %.100q: %w", text, err)
	}
	c.Selector = parsed
	return c, nil
}

// problemText joins errors up to the length that is kept. ErrorList.ToAggregate takes quadratic time.
func problemText(errs field.ErrorList) string {
	text := ""
	for i, err := range errs {
		if len(text) >= v1beta1.MaxMessageBytes {
			break
		}
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return text
}

// kept is a short copy of a text. It does not keep the claim in memory that the text is part of.
func kept(text string) string { return strings.Clone(truncate.String(text, v1beta1.MaxMessageBytes)) }
