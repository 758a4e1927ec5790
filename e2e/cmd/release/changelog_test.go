package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNotes(t *testing.T) {
	const changelog = `# Changelog

## [Unreleased]

- next

## [0.2.0] - 2027-01-31

- second

### Fixed

- mended

## [0.1.1]

- undated

## [0.1.0] - 2026-11-23

[0.1.0]: https://example.org
`
	for name, tc := range map[string]struct{ reason, changelog, version, want, err string }{
		"Release":    {"We should print the section, and no more.", changelog, "v0.2.0", "- second\n\n### Fixed\n\n- mended", ""},
		"Prerelease": {"We should say what the next version has.", changelog, "v0.3.0-rc.1", "- next", ""},
		"Undated":    {"We should want a date.", changelog, "v0.1.1", "", "CHANGELOG.md has no date for v0.1.1: write it as ## [0.1.1] - YYYY-MM-DD"},
		"Empty":      {"We should want some notes, and take no link for them.", changelog, "v0.1.0", "", "CHANGELOG.md says nothing of v0.1.0"},
		"Absent":     {"We should want a section.", changelog, "v1.0.0", "", "CHANGELOG.md has no section for v1.0.0: write one, ## [1.0.0] - YYYY-MM-DD"},
		"NotNext":    {"We should want a section of what is next.", "# Changelog\n", "v0.1.0-rc.1", "", "CHANGELOG.md has no section for v0.1.0-rc.1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := notesIn(tc.changelog, tc.version)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}
