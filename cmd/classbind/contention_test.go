package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProfileContention(t *testing.T) {
	t.Cleanup(func() {
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
	})
	const unchanged = -1
	assert.Zero(t, runtime.SetMutexProfileFraction(unchanged), "We should record nothing unless we are told to.")
	profileContention()
	assert.Equal(t, 1, runtime.SetMutexProfileFraction(unchanged), "We should record every wait for a lock.")
}
