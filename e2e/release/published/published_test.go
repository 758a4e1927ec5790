package published

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	update = flag.Bool("update", false, "write the pages")

	// releases are links to what only a release has.
	releases = regexp.MustCompile(`github\.com/classbind/classbind/releases\S*|ghcr\.io/classbind\S*|\?ref=v\S*`)
)

const (
	root    = "../../.."
	release = "v0.1.0"

	// README is a first page: how long it may be, in lines and in words.
	readmeLines = 100
	readmeWords = 800
)

// TestPages proves that the documents say what docs/published says, and with -update writes them.
func TestPages(t *testing.T) {
	version, err := Version(root)
	require.NoError(t, err)
	for _, path := range Pages {
		file := filepath.Join(root, path)
		text, err := os.ReadFile(file) //nolint:gosec // It is a document.
		require.NoError(t, err)
		want, err := Page(string(text), version)
		require.NoError(t, err, path)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
			continue
		}
		assert.Equal(t, want, string(text), "%s: change e2e/release/published/parts.tmpl, then run make generate.", path)
	}
}

// TestReadme holds both texts of README against its bounds, and looks in each for what does not exist.
func TestReadme(t *testing.T) {
	crds, err := os.ReadFile(filepath.Join(root, "e2e", "crds", "go.mod"))
	require.NoError(t, err)
	gateways := regexp.MustCompile(`sigs\.k8s\.io/gateway-api (\S+)`).FindSubmatch(crds)
	require.NotNil(t, gateways)
	for name, tc := range map[string]struct {
		reason, version string
		releases        assert.BoolAssertionFunc
	}{
		"Clone": {
			reason:   "We should name no release, because there is none.",
			version:  None,
			releases: assert.False,
		},
		"Release": {
			reason:   "We should name the release, and no clone is needed.",
			version:  release,
			releases: assert.True,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "README.md"))
			require.NoError(t, err)
			page, err := Page(string(text), tc.version)
			require.NoError(t, err)
			assert.Contains(t, page, "/gateway-api/releases/download/"+string(gateways[1])+"/", "We should install the version that the preset is tested with.")
			assert.LessOrEqual(t, strings.Count(page, "\n"), readmeLines)
			assert.LessOrEqual(t, len(strings.Fields(page)), readmeWords)
			named := releases.FindAllString(page, -1)
			tc.releases(t, len(named) > 0, "%s %q", tc.reason, named)
			for _, release := range named {
				assert.Contains(t, release, tc.version, tc.reason)
			}
		})
	}
}

func TestPage(t *testing.T) {
	part := "a\n<!-- published: quickstart -->\nold\n<!-- /published -->\n"
	for name, tc := range map[string]struct {
		reason, text string
		want, err    string
	}{
		"NoPart": {
			reason: "We should see that a page has lost its part.",
			text:   "a\n",
			err:    "the page has no line",
		},
		"NoEnd": {
			reason: "We should not write to the end of the page.",
			text:   strings.TrimSuffix(part, "<!-- /published -->\n"),
			err:    `"quickstart" does not end`,
		},
		"Unknown": {
			reason: "We should know the part.",
			text:   strings.Replace(part, "quickstart", "other", 1),
			err:    `"other"`,
		},
		"Several": {
			reason: "We should write each part, and keep what is around it.",
			text:   part + part + "b\n",
			want:   "releases/download/v0.1.0/install.yaml",
		},
		"OnlyMarks": {
			reason: "We should write a part that was empty.",
			text:   strings.Replace(part, "old\n", "", 1),
			want:   "releases/download/v0.1.0/install.yaml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Page(tc.text, release)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, strings.Count(tc.text, "<!-- published"), strings.Count(got, tc.want), tc.reason)
			assert.NotContains(t, got, "old", tc.reason)
			again, err := Page(got, release)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, got, again, "We should change nothing the second time.")
		})
	}
}
