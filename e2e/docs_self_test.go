package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsSession runs a page that has a little of all.
func TestDocsSession(t *testing.T) {
	t.Parallel()
	const path = "testdata/docs/session.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	p, err := readPage(path, string(text))
	require.NoError(t, err)
	p.run(t, "")
	assert.NotEmpty(t, p.blocks)
}
