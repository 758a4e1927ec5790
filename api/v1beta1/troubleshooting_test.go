package v1beta1

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTroubleshooting finds each condition, each reason, each event and each alert in docs/troubleshooting.md.
func TestTroubleshooting(t *testing.T) {
	b, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	page := string(b)
	words := 0
	for _, c := range constants(t, "names.go") {
		if regexp.MustCompile(`^(Condition|Reason|Event)[A-Z]`).MatchString(c.identifier) && c.identifier != "EventController" {
			words++
			assert.Regexp(t, "(?m)^\\|[^|]*`"+c.value+"`", page, "We should say what %s means.", c.identifier)
		}
	}
	assert.Greater(t, words, 40, "We should find them.")

	rules, err := os.ReadFile("../../deploy/components/monitoring/prometheusrule.yaml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	assert.Greater(t, len(alerts), 10, "We should find them.")
	for _, alert := range alerts {
		assert.Contains(t, page, "\n### "+string(alert[1])+"\n", "We should say what to do about %s.", alert[1])
		assert.Contains(t, string(rules), "/docs/troubleshooting.md#"+strings.ToLower(string(alert[1]))+"\n", "We should link %s to that.", alert[1])
	}
}

// TestTroubleshootingMessages finds the messages on the page in the program, or in what its tests want it to say.
func TestTroubleshootingMessages(t *testing.T) {
	b, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	_, tables, _ := strings.Cut(string(b), "\n## Messages to authors of claims\n")
	tables, _, _ = strings.Cut(tables, "\n## Conditions\n")
	said := source(t, "../../cmd", "../../controller", "../../selector", "../../webhook")
	parts := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(tables, -1) {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			for part := range strings.SplitSeq(message[1], "…") {
				if part = strings.Trim(part, " ,;:"); strings.Contains(part, " ") {
					parts++
					assert.Contains(t, said, part, "We should print what %q is about.", message[1])
				}
			}
		}
	}
	assert.Greater(t, parts, 30, "We should find them.")
}

// source of the program and of its tests in some folders, each text in one piece.
func source(t *testing.T, folders ...string) string {
	t.Helper()
	var text strings.Builder
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".yaml" {
				return err
			}
			b, err := os.ReadFile(path) //nolint:gosec // It is ours.
			text.Write(b)
			return err
		}))
	}
	return regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(text.String(), "")
}
