package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	presetTableBegin = "<!-- presets, from their test: cd e2e && CGO_ENABLED=0 go test -run 'TestPresets$' -update -->\n"
	presetTableEnd   = "<!-- end of presets -->\n"
)

// presetColumns are the checks in the order of the table.
var presetColumns = []presetCheck{
	checkSelector, checkDefault, checkExplicit, checkEmpty, checkSticky, checkGuard, checkExplain, checkApply, checkDiff,
}

// presetRow is what works for a ClaimKind.
type presetRow struct {
	preset, kind, version, reference, form string
	checks                                 map[presetCheck]string
}

// presetTable is the result of the test.
type presetTable struct{ rows []presetRow }

func (p *presetTable) add(row presetRow) { p.rows = append(p.rows, row) }

// lines of the table, one for each row.
func (p *presetTable) lines() []string {
	var lines []string
	for _, row := range p.rows {
		cells := []string{row.preset, row.kind, row.version, "`" + row.reference + "`", row.form}
		for _, c := range presetColumns {
			cells = append(cells, row.checks[c])
		}
		lines = append(lines, "| "+strings.Join(cells, " | ")+" |\n")
	}
	return lines
}

// compare the table with that of the documents, or write it there. A row is compared if its CRD came from the same source:
// on a machine without the folder, the CRD may be one of ours.
func (p *presetTable) compare(t *testing.T) {
	t.Helper()
	const page = "../docs/register-kinds.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), presetTableBegin)
	require.True(t, found)
	present, after, found := strings.Cut(rest, presetTableEnd)
	require.True(t, found)
	lines := p.lines()
	if *update {
		var head strings.Builder
		head.WriteString("| preset | claim | version of its CRD | reference | form |")
		for _, c := range presetColumns {
			fmt.Fprintf(&head, " %s |", c)
		}
		head.WriteString("\n" + strings.Repeat("|---", len(presetColumns)+5) + "|\n")
		table := before + presetTableBegin + head.String() + strings.Join(lines, "") + presetTableEnd + after
		require.NoError(t, os.WriteFile(page, []byte(table), 0o644)) //nolint:gosec // A document.
		return
	}
	shown := slices.Collect(strings.Lines(present))
	require.Len(t, shown, len(lines)+2, "We should have a row for each ClaimKind in the documents: go test -run 'TestPresets$' -update")
	for n, line := range lines {
		if sourceOf(shown[n+2]) == sourceOf(line) {
			assert.Equal(t, shown[n+2], line, "We should have what works in the documents: go test -run 'TestPresets$' -update")
		}
	}
}

// sourceOf the CRD of a row: a module, a commit, ourselves or Kubernetes.
func sourceOf(row string) string {
	cells := strings.Split(row, " | ")
	if len(cells) < 3 {
		return ""
	}
	version := cells[2]
	if strings.HasPrefix(version, "v") {
		return "module"
	}
	first, _, _ := strings.Cut(version, " ")
	return first
}
