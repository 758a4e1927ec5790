package selector

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

func TestDecode(t *testing.T) {
	type want struct {
		object map[string]any
		err    string
	}
	spec := func(v any) map[string]any { return map[string]any{"spec": v} }
	selecting := func(selector string) string { return `{"spec":{"classSelector":` + selector + `}}` }
	selected := func(v any) want { return want{object: spec(map[string]any{"classSelector": v})} }
	labels := func(n int) string {
		return `{"matchLabels":{"a":"` + strings.Repeat("b", n-len(`{"matchLabels":{"a":""}}`)) + `"}}`
	}
	for name, tc := range map[string]struct {
		reason, claim string
		want          want
	}{
		"Whole": {
			reason: "We should read what is asked for, and nothing else.",
			claim: `{"apiVersion":"v1","metadata":{"name":"db","labels":{"a":"b"},"generateName":"db-","deletionTimestamp":null,"annotations":{"a":"b","classbind.io/class-selector":"tier=gold"}},
				"spec":{"classSelector":{"matchLabels":{"tier":"gold"},"other":[1,-2.5,true,false,null,{}]},"classRef":{"name":"gold","uid":"1"},"resourceRef":"","size":{"classRef":1}},"status":{},"classRef":1}`,
			want: want{object: map[string]any{
				"metadata": map[string]any{"generateName": "db-", "deletionTimestamp": nil, "annotations": map[string]any{"classbind.io/class-selector": "tier=gold"}},
				"spec": map[string]any{
					"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}, "other": []any{int64(1), -2.5, true, false, nil, map[string]any{}}},
					"classRef":      map[string]any{"name": "gold", fields.OtherFields: fields.Unread{}}, "resourceRef": fields.Unread{Length: 2},
				},
			}},
		},
		"Empty":         {reason: "We should read a claim that says nothing.", claim: ` {} `, want: want{object: map[string]any{}}},
		"Null":          {reason: "We should keep null, which is as good as absent.", claim: `{"spec":null}`, want: want{object: spec(nil)}},
		"String":        {reason: "We should keep what stands where an object should.", claim: `{"spec":"gold"}`, want: want{object: spec(fields.Unread{Length: 6})}},
		"Array":         {reason: "We should keep what stands where an object should.", claim: `{"spec":[{"size":1}]}`, want: want{object: spec(fields.Unread{Length: 12})}},
		"LargeNumber":   {reason: "We should take a number that is too large for an integer.", claim: selecting("12345678901234567890"), want: selected(12345678901234567890.0)},
		"UnreadNumber":  {reason: "We should not judge what we do not read.", claim: `{"size":1e999}`, want: want{object: map[string]any{}}},
		"EscapedName":   {reason: "We should know a name in any spelling.", claim: `{"\u0073pec":{"classSelector":"\u0067old"}}`, want: selected("gold")},
		"AnotherCase":   {reason: "We should tell names by their case.", claim: `{"Spec":{}}`, want: want{object: map[string]any{}}},
		"LongName":      {reason: "We should pass over a name of any length.", claim: `{"` + strings.Repeat("a", 1000) + `":{}}`, want: want{object: map[string]any{}}},
		"Twice":         {reason: "We should take the last of two, all of it.", claim: `{"spec":{"classRef":1},"spec":{"resourceRef":1,"resourceRef":2}}`, want: want{object: spec(map[string]any{"resourceRef": fields.Unread{Length: 1}})}},
		"NoObject":      {reason: "We should refuse a claim that is no object.", claim: `["db"]`, want: want{err: "must be an object"}},
		"NullForAClaim": {reason: "We should refuse a claim that is no object.", claim: `null`, want: want{err: "must be an object"}},
		"HugeNumber":    {reason: "We should not judge a number that stands for nothing.", claim: selecting("1e999"), want: selected(fields.Unread{Length: 5})},
		"LongReference": {reason: "We should not keep what stands where a reference should.", claim: `{"spec":{"classRef":"` + strings.Repeat("a", 1<<20) + `"}}`, want: want{object: spec(map[string]any{"classRef": fields.LongText{Length: 1<<20 + 2}})}},
		"LongSelector":  {reason: "We should not keep a selector that is too long.", claim: selecting(labels(16<<10 + 1)), want: selected(fields.Unread{Length: 16<<10 + 1})},
		"LongestSelector": {
			reason: "We should read the longest selector that there may be.", claim: selecting(labels(16 << 10)),
			want: selected(map[string]any{"matchLabels": map[string]any{"a": strings.Repeat("b", 16<<10-24)}}),
		},
		"ManyRequirements": {reason: "We should go on after a selector that is too long.", claim: `{"spec":{"classSelector":{"matchExpressions":[{}` + strings.Repeat(`,{}`, 1<<20) + `]},"resourceRef":{}}}`, want: want{object: spec(map[string]any{"classSelector": fields.Unread{Length: 3<<20 + 25}, "resourceRef": fields.Unread{Length: 2}})}},
		"LongFieldName":    {reason: "We should not keep a name that is too long.", claim: selecting(`{"` + strings.Repeat("a", 1<<20) + `":{}}`), want: selected(fields.Unread{Length: 1<<20 + 7})},
		"DeepSelector":     {reason: "We should not keep what is deeper than a selector is.", claim: selecting(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), want: selected(fields.Unread{Length: 18000})},
		"DeeperSelector":   {reason: "We should not keep what is deeper than a selector is.", claim: selecting("[[[[[[]]]]]]"), want: selected([]any{[]any{[]any{[]any{fields.Unread{}}}}})},
		"LongAnnotation": {
			reason: "We should not keep an annotation that is too long.", claim: `{"metadata":{"annotations":{"classbind.io/class-selector":"` + strings.Repeat("a", 1<<20) + `"}}}`,
			want: want{object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"classbind.io/class-selector": fields.LongText{Length: 1<<20 + 2}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := NewClaimKind(postgres()).DecodeValid([]byte(tc.claim))
			assert.Equal(t, tc.want.object, object, tc.reason)
			if tc.want.err != "" {
				require.ErrorContains(t, err, tc.want.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
		})
	}
}

// FuzzDecode proves that it makes no difference whether the whole claim is decoded.
func FuzzDecode(f *testing.F) {
	for _, claim := range []string{
		`{}`, `null`, `[]`, `{"spec":null,"metadata":1}`, `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`, `{"spec":{"classRef":{"name":"gold"}}}`,
		`{"spec":{"template":{"class":{"kind":"Gold","apiVersion":"v1/a","name":"a"}}},"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}`,
		`{"metadata":{"generateName":"a","deletionTimestamp":"b","annotations":{"classbind.io/class-selector":"tier in (gold)"}}}`,
		`{"spec":{"classSelector":{"matchLabels":{"a":8}}},"selector":{"matchLabels":{"a":1.5}}}`, `{"spec":{"source":"a","resourceRef":1}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"a"},"annotations":{"example.org/class":"","kubernetes.io/ingress.class":null}},"spec":{"className":""}}`,
		`{"spec":{"ref":{"name":"","kind":5,"apiVersion":"v1"},"topology":{"classRef":{}}}}`, `{"spec":{"ref":{"name":[],"namespace":"a"},"topology":1}}`,
		`{"sp\u0065c":{"classRef":"\ud800"},"spec":{"classSelector":{}}}`, `{"spec":{"a":1,"a":2,"classRef":1,"classRef":null}}`, `{"selector":-0,"spec":1E2}`,
	} {
		f.Add([]byte(claim))
	}
	other := postgres()
	other.Spec.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.template.class"}, Form: v1beta1.TypedLocalObjectReference}
	other.Spec.Selector.Path = ".selector"
	other.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.source.ref"}, {Path: ".spec.resourceRef"}, {Path: ".spec.source"}}
	kinds := []*ClaimKind{
		NewClaimKind(postgres()), NewClaimKind(other), kindOf(byLabel), kindOf(byAnnotation), kindOf(byName), kindOf(byObject), kindOf(belowTopology),
		kindOf(func(s *v1beta1.ClaimKindSpec) {
			s.Selector.WhenAbsent, s.Selector.Annotation = v1beta1.NoSelectorLeaveAlone, "example.org/class"
			s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: ingressClass}, {Label: queueLabel}}
		}),
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, k := range kinds {
			got, err := k.DecodeValid(raw)
			if err != nil || !isValid(raw) {
				continue
			}
			var whole map[string]any
			if err := json.Unmarshal(raw, &whole); err != nil {
				require.ErrorContains(t, err, "cannot unmarshal number", "We should not read what is no JSON.")
				continue // The error is in a part that we do not read.
			}
			assert.Equal(t, k.HasReference(whole), k.HasReference(got))
			claim, want := k.Read("team", "db", got), k.Read("team", "db", whole)
			if len(want.GenerateName) > v1beta1.MaxNameBytes {
				want.GenerateName = "" // It is not read.
			}
			if len(raw) > v1beta1.MaxSelectorBytes { // Only one of them knows how much too long a selector is.
				claim.Problems, want.Problems = nil, nil
			}
			assert.Equal(t, want, claim)
		}
	})
}

// isValid reports whether the decoder of reviews lets such a claim through.
func isValid(raw []byte) bool { return jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) }

// A field that a claim repeats is made once.
func TestRepetitionsAreMadeOnce(t *testing.T) {
	for name, one := range map[string]string{
		"Objects":   `"spec":{"classRef":{"name":1}},"spec":1`,
		"Selectors": `"spec":{"classSelector":{"matchExpressions":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}`,
		"Names":     `"\u0061":0`,
	} {
		raw := []byte(`{` + one + string(bytes.Repeat([]byte(","+one), 10_000)) + `}`)
		kind := NewClaimKind(postgres())
		_, err := kind.DecodeValid(raw)
		require.NoError(t, err)
		allocs := testing.AllocsPerRun(1, func() { _, _ = kind.DecodeValid(raw) })
		assert.Less(t, allocs, 100.0, "We should allocate little for %s.", name)
	}
}
