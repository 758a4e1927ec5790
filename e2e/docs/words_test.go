package docs

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// reference is generated from the code, and has no bound.
	reference = "docs/api-reference.md"
	// mostWords of all other documents together, and of one without a bound of its own, as wc -w counts them.
	mostWords    = 45000
	mostWordsOne = 700
)

// bounds in words, of documents that need more or are to stay shorter. Lower one when you make its document shorter.
var bounds = map[string]int{
	"ARCHITECTURE.md":               1800,
	"CONTRIBUTING.md":               650,
	"README.md":                     800,
	"docs/capacity.md":              730,
	"docs/chooser.md":               820,
	"docs/claims.md":                1960,
	"docs/compare.md":               1590,
	"docs/development.md":           1000,
	"docs/explain.md":               1130,
	"docs/expressions.md":           1950,
	"docs/gitops.md":                1240,
	"docs/install.md":               1655,
	"docs/metrics-and-alerts.md":    970,
	"docs/one-default.md":           890,
	"docs/performance.md":           1150,
	"docs/register-kinds.md":        3010,
	"docs/releases.md":              650,
	"docs/security.md":              2410,
	"docs/simulate.md":              710,
	"docs/troubleshooting.md":       2180,
	"docs/upgrade-and-uninstall.md": 900,
	"docs/use.md":                   880,
}

// TestWords holds each document against its bound, and all together.
func TestWords(t *testing.T) {
	t.Parallel()
	_, files := pages(t)
	all := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(path) != ".md" || path == reference {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // It is a file of the repository.
		require.NoError(t, err)
		words := len(bytes.Fields(source))
		all += words
		bound, own := bounds[path]
		if !own {
			bound = mostWordsOne
		}
		if words > bound {
			t.Errorf("%s has %d words, and may have %d: say less, or say it once and link to it", path, words, bound)
		}
	}
	assert.LessOrEqual(t, all, mostWords, "We should keep all documents together short enough to be read.")
	for path := range bounds {
		assert.True(t, files[path], "We should have no bound for %s, which is gone.", path)
		assert.True(t, strings.HasSuffix(path, ".md"), path)
	}
}
