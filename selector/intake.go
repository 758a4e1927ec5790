package selector

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// Reasons to leave a claim alone.
const (
	BeingDeleted = "BeingDeleted"
	Settled      = "Settled"
)

// Intake is a claim as it was read, once, for whoever decides on it or explains it.
type Intake struct {
	Claim
	// LeftAlone is the reason why the claim is not ours to bind; empty, it is.
	LeftAlone string
	// SettledBy is the field that is set, for the reason Settled.
	SettledBy string
	// Problems make the claim invalid. They are for its author: MaxErrors at most,
	// each of them short.
	Problems field.ErrorList
	// Parents is how many of the fields that lead to the class reference the claim has.
	Parents int
}

// Read a claim of this kind from an object that any decoder may have made. A claim
// that is left alone is read no further.
func (k *ClaimKind) Read(namespace, name string, object map[string]any) Intake {
	in := Intake{Claim: Claim{Namespace: namespace, Name: name}}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata["deletionTimestamp"] != nil {
		in.LeftAlone = BeingDeleted
		return in
	}
	for _, p := range k.settledBy {
		value, err := p.lookup(object)
		if value != nil {
			in.LeftAlone, in.SettledBy, in.Problems = Settled, p.String(), nil
			return in
		}
		if err != nil && len(in.Problems) == 0 {
			in.Problems = field.ErrorList{err}
		}
	}
	if len(in.Problems) > 0 {
		return in
	}
	in.GenerateName, _ = metadata["generateName"].(string)
	in.Selector, in.Problems = k.classSelector(object)
	in.Parents = k.parents(object)
	return in
}

// Ask is what a claim asks for beside its identity, as a short text that can be kept
// and compared: claims of one namespace that have the same Ask have the same candidates.
// It is empty for a claim that has no opinion, "=" and a selector, or "!" and a problem.
type Ask string

// Ask of the claim, unless it is left alone.
func (in Intake) Ask() Ask {
	switch {
	case len(in.Problems) > 0:
		return AskWith(problemText(in.Problems))
	case in.Selector != nil:
		return Ask("=" + in.Selector.String())
	}
	return ""
}

// AskWith a problem, for which none of the claims can be bound.
func AskWith(problem string) Ask { return Ask("!" + kept(problem)) }

// Problem for which none of the claims can be bound; empty, there is none.
func (a Ask) Problem() string {
	problem, ok := strings.CutPrefix(string(a), "!")
	if !ok {
		return ""
	}
	return problem
}

// Claim of that name with this Ask.
func (a Ask) Claim(namespace, name string) (Claim, error) {
	c := Claim{Namespace: namespace, Name: name}
	text, ok := strings.CutPrefix(string(a), "=")
	if !ok {
		return c, nil
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

// Where the annotation is, made once: every claim is asked for it.
var (
	selectorAnnotation      = path{"metadata", "annotations", v1alpha1.ClassSelectorAnnotation}
	selectorAnnotationField = field.NewPath("metadata", "annotations").Key(v1alpha1.ClassSelectorAnnotation)
)

func (k *ClaimKind) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := k.selector.lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := selectorAnnotation.lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		detail := "give either the annotation or the field " + k.selector.String() + ", not both"
		return nil, field.ErrorList{field.Forbidden(selectorAnnotationField, detail)}
	case value != nil:
		return parseSelector(value, k.selectorField)
	case text != nil:
		return parseSelectorText(text, selectorAnnotationField)
	}
	return nil, nil
}
