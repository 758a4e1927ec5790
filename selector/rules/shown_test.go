package rules

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/selector/fields"
)

func TestShown(t *testing.T) {
	s := &Shown{claim: []fields.Path{{"spec", "disk", "size"}, {"spec", "zones"}}}
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
		"Nothing": {
			reason: "What is absent should be absent.",
			spec:   map[string]any{},
			want:   `{}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, s.Claim(map[string]any{"spec": tc.spec}), tc.reason)
		})
	}
}
