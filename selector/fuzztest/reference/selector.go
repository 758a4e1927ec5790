// Package reference reads and matches class selectors slowly and obviously, with
// Kubernetes' own code and none of the product's: fuzz tests compare the two.
package reference

import (
	"encoding/json"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	kjson "sigs.k8s.io/json"

	"github.com/classbind/classbind/api/v1beta1"
)

// ErrMalformed means that a claim is refused because of its selector.
var ErrMalformed = errors.New("the selector is malformed")

// Selector of a claim.
type Selector struct {
	// Selector is nil if the claim has none.
	labels.Selector

	// MayBeRefused reports whether it is close to a limit, and that the answer depends on how
	// it is written: with spaces or without, with a value twice or once.
	MayBeRefused bool
}

// Of returns the selector of a claim, from the value of its selector field, decoded from JSON, and its annotations.
func Of(value any, annotations map[string]string) (Selector, error) {
	text, annotated := annotations[v1beta1.ClassSelectorAnnotation]
	switch {
	case value != nil && annotated:
		return Selector{}, ErrMalformed
	case annotated:
		return ofText(text)
	case value != nil:
		return ofField(value)
	}
	return Selector{}, nil
}

func ofText(text string) (Selector, error) {
	if strings.TrimSpace(text) == "" || strings.Contains(text, "\x00") { // NUL would be the end of it.
		return Selector{}, ErrMalformed
	}
	if tooLong(text) { // Reading it takes too long.
		return Selector{}, ErrMalformed
	}
	s, err := labels.Parse(text)
	if err != nil {
		return Selector{}, ErrMalformed
	}
	return limited(s, text)
}

func ofField(value any) (Selector, error) {
	text, err := json.Marshal(value)
	if err != nil || tooLong(string(text)) || text[0] != '{' {
		return Selector{}, ErrMalformed
	}
	var field metav1.LabelSelector
	if strict, err := kjson.UnmarshalStrict(text, &field); err != nil || len(strict) > 0 {
		return Selector{}, ErrMalformed
	}
	s, err := metav1.LabelSelectorAsSelector(&field)
	if err != nil {
		return Selector{}, ErrMalformed
	}
	return limited(s, string(text))
}

func tooLong(text string) bool { return len(text) > 8*v1beta1.MaxSelectorBytes }

func limited(s labels.Selector, text string) (Selector, error) {
	requirements, _ := s.Requirements()
	values, comparisons := 0, 0
	for _, r := range requirements {
		if r.Operator() == selection.GreaterThan || r.Operator() == selection.LessThan {
			comparisons++
		}
		values += len(r.ValuesUnsorted())
	}
	if len(requirements) > v1beta1.MaxSelectorRequirements ||
		values > v1beta1.MaxSelectorValues || comparisons > v1beta1.MaxSelectorComparisons {
		return Selector{}, ErrMalformed
	}
	// A value counts each time that it is written, and each stands behind one of these.
	written := strings.Count(text, ",") + strings.Count(text, "(") + strings.Count(text, "[")
	// JSON's escapes are up to six bytes for one.
	return Selector{s, len(text) > v1beta1.MaxSelectorBytes/8 || written > v1beta1.MaxSelectorValues}, nil
}
