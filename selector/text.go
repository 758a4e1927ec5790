package selector

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// parseSelectorText reads a selector as kubectl writes it, from an annotation. It
// checks the limits before the content.
func parseSelectorText(value any, at *field.Path) (labels.Selector, field.ErrorList) {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case unread:
		return nil, field.ErrorList{tooLong(at, "more than "+strconv.Itoa(v1alpha1.MaxSelectorBytes))}
	default:
		return nil, field.ErrorList{field.TypeInvalid(at, badValue(value), "must be a string")}
	}
	if len(text) > v1alpha1.MaxSelectorBytes {
		return nil, field.ErrorList{tooLong(at, strconv.Itoa(len(text)))}
	}
	// To kubectl, an empty selector selects everything. In an annotation it is more
	// likely a template's unset value, and binding is for good.
	if strings.TrimSpace(text) == "" {
		detail := "must be a selector, such as tier=gold; leave the annotation out for the default class"
		return nil, field.ErrorList{field.Required(at, detail)}
	}
	// The parser would stop at NUL, and return a wider selector.
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, field.ErrorList{field.Invalid(at, badValue(text), "must not have a NUL character, as at byte "+strconv.Itoa(i))}
	}
	if err := countText(text, at); err != nil {
		return nil, field.ErrorList{err}
	}
	parsed, err := labels.Parse(text)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, badValue(text), brief.Text(err.Error(), v1alpha1.MaxMessageBytes))}
	}
	return parsed, nil
}

// countText checks the limits of a selector before the parser allocates memory for
// each part. It is exact if the selector is well-formed.
func countText(text string, at *field.Path) *field.Error {
	const mostWords = 2*(v1alpha1.MaxSelectorRequirements+v1alpha1.MaxSelectorValues) + 4*v1alpha1.MaxSelectorRequirements
	var has struct{ commas, values, comparisons, words, longest int }
	inside, word := false, 0 // bytes of the word so far
	for i := range len(text) {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			word = 0
		case ',', '(', ')', '=', '!', '<', '>':
			word = 0
			has.words++
			switch {
			case c == '(':
				inside = true
				has.values++
			case c == ')':
				inside = false
			case c == ',' && inside:
				has.values++
			case c == ',':
				has.commas++
			case c == '<', c == '>':
				has.comparisons++
			}
		default:
			if word++; word == 1 {
				has.words++
			}
			has.longest = max(has.longest, word)
		}
	}
	switch {
	case has.commas >= v1alpha1.MaxSelectorRequirements:
		return tooMany(at, has.commas+1, v1alpha1.MaxSelectorRequirements, requirements)
	case has.values > v1alpha1.MaxSelectorValues:
		return tooMany(at, has.values, v1alpha1.MaxSelectorValues, values)
	case has.comparisons > v1alpha1.MaxSelectorComparisons:
		return tooMany(at, has.comparisons, v1alpha1.MaxSelectorComparisons, comparisons)
	case has.words > mostWords:
		return tooMany(at, has.words, mostWords, "words and signs")
	}
	return checkWord(at, has.longest)
}
