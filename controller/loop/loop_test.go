package loop

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		{"We should tell of all that is new.", map[string]string{"a": "1", "b": ""}, []string{"a", "b"}},
		{"We should not tell of what is the same.", map[string]string{"a": "1", "b": ""}, nil},
		{"We should tell of what changed, came or went.", map[string]string{"a": "2", "c": ""}, []string{"a", "b", "c"}},
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

func TestRecovered(t *testing.T) {
	errNotYetThere := errors.New("not yet there")
	require.ErrorIs(t, Recovered(func() error { return errNotYetThere }), errNotYetThere, "We should pass an error on.")
	err := Recovered(func() error { panic("a poisoned claim") })
	require.ErrorIs(t, err, ErrPanic, "We should turn a panic into an error.")
	assert.EqualError(t, err, "panic: a poisoned claim")
}
