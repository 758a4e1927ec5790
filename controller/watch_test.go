package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

func TestRefusedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // For a clock that we set.
		w := &watch{}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "golds"}, "", errors.New("no rule"))
		since := func() time.Duration {
			at, _ := w.lastError()
			return time.Since(at)
		}
		w.observe(errors.New("connection refused"))
		time.Sleep(time.Hour)
		w.observe(forbidden)
		assert.Zero(t, since(), "We should count from the refusal, however long there was no answer before.")
		time.Sleep(time.Second)
		w.observe(forbidden)
		assert.Equal(t, time.Second, since(), "We should count from the first refusal.")
	})
}
