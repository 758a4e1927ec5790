package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestObserve(t *testing.T) {
	w := &watch{}
	refused, forbidden := errors.New("connection refused"), errors.New("forbidden")
	for _, step := range []struct {
		reason string
		err    error
		want   bool
	}{
		{"It is no news that all is well.", nil, false},
		{"An error is news.", refused, true},
		{"The same error again is none.", errors.New("connection refused"), false},
		{"Another error is news.", forbidden, true},
		{"That we were stopped is none.", fmt.Errorf("cannot list: %w", context.Canceled), false},
		{"That all is well again is news.", nil, true},
	} {
		assert.Equal(t, step.want, w.observe(step.err), step.reason)
	}
}
