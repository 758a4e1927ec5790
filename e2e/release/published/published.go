// Package published writes into the documents how to get classbind: from a clone, or, once docs/published names a release, from its files.
package published

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// None is what docs/published says before the first release.
const None = "none"

// Pages have parts that depend on what is published. They are paths from the root of the repository.
var Pages = []string{"README.md", "docs/install.md"}

//go:embed parts.tmpl
var source string

var (
	parts = template.Must(template.New("").Parse(source))

	// begins and ends are the lines around a part. The first names a template.
	begins = regexp.MustCompile(`(?m)^<!-- published: ([\w-]+) -->\n`)
	ends   = "<!-- /published -->\n"
)

// Version that docs/published names: that of a release, such as v0.1.0, or None.
func Version(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "published")) //nolint:gosec // The callers name the repository.
	return strings.TrimSpace(string(text)), err
}

// Page is the text of a page with its parts as they read if that version is published. It fails for a page without a part.
func Page(text, version string) (string, error) {
	var page strings.Builder
	found := begins.FindStringSubmatchIndex(text)
	if found == nil {
		return "", errors.New("the page has no line <!-- published: PART -->")
	}
	for ; found != nil; found = begins.FindStringSubmatchIndex(text) {
		name, rest := text[found[2]:found[3]], text[found[1]:]
		_, rest, ok := strings.Cut(rest, ends)
		if !ok {
			return "", fmt.Errorf("the part %q does not end: %s", name, ends)
		}
		page.WriteString(text[:found[1]])
		data := map[string]string{"Version": version, "Number": strings.TrimPrefix(version, "v")}
		if err := parts.ExecuteTemplate(&page, name, data); err != nil {
			return "", fmt.Errorf("cannot write the part %q: %w", name, err)
		}
		page.WriteString(ends)
		text = rest
	}
	page.WriteString(text)
	return page.String(), nil
}
