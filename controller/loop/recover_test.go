package loop

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecovered(t *testing.T) {
	errNotYetThere := errors.New("not yet there")
	require.ErrorIs(t, Recovered(func() error { return errNotYetThere }), errNotYetThere, "We should pass an error on.")
	err := Recovered(func() error { panic("a poisoned claim") })
	require.ErrorIs(t, err, ErrPanic, "We should turn a panic into an error.")
	assert.EqualError(t, err, "panic: a poisoned claim")
}
