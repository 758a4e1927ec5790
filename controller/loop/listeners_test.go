package loop

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPublished(t *testing.T) {
	var p Published[string]
	var notified []string
	p.Add(t.Context(), func(name string) { notified = append(notified, name) })
	_, known := p.Get("a")
	assert.False(t, known)
	for _, step := range []struct {
		reason string
		values map[string]string
		want   []string
	}{
		{"We should report all that is new.", map[string]string{"a": "1", "b": ""}, []string{"a", "b"}},
		{"We should not report what is the same.", map[string]string{"a": "1", "b": ""}, nil},
		{"We should report what changed, came or went.", map[string]string{"a": "2", "c": ""}, []string{"a", "b", "c"}},
	} {
		notified = nil
		p.Set(step.values)
		slices.Sort(notified)
		assert.Equal(t, step.want, notified, step.reason)
	}
	value, known := p.Get("a")
	assert.Equal(t, "2", value)
	assert.True(t, known)
}
