package output

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestHostile prints what a terminal obeys, in each format.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{"\x1b[2J", "\u009b1m", "\u202e", "\u2066", "\u200b", "\u2028", "\r", "\a", "\x7f", "\ufeff", "\U000e0041", "\x80"} {
		report := map[string]any{"name": "a" + hostile + "b", hostile: []string{hostile}}
		for _, format := range append([]string{""}, formats...) {
			var out strings.Builder
			require.NoError(t, Format(format).Print(&out, report, func() string { return "a" + hostile + "b\n" }))
			assert.False(t, strings.ContainsFunc(out.String(), isHidden), "We should print nothing that a terminal obeys: %s: %q", format, out.String())
			if read := map[string]func([]byte, any) error{
				"json": json.Unmarshal,
				"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
			}[format]; read != nil && hostile != "\x80" {
				again := map[string]any{}
				require.NoError(t, read([]byte(out.String()), &again), out.String())
				assert.Equal(t, report["name"], again["name"], "A program should read what there is.")
			}
		}
	}
}

func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 claims": 0, "1 claim": 1, "2 claims": 2} {
		assert.Equal(t, want, Count(n, "claim"))
	}
	assert.Equal(t, "2 classes", Count(2, "class"))
}

func TestPrintManifests(t *testing.T) {
	const text = "# A comment.\n---\nkind: A\n---\n# Another.\nkind: B\n"
	var b strings.Builder
	require.NoError(t, Format("yaml").PrintManifests(&b, text))
	assert.Equal(t, text, b.String(), "We should keep comments.")
	b.Reset()
	require.NoError(t, Format("json").PrintManifests(&b, text))
	assert.JSONEq(t, `{"apiVersion": "v1", "kind": "List", "items": [{"kind": "A"}, {"kind": "B"}]}`, b.String(), "We should print what kubectl takes.")
}
