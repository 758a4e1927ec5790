package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1alpha1"
)

func TestDecode(t *testing.T) {
	type want struct {
		object map[string]any
		err    string
	}
	spec := func(v any) map[string]any { return map[string]any{"spec": v} }
	for name, tc := range map[string]struct {
		reason, claim string
		want          want
	}{
		"Whole": {
			reason: "We should read what is asked for, and nothing else.",
			claim: `{"apiVersion":"v1","metadata":{"name":"db","labels":{"a":"b"},"generateName":"db-","deletionTimestamp":null,"annotations":{"a":"b","classbind.io/class-selector":"tier=gold"}},
				"spec":{"classSelector":{"matchLabels":{"tier":"gold"},"other":[1,-2.5,true,false,null,{}]},"classRef":{},"resourceRef":"","size":{"classRef":1}},"status":{},"classRef":1}`,
			want: want{object: map[string]any{
				"metadata": map[string]any{"generateName": "db-", "deletionTimestamp": nil, "annotations": map[string]any{"classbind.io/class-selector": "tier=gold"}},
				"spec": map[string]any{
					"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}, "other": []any{int64(1), -2.5, true, false, nil, map[string]any{}}},
					"classRef":      map[string]any{}, "resourceRef": "",
				},
			}},
		},
		"Empty":         {reason: "We should read a claim that says nothing.", claim: ` {} `, want: want{object: map[string]any{}}},
		"Null":          {reason: "We should keep null, which is as good as absent.", claim: `{"spec":null}`, want: want{object: spec(nil)}},
		"String":        {reason: "We should keep what stands where an object should.", claim: `{"spec":"gold"}`, want: want{object: spec("gold")}},
		"Array":         {reason: "We should keep what stands where an object should.", claim: `{"spec":[{"size":1}]}`, want: want{object: spec([]any{map[string]any{"size": int64(1)}})}},
		"LargeNumber":   {reason: "We should take a number that is too large for an integer.", claim: `{"spec":12345678901234567890}`, want: want{object: spec(12345678901234567890.0)}},
		"UnreadNumber":  {reason: "We should not judge what we do not read.", claim: `{"size":1e999}`, want: want{object: map[string]any{}}},
		"EscapedName":   {reason: "We should know a name in any spelling.", claim: `{"\u0073pec":"\u0067old"}`, want: want{object: spec("gold")}},
		"AnotherCase":   {reason: "We should tell names by their case.", claim: `{"Spec":{}}`, want: want{object: map[string]any{}}},
		"LongName":      {reason: "We should pass over a name of any length.", claim: `{"` + strings.Repeat("a", 1000) + `":{}}`, want: want{object: map[string]any{}}},
		"Twice":         {reason: "We should take the last of two, all of it.", claim: `{"spec":{"classRef":1},"spec":{"resourceRef":1,"resourceRef":2}}`, want: want{object: spec(map[string]any{"resourceRef": int64(2)})}},
		"NoObject":      {reason: "We should refuse a claim that is no object.", claim: `["db"]`, want: want{err: "must be an object"}},
		"NullForAClaim": {reason: "We should refuse a claim that is no object.", claim: `null`, want: want{err: "must be an object"}},
		"Nothing":       {reason: "We should refuse what is no JSON.", want: want{err: "unexpected EOF"}},
		"Truncated":     {reason: "We should refuse what is no JSON.", claim: `{"spec":{"classSelector":[`, want: want{err: "unexpected EOF"}},
		"Garbage":       {reason: "We should refuse what is no JSON, where we do not read it, too.", claim: `{"size":{"a":tru}}`, want: want{err: "invalid character"}},
		"TwoClaims":     {reason: "We should not take one of two.", claim: `{}{}`, want: want{err: "invalid character '{' after top-level value"}},
		"NotUTF8":       {reason: "We should refuse text that is none.", claim: "{\"spec\":\"\xff\"}", want: want{err: "invalid UTF-8"}},
		"HugeNumber":    {reason: "We should refuse a number that is none to us.", claim: `{"spec":1e999}`, want: want{err: "out of range"}},
		"Deep":          {reason: "We should not be led down where we read.", claim: `{"spec":` + strings.Repeat("[", 4<<20), want: want{err: "exceeded max depth"}},
		"DeepAside":     {reason: "We should not be led down where we do not read.", claim: `{"size":` + strings.Repeat(`{"a":`, 1<<20), want: want{err: "exceeded max depth"}},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := NewClaimKind(postgres()).Decode([]byte(tc.claim))
			assert.Equal(t, tc.want.object, object, tc.reason)
			if tc.want.err != "" {
				require.ErrorContains(t, err, tc.want.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
		})
	}
}

// Paths may lead through each other, in any order.
func TestFields(t *testing.T) {
	deep := fields{"a": {"b": {"c": nil}, "d": nil}, "e": nil}
	whole := fields{"a": nil}
	for name, tc := range map[string]struct {
		reason string
		paths  []path
		want   fields
	}{
		"Apart":      {"We should read each.", []path{{"a", "b", "c"}, {"a", "d"}, {"e"}}, deep},
		"Again":      {"We should read each once.", []path{{"a", "b", "c"}, {"e"}, {"a", "d"}, {"a", "b", "c"}}, deep},
		"OuterFirst": {"We should read all of what is asked for as a whole.", []path{{"a"}, {"a", "b", "c"}}, whole},
		"OuterLast":  {"We should read all of what is asked for as a whole.", []path{{"a", "b", "c"}, {"a"}}, whole},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, newFields(tc.paths...), tc.reason)
		})
	}
}

// FuzzDecode proves that nobody can tell whether the whole claim was decoded.
func FuzzDecode(f *testing.F) {
	for _, claim := range []string{
		`{}`, `null`, `[]`, `{"spec":null,"metadata":1}`, `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`, `{"spec":{"classRef":{"name":"gold"}}}`,
		`{"spec":{"template":{"class":{"kind":"Gold","apiVersion":"v1/a","name":"a"}}},"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}`,
		`{"metadata":{"generateName":"a","deletionTimestamp":"b","annotations":{"classbind.io/class-selector":"tier in (gold)"}}}`,
		`{"spec":{"classSelector":{"matchLabels":{"a":8}}},"selector":{"matchLabels":{"a":1.5}}}`, `{"spec":{"source":"a","resourceRef":1}}`,
		`{"sp\u0065c":{"classRef":"\ud800"},"spec":{"classSelector":{}}}`, `{"spec":{"a":1,"a":2,"classRef":1,"classRef":null}}`, `{"selector":-0,"spec":1E2}`,
	} {
		f.Add([]byte(claim))
	}
	other := postgres()
	other.Spec.ClassRefFormat = v1alpha1.TypedLocalObjectReference
	other.Spec.Paths = v1alpha1.ClaimPaths{ClassSelector: ".selector", ClassRef: ".spec.template.class", SkipIfSet: []v1alpha1.FieldPath{".spec.source.ref", ".spec.resourceRef", ".spec.source"}}
	kinds := []*ClaimKind{NewClaimKind(postgres()), NewClaimKind(other)}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, k := range kinds {
			got, err := k.Decode(raw)
			if err != nil {
				continue // There is more that we refuse, such as text that is no UTF-8.
			}
			var whole map[string]any
			if err := json.Unmarshal(raw, &whole); err != nil {
				require.ErrorContains(t, err, "cannot unmarshal number", "We should not read what is no JSON.")
				continue // It is where we do not read.
			}
			claim, errs := k.NewClaim("team", "db", got)
			wantClaim, wantErrs := k.NewClaim("team", "db", whole)
			assert.Equal(t, wantClaim, claim)
			assert.Equal(t, wantErrs, errs)
			assert.Equal(t, k.Parents(whole), k.Parents(got))
			classes, bound := k.BoundTo("team", got)
			wantClasses, wantBound := k.BoundTo("team", whole)
			assert.Equal(t, wantClasses, classes)
			assert.Equal(t, wantBound, bound)
			metadata, _ := got["metadata"].(map[string]any)
			wantMetadata, _ := whole["metadata"].(map[string]any)
			for _, name := range []string{"deletionTimestamp", "generateName"} {
				assert.Equal(t, wantMetadata[name], metadata[name], name)
			}
		}
	})
}
