package controlplane

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Start(t.Context(), Options{Progress: os.Stderr, APIServerFlags: map[string]string{"no-such-flag": "1"}})
	require.ErrorContains(t, err, "unknown flag: --no-such-flag", "the API server's own reason")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
