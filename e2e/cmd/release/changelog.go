package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// heading of a version in the form of Keep a Changelog: ## [0.1.0] - 2026-11-23.
var heading = regexp.MustCompile(`^## \[([^\]]+)\]( - \d{4}-\d{2}-\d{2})?\s*$`)

// reference is a link at the end of the changelog: [0.1.0]: https://…
var reference = regexp.MustCompile(`^\[[^\]]+\]: `)

// unreleased is the heading of what the next version has. A prerelease, such as v0.2.0-rc.1, has no section of its own.
const unreleased = "Unreleased"

// notes are what CHANGELOG.md says of a version.
func (p project) notes(version string) (string, error) {
	text, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("cannot tell what is new in %s: %w", version, err)
	}
	return notesIn(string(text), version)
}

func notesIn(changelog, version string) (string, error) {
	name := strings.TrimPrefix(version, "v")
	if strings.Contains(name, "-") {
		name = unreleased
	}
	found, dated, notes := false, false, ""
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "## ") {
			if found {
				break
			}
			m := heading.FindStringSubmatch(line)
			found = m != nil && m[1] == name
			dated = found && m[2] != ""
			continue
		}
		if found && !reference.MatchString(line) {
			notes += line
		}
	}
	notes = strings.TrimSpace(notes)
	switch {
	case found && name == unreleased:
		return notes, nil
	case !found:
		return "", fmt.Errorf("CHANGELOG.md has no section for %s: write one, ## [%s] - YYYY-MM-DD", version, name)
	case !dated:
		return "", fmt.Errorf("CHANGELOG.md has no date for %s: write it as ## [%s] - YYYY-MM-DD", version, name)
	case notes == "":
		return "", fmt.Errorf("CHANGELOG.md says nothing of %s: write below ## [%s] what is new", version, name)
	}
	return notes, nil
}
