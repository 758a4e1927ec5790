package selector

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// Ask is what a claim asks for beside its identity, as a short text that can be kept
// and compared: claims of one namespace that have the same Ask have the same candidates.
// It is empty for a claim that has no opinion, "=" and a selector, or "!" and a problem. What
// is given of a reference comes before the selector.
type Ask string

// Ask of the claim, unless it is left alone.
func (in Intake) Ask() Ask {
	switch {
	case len(in.Problems) > 0:
		return AskWith(problemText(in.Problems))
	case in.Selector != nil:
		return Ask(in.Given.text() + "=" + in.Selector.String())
	}
	return Ask(in.Given.text())
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

// problemText joins errors up to the length that is kept. ErrorList.ToAggregate takes
// quadratic time.
func problemText(errs field.ErrorList) string {
	text := ""
	for i, err := range errs {
		if len(text) >= v1alpha1.MaxMessageBytes {
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
func kept(text string) string { return strings.Clone(brief.Text(text, v1alpha1.MaxMessageBytes)) }
