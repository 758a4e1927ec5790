package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// unreleased is the heading of what the next version has. A prerelease, such as v0.2.0-rc.1, has no section of its own.
const unreleased = "Unreleased"

// references are links at the end of the changelog: [0.1.0]: https://…
var references = regexp.MustCompile(`(?m)^\[[^\]]+\]: .*$`)

// notes are what CHANGELOG.md says of a version, in the form of Keep a Changelog: ## [0.1.0] - 2026-11-23.
func (p project) notes(version string) (string, error) {
	text, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("cannot determine what is new in %s: %w", version, err)
	}
	name := strings.TrimPrefix(version, "v")
	if strings.Contains(name, "-") {
		name = unreleased
	}
	_, section, found := strings.Cut(string(text), "\n## ["+name+"]")
	section, _, _ = strings.Cut(section, "\n## ")
	date, notes, _ := strings.Cut(section, "\n")
	notes = strings.TrimSpace(references.ReplaceAllString(notes, ""))
	switch {
	case found && name == unreleased:
		return notes, nil
	case !found:
		return "", fmt.Errorf("CHANGELOG.md has no section for %s: write one, ## [%s] - YYYY-MM-DD", version, name)
	case date == "":
		return "", fmt.Errorf("CHANGELOG.md has no date for %s: write it as ## [%s] - YYYY-MM-DD", version, name)
	case notes == "":
		return "", fmt.Errorf("CHANGELOG.md says nothing of %s: write below ## [%s] what is new", version, name)
	}
	return notes, nil
}
