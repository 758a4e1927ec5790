package rules

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/selector/fields"
)

func TestShown(t *testing.T) {
	s := &Shown{claim: []fields.Path{{"spec", "disk", "size"}, {"spec", "zones"}}}
	fits := strings.Repeat("x", 99-len(`{"spec":{"zones":["","a",[],{},1]}}`))
	for name, tc := range map[string]struct {
		reason string
		spec   map[string]any
		want   string
	}{
		"All": {
			reason: "We should show what is named, and nothing else.",
			spec:   map[string]any{"disk": map[string]any{"size": int64(3), "key": "secret"}, "zones": []any{"<a>"}},
			want:   `{"spec":{"disk":{"size":3},"zones":["<a>"]}}`,
		},
		"NoObject": {
			reason: "We should not show what is no object on the way.",
			spec:   map[string]any{"disk": "secret", "zones": nil},
			want:   `{}`,
		},
		"Longest": {
			reason: "We should show what fits.",
			spec:   map[string]any{"zones": []any{fits, "a", []any{}, map[string]any{}, int64(1)}},
			want:   `{"spec":{"zones":["` + fits + `","a",[],{},1]}}`,
		},
		"Long": {
			reason: "We should not show what is too long.",
			spec:   map[string]any{"zones": strings.Repeat("x", 100-len(`{"spec":{"zones":""}}`))},
		},
		"Escapes": {
			reason: "We should not show what is too long as JSON.",
			spec:   map[string]any{"zones": strings.Repeat("\n", 50)},
		},
		"Nothing": {
			reason: "What is absent should be absent.",
			spec:   map[string]any{},
			want:   `{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, s.Claim(map[string]any{"spec": tc.spec}, 99), tc.reason)
		})
	}
}

func TestLongIsNotEncoded(t *testing.T) {
	s := &Shown{claim: []fields.Path{{"spec"}}}
	long := map[string]any{"spec": map[string]any{
		"text": strings.Repeat("\n", 1<<20), "list": slices.Repeat([]any{map[string]any{"size": int64(3)}}, 100_000),
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.Empty(t, s.Claim(long, 1000))
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "What is much too long should cost nothing.")
}
