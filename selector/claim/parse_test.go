package claim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// elements repeats an element n times, with its number for %d.
func elements(n int, element string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(element, "%d", fmt.Sprint(i))
	}
	return strings.Join(all, ",")
}

func selecting(selector string) string { return `{"spec":{"classSelector":` + selector + `}}` }

func annotating(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"metadata":{"annotations":{"classbind.io/class-selector":` + string(quoted) + `}}}`
}

// hostileClaims are the most expensive claims, by what they do.
var hostileClaims = map[string]string{
	"EmptyExpressions":     selecting(`{"matchExpressions":[` + elements(4000, `{}`) + `]}`),
	"KeylessExpressions":   selecting(`{"matchExpressions":[` + elements(64, `{"key":"","operator":""}`) + `]}`),
	"ManyExpressions":      selecting(`{"matchExpressions":[` + elements(5000, `{"key":"","operator":""}`) + `]}`),
	"ManyLabels":           selecting(`{"matchLabels":{` + elements(100_000, `"a%d":"b"`) + `}}`),
	"ManyFields":           selecting(`{` + elements(100_000, `"a%d":{}`) + `}`),
	"ManyValues":           selecting(`{"matchExpressions":[{"key":"a","operator":"In","values":[` + elements(100_000, `"v%d"`) + `]}]}`),
	"WrongValues":          selecting(`{"matchExpressions":[{"key":"a","operator":"In","values":[` + elements(1000, `"-%d"`) + `]}]}`),
	"LongKey":              selecting(`{"matchLabels":{"` + strings.Repeat("a", 16_000) + `":1}}`),
	"LongUnknownField":     selecting(`{"` + strings.Repeat("<", 16_000) + `":1}`),
	"LongOperator":         selecting(`{"matchExpressions":[{"key":"a","operator":"` + strings.Repeat("é", 8000) + `"}]}`),
	"LongValue":            selecting(`{"matchLabels":{"a":"` + strings.Repeat("a", 2_900_000) + `"}}`),
	"LongList":             selecting(`[` + elements(1_000_000, `{}`) + `]`),
	"ListOfMillions":       `{"spec":[` + elements(1_000_000, `{}`) + `]}`,
	"LongNumber":           selecting(strings.Repeat("1", 1_000_000)),
	"DeepLists":            selecting(strings.Repeat("[", 8000) + strings.Repeat("]", 8000)),
	"LongReference":        `{"spec":{"classRef":{"name":"` + strings.Repeat("a", 2_900_000) + `"}}}`,
	"ReferenceOfMillions":  `{"spec":{"resourceRef":[` + elements(1_000_000, `{}`) + `]}}`,
	"LongGenerateName":     `{"metadata":{"generateName":"` + strings.Repeat("a", 2_900_000) + `"}}`,
	"ManyNames":            `{` + elements(400_000, `"a%d":0`) + `}`,
	"AnnotationOfAbsences": annotating(elements(87_000, `!a`)),
	"AnnotationOfKeys":     annotating(elements(8000, `!`)),
	"AnnotationOfValues":   annotating("a in (" + elements(8000, "") + ")"),
	"AnnotationOfSigns":    annotating(strings.Repeat("(", 16<<10)),
	"AnnotationOfWords":    annotating(strings.Repeat("a ", 8<<10)),
	"AnnotationOfOneWord":  annotating(strings.Repeat("a", 16<<10)),
	"LongAnnotation":       annotating(strings.Repeat("a", 2_900_000)),
}

// Reading a claim allocates no more than its length allows, and its errors are short,
// whatever it holds. The worst claim once took 105 GB, and 48 seconds.
func TestClaimsCostLittle(t *testing.T) {
	reader := readerOf()
	for name, claim := range hostileClaims {
		t.Run(name, func(t *testing.T) {
			raw := []byte(claim)
			var errs field.ErrorList
			allocated := cost.Allocated(func() {
				object, err := reader.DecodeValid(raw)
				require.NoError(t, err)
				errs = reader.Read("team", "db", object).Problems
			})
			assert.LessOrEqual(t, allocated, uint64(8*len(raw)+1<<20), "We should allocate little.")
			assertShort(t, errs)

			var object map[string]any
			if json.Unmarshal(raw, &object) != nil {
				return // Another decoder does not take it for a number.
			}
			allocated = cost.Allocated(func() { errs = reader.Read("team", "db", object).Problems })
			assert.LessOrEqual(t, allocated, uint64(1<<20), "We should allocate little where another decoder has read the claim.")
			assertShort(t, errs)
		})
	}
}

func assertShort(t *testing.T, errs field.ErrorList) {
	t.Helper()
	assert.LessOrEqual(t, len(errs), v1beta1.MaxErrors, "We should not report all that is wrong.")
	if len(errs) > 0 {
		assert.Less(t, len(errs.ToAggregate().Error()), v1beta1.MaxErrors*(v1beta1.MaxMessageBytes+4*v1beta1.MaxShownBytes), "We should be brief.")
	}
	for _, err := range errs {
		assert.Less(t, len(err.Field), 2*v1beta1.MaxShownBytes, "We should name a field briefly: %s.", err)
	}
}

func TestSelectorLimits(t *testing.T) {
	const (
		inField      = "spec.classSelector"
		inAnnotation = "metadata.annotations[classbind.io/class-selector]"
	)
	expressions := func(n, values int) string {
		return selecting(`{"matchExpressions":[` + elements(n, `{"key":"a%d","operator":"In","values":[`+elements(values, `"v"`)+`]}`) + `]}`)
	}
	// long is a selector of n bytes. Nearly all of them are values of 300 bytes, which are invalid.
	long := func(n int) string {
		values := strings.Repeat(`"`+strings.Repeat("b", 300)+`",`, 53)
		selector := `{"matchExpressions":[{"key":"a","operator":"In","values":[` + values + `"%s"]}]}`
		return selecting(strings.Replace(selector, "%s", strings.Repeat("b", n-len(selector)+len("%s")), 1))
	}
	longestKey := strings.Repeat(strings.Repeat("a", 62)+".", 4) + "b/" + strings.Repeat("a", 63)
	tooMany, tooLong := field.ErrorTypeTooMany, field.ErrorTypeTooLong
	for name, tc := range map[string]struct {
		reason string
		claim  string
		want   []fieldFailed
		text   string
	}{
		"MostRequirements": {
			reason: "We should take as many as there may be.",
			claim:  selecting(`{"matchLabels":{"b":"c"},"matchExpressions":[` + elements(63, `{"key":"a%d","operator":"Exists"}`) + `]}`),
		},
		"OneMore": {
			reason: "We should count labels and expressions.",
			claim:  selecting(`{"matchLabels":{"b":"c"},"matchExpressions":[` + elements(64, `{"key":"a%d","operator":"Exists"}`) + `]}`),
			want:   []fieldFailed{{inField, tooMany}},
			text:   "Too many: 65: must have at most 64 requirements",
		},
		"MostValues": {reason: "We should take as many as there may be.", claim: expressions(64, 16)},
		"OneValueMore": {
			reason: "We should count the values of all requirements.",
			claim:  strings.Replace(expressions(64, 16), `["v",`, `["v","v",`, 1),
			want:   []fieldFailed{{inField, tooMany}},
			text:   "Too many: 1025: must have at most 1024 values",
		},
		"Longest": {
			reason: "We should look at what is in the longest.",
			claim:  long(16 << 10),
			want:   append(failures(9, "spec.classSelector.matchExpressions[0].values[%d]"), fieldFailed{inField, field.ErrorTypeForbidden}),
		},
		"OneByteMore": {
			reason: "We should not look at what is in a longer one.",
			claim:  long(16<<10 + 1),
			want:   []fieldFailed{{inField, tooLong}},
			text:   "Too long: has 16385 bytes, and must have at most 16384",
		},
		"LongestWord": {reason: "We should take the longest valid key.", claim: selecting(`{"matchLabels":{"` + longestKey + `":"b"}}`)},
		"LongerWord": {
			reason: "We should not validate a longer word.",
			claim:  selecting(`{"matchLabels":{"a` + longestKey + `":"b"}}`),
			want:   []fieldFailed{{inField, tooLong}},
			text:   "has a key, an operator or a value of 318 bytes",
		},
		"LongestWordInText": {reason: "We should take the longest valid key.", claim: annotating(longestKey + " = b")},
		"LongerWordInText": {
			reason: "We should not validate a longer word.",
			claim:  annotating("b in (a" + longestKey + ")"),
			want:   []fieldFailed{{inAnnotation, tooLong}},
			text:   "has a key, an operator or a value of 318 bytes",
		},
		"MostInText": {
			reason: "We should take as many as there may be.",
			claim:  annotating("b in (" + elements(1020, "a%d") + "),c=d,e!=f,g==h,i notin (j)," + elements(59, "!a%d")),
		},
		"OneMoreInText": {
			reason: "We should count requirements.",
			claim:  annotating(elements(65, "!a%d")),
			want:   []fieldFailed{{inAnnotation, tooMany}},
			text:   "Too many: 65: must have at most 64 requirements",
		},
		"OneValueInText": {
			reason: "We should count values.",
			claim:  annotating("b in (" + elements(1025, "a%d") + ")"),
			want:   []fieldFailed{{inAnnotation, tooMany}},
			text:   "Too many: 1025: must have at most 1024 values",
		},
		"MostComparisons": {reason: "We should compare as many numbers as there may be.", claim: annotating(elements(8, "a%d>1"))},
		"OneComparisonMore": {
			reason: "We should count comparisons.",
			claim:  annotating(elements(9, "a%d<1")),
			want:   []fieldFailed{{inAnnotation, tooMany}},
			text:   "Too many: 9: must have at most 8 comparisons",
		},
		"LongText": {
			reason: "We should not parse a longer text.",
			claim:  annotating("a" + strings.Repeat(" ", 16<<10)),
			want:   []fieldFailed{{inAnnotation, tooLong}},
			text:   "has 16385 bytes",
		},
		"LongerText": {
			reason: "We should not read a longer text.",
			claim:  annotating(strings.Repeat("a", 1<<20)),
			want:   []fieldFailed{{inAnnotation, tooLong}},
			text:   "has more than 16384 bytes",
		},
		"MostErrors": {
			reason: "We should report ten errors.",
			claim:  selecting(`{"matchExpressions":[` + elements(10, `{"key":"a%d","operator":"Foo"}`) + `]}`),
			want:   failures(10, "spec.classSelector.matchExpressions[%d].operator"),
			text:   "matchExpressions[9].operator",
		},
		"MoreErrors": {
			reason: "We should say that there are more than we tell.", claim: selecting(`{"matchExpressions":[` + elements(64, `{"key":"a%d","operator":"Foo"}`) + `]}`),
			want: append(failures(9, "spec.classSelector.matchExpressions[%d].operator"), fieldFailed{inField, field.ErrorTypeForbidden}),
			text: "there are more errors than these 9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := readerOf()
			object, err := reader.DecodeValid([]byte(tc.claim))
			require.NoError(t, err)
			claim := reader.Read("team", "db", object)
			assert.Equal(t, tc.want, failed(claim.Problems), tc.reason)
			if tc.want == nil {
				assert.NotNil(t, claim.Selector, tc.reason)
				return
			}
			require.ErrorContains(t, claim.Problems.ToAggregate(), tc.text, tc.reason)

			require.NoError(t, json.Unmarshal([]byte(tc.claim), &object))
			assert.NotEmpty(t, reader.Read("team", "db", object).Problems, "We should hold the limit where another decoder has read the claim.")
		})
	}
}

// failures are errors at numbered fields.
func failures(n int, at string) (all []fieldFailed) {
	for i := range n {
		all = append(all, fieldFailed{fmt.Sprintf(at, i), field.ErrorTypeInvalid})
	}
	return all
}
