package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKinds prints each preset, and builds its kustomization: both are ways to apply it.
func TestKinds(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It needs the command on this host, and there it is in an image alone.")
	}
	w := sharedWorld(t)
	folder := filepath.Join(w.deploy, "kinds")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	presets := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		presets++
		printed, stderr, _, err := w.classbind(t.Context(), "kinds", e.Name())
		require.NoError(t, err)
		require.Empty(t, stderr, "We should print %s.", e.Name())
		assert.ElementsMatch(t, w.rendered(t, filepath.Join(folder, e.Name())), documents(t, printed),
			"We should print the objects of %s.", e.Name())
	}
	list, _, _, err := w.classbind(t.Context(), "kinds")
	require.NoError(t, err)
	assert.Equal(t, presets+1, strings.Count(list, "\n"), "We should list every preset, below a head.")
}
