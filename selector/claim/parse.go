package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	requirements = "requirements, of labels and of expressions together"
	valuesOfAll  = "values, of all requirements together"
	comparisons  = "comparisons of numbers"
)

// ParseSelector reads a label selector. It checks the limits before the content.
func ParseSelector(value any, at *field.Path) (labels.Selector, field.ErrorList) {
	var object map[string]any
	switch v := value.(type) {
	case map[string]any:
		object = v
	case fields.Unread:
		return nil, field.ErrorList{tooLong(at, strconv.Itoa(v.Length))}
	default:
		return nil, field.ErrorList{field.TypeInvalid(at, truncate.Value(value), "must be an object, a label selector")}
	}
	r := selectorReader{at: at, left: v1beta1.MaxSelectorBytes}
	s := r.selector(object)
	if r.err != nil {
		return nil, field.ErrorList{r.err}
	}
	if errs := validate(s, at); len(errs) > 0 {
		return nil, errs
	}
	if len(s.MatchExpressions) == 0 {
		return labels.SelectorFromValidatedSet(s.MatchLabels), nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(s) // It validates everything again.
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, field.OmitValueType{}, truncate.String(err.Error(), v1beta1.MaxMessageBytes))}
	}
	return parsed, nil
}

// selectorReader reads a selector from a decoded object. It counts, and stops at the first limit.
type selectorReader struct {
	at     *field.Path
	left   int // bytes of text that are still allowed
	values int
	err    *field.Error // the first
}

// selector is strict: to ignore an unknown field would widen the selector, at worst to every class.
func (r *selectorReader) selector(object map[string]any) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	r.onlyFields(r.at, object, "matchLabels", "matchExpressions")
	matchLabels := typed[map[string]any](r, r.at, object, "matchLabels", "an object")
	matchExpressions := typed[[]any](r, r.at, object, "matchExpressions", "a list")
	if n := len(matchLabels) + len(matchExpressions); n > v1beta1.MaxSelectorRequirements {
		r.fail(tooMany(r.at, n, v1beta1.MaxSelectorRequirements, requirements))
	}
	if r.err == nil && len(matchLabels) > 0 {
		s.MatchLabels = make(map[string]string, len(matchLabels))
	}
	for key, value := range matchLabels {
		if r.err != nil {
			break
		}
		text, ok := orZero[string](value)
		if !ok {
			r.fail(wrongType(r.at.Child("matchLabels").Key(truncate.String(key, v1beta1.MaxShownBytes)), value, "a string"))
		}
		r.countTexts(key, text)
		s.MatchLabels[key] = text
	}
	for i := 0; i < len(matchExpressions) && r.err == nil; i++ {
		s.MatchExpressions = append(s.MatchExpressions, r.requirement(r.at.Child("matchExpressions").Index(i), matchExpressions[i]))
	}
	return s
}

func (r *selectorReader) requirement(at *field.Path, value any) (q metav1.LabelSelectorRequirement) {
	object, ok := orZero[map[string]any](value)
	if !ok {
		r.fail(wrongType(at, value, "an object"))
	}
	r.onlyFields(at, object, "key", "operator", "values")
	q.Key = typed[string](r, at, object, "key", "a string")
	q.Operator = metav1.LabelSelectorOperator(typed[string](r, at, object, "operator", "a string"))
	values := typed[[]any](r, at, object, "values", "a list")
	r.countTexts(q.Key, string(q.Operator))
	if r.values += len(values); r.values > v1beta1.MaxSelectorValues { // They are not read yet.
		r.fail(tooMany(r.at, r.values, v1beta1.MaxSelectorValues, valuesOfAll))
	}
	for i := 0; i < len(values) && r.err == nil; i++ {
		text, ok := orZero[string](values[i])
		if !ok {
			r.fail(wrongType(at.Child("values").Index(i), values[i], "a string"))
		}
		r.countTexts(text)
		q.Values = append(q.Values, text)
	}
	return q
}

func (r *selectorReader) fail(err *field.Error) { r.err = cmp.Or(r.err, err) }

// typed returns a field of an object, the zero value for null. One of another type is an error.
func typed[T any](r *selectorReader, at *field.Path, object map[string]any, name, must string) T {
	t, ok := orZero[T](object[name])
	if !ok {
		r.fail(wrongType(at.Child(name), object[name], must))
	}
	return t
}

func (r *selectorReader) onlyFields(at *field.Path, object map[string]any, names ...string) {
	for name := range object {
		if !slices.Contains(names, name) {
			detail := fmt.Sprintf("unknown field %q: must be one of %q", truncate.String(name, v1beta1.MaxShownBytes), names)
			r.fail(field.Invalid(at, field.OmitValueType{}, detail))
			return
		}
	}
}

// countTexts limits the length of the selector and of each key, operator and value. The count is no more than the length of the selector's
// JSON, so that late binding accepts what /bind accepted.
func (r *selectorReader) countTexts(texts ...string) {
	longest := 0
	for _, t := range texts {
		r.left -= len(t) + len(`"",`)
		longest = max(longest, len(t))
	}
	if r.left < 0 {
		r.fail(tooLong(r.at, "more than "+strconv.Itoa(v1beta1.MaxSelectorBytes)))
	}
	r.fail(checkWord(r.at, longest))
}

// checkWord limits the length of a key, an operator or a value.
func checkWord(at *field.Path, length int) *field.Error {
	if length <= v1beta1.MaxSelectorWordBytes {
		return nil
	}
	return &field.Error{
		Type: field.ErrorTypeTooLong, Field: at.String(),
		Detail: fmt.Sprintf("has a key, an operator or a value of %d bytes, and must have none longer than %d",
			length, v1beta1.MaxSelectorWordBytes),
	}
}

func wrongType(at *field.Path, value any, must string) *field.Error {
	return field.TypeInvalid(at, truncate.Value(value), "must be "+must)
}

// orZero returns a value of type T; null stands for the zero value.
func orZero[T any](value any) (t T, ok bool) {
	if value == nil {
		return t, true
	}
	t, ok = value.(T)
	return t, ok
}

// validate as the API machinery does, but stop at a number of errors.
func validate(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	p := problems{at: at}
	if !areValid(s.MatchLabels) {
		at := at.Child("matchLabels")
		for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
			if !p.check(at, key, validation.IsQualifiedName) || !p.check(at, s.MatchLabels[key], validation.IsValidLabelValue) {
				return p.list
			}
		}
	}
	for i, q := range s.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		// The values are validated below, where their errors name each of them.
		anyValue := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}
		for _, err := range metav1validation.ValidateLabelSelectorRequirement(q, anyValue, at) {
			switch v := err.BadValue.(type) {
			case string:
				err.BadValue = truncate.Value(v)
			case metav1.LabelSelectorOperator:
				err.BadValue = truncate.Value(string(v))
			}
			if !p.add(err) {
				return p.list
			}
		}
		for j, value := range q.Values {
			errs := validation.IsValidLabelValue(value)
			if len(errs) == 0 {
				continue
			}
			err := field.Invalid(at.Child("values").Index(j), truncate.Value(value), strings.Join(errs, "; "))
			if !p.add(err) {
				return p.list
			}
		}
	}
	return p.list
}

// areValid is true of almost all labels, and makes no list for them.
func areValid(set map[string]string) bool {
	for key, value := range set {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return false
		}
	}
	return true
}

// check adds what is wrong with a key or a value, and reports whether to look for more.
func (p *problems) check(at *field.Path, text string, wrong func(string) []string) bool {
	for _, w := range wrong(text) {
		if !p.add(field.Invalid(at, truncate.Value(text), w)) {
			return false
		}
	}
	return true
}

// inText is the path of the parser's own errors, which would have none otherwise.
var inText = field.WithPath(field.NewPath("selector"))

// ParseSelectorText reads a selector as kubectl writes it, from an annotation. It checks the limits before the content.
func ParseSelectorText(value any, at *field.Path) (labels.Selector, field.ErrorList) {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case fields.Unread, fields.LongText:
		return nil, field.ErrorList{tooLong(at, "more than "+strconv.Itoa(v1beta1.MaxSelectorBytes))}
	default:
		return nil, field.ErrorList{field.TypeInvalid(at, truncate.Value(value), "must be a string")}
	}
	if len(text) > v1beta1.MaxSelectorBytes {
		return nil, field.ErrorList{tooLong(at, strconv.Itoa(len(text)))}
	}
	// To kubectl, an empty selector selects everything. In an annotation it is more
	// likely a template's unset value, and binding is permanent.
	if strings.TrimSpace(text) == "" {
		detail := "must be a selector, such as tier=gold; leave the annotation out if the claim has none"
		return nil, field.ErrorList{field.Required(at, detail)}
	}
	// The parser would stop at NUL, and return a wider selector.
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, field.ErrorList{field.Invalid(at, truncate.Value(text), "must not have a NUL character, as at byte "+strconv.Itoa(i))}
	}
	if err := countText(text, at); err != nil {
		return nil, field.ErrorList{err}
	}
	parsed, err := labels.Parse(text, inText)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(at, truncate.Value(text), truncate.String(err.Error(), v1beta1.MaxMessageBytes))}
	}
	return parsed, nil
}

// countText checks the limits of a selector before the parser allocates memory for each part. It is exact if the selector is well-formed.
func countText(text string, at *field.Path) *field.Error {
	const mostWords = 2*(v1beta1.MaxSelectorRequirements+v1beta1.MaxSelectorValues) + 4*v1beta1.MaxSelectorRequirements
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
	case has.commas >= v1beta1.MaxSelectorRequirements:
		return tooMany(at, has.commas+1, v1beta1.MaxSelectorRequirements, requirements)
	case has.values > v1beta1.MaxSelectorValues:
		return tooMany(at, has.values, v1beta1.MaxSelectorValues, valuesOfAll)
	case has.comparisons > v1beta1.MaxSelectorComparisons:
		return tooMany(at, has.comparisons, v1beta1.MaxSelectorComparisons, comparisons)
	case has.words > mostWords:
		return tooMany(at, has.words, mostWords, "words and signs")
	}
	return checkWord(at, has.longest)
}

// problems of a claim. No more are collected than are reported.
type problems struct {
	at   *field.Path
	list field.ErrorList
}

// add one, and report whether to look for more.
func (p *problems) add(err *field.Error) bool {
	if len(p.list) < v1beta1.MaxErrors {
		p.list = append(p.list, err)
		return true
	}
	last := len(p.list) - 1
	p.list[last] = field.Forbidden(p.at, fmt.Sprintf("there are more errors than these %d: correct them, and try again", last))
	return false
}

// tooMany is the error for more than limit of what, such as requirements.
func tooMany(at *field.Path, has any, limit int, what string) *field.Error {
	return &field.Error{
		Type: field.ErrorTypeTooMany, Field: at.String(), BadValue: has,
		Detail: fmt.Sprintf("must have at most %d %s", limit, what),
	}
}

// tooLong is the error for a selector with too many bytes; has is all that is known of their number.
func tooLong(at *field.Path, has string) *field.Error {
	return &field.Error{
		Type: field.ErrorTypeTooLong, Field: at.String(),
		Detail: fmt.Sprintf("has %s bytes, and must have at most %d", has, v1beta1.MaxSelectorBytes),
	}
}
