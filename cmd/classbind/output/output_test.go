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
