// Package docs tests the documents: their links and their sentences. The commands
// in them are for e2e to run. It is a module of its own for its Markdown parser.
package docs

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/yuin/goldmark/ast"
)

// TestLinks follows those within the repository. Of others, it reads the address.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, files := pages(t)
	for _, fault := range broken(pages, files) {
		t.Error(fault)
	}
}

// TestControls counts the answers to the OSPS Baseline.
func TestControls(t *testing.T) {
	t.Parallel()
	pages, _ := pages(t)
	answered := map[string]bool{}
	for _, p := range pages {
		if p.path != "docs/security.md" {
			continue
		}
		for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]{2}-\d\d[^|]*) \| (?:yes|no|host) \| .*\]\(`).FindAllSubmatch(p.source, -1) {
			for control := range strings.SplitSeq(string(row[1]), ", ") {
				assert.False(t, answered[control], "We should answer %s once.", control)
				answered[control] = true
			}
		}
	}
	assert.Len(t, answered, 43, "We should answer each control of levels 1 and 2, with a link.")
}

// broken links of pages, one a line, with where they are.
func broken(pages []page, files map[string]bool) (faults []string) {
	anchors := map[string]map[string]bool{}
	for _, p := range pages {
		anchors[p.path] = p.anchors()
	}
	for _, p := range pages {
		for _, l := range p.links() {
			if fault := fault(p.path, l.to, files, anchors); fault != "" {
				faults = append(faults, fmt.Sprintf("%s: %s: %s", l.at, l.to, fault))
			}
		}
	}
	return faults
}

type link struct{ at, to string }

var (
	// address in HTML.
	address = regexp.MustCompile(`\s(?:href|src)="([^"]*)"`)
	// undefined is what a link by reference looks like in the text, if the reference is not there.
	undefined = regexp.MustCompile(`\]\[[^\]]*\]`)
	code      = regexp.MustCompile("`[^`]*`")
)

func (p page) links() (links []link) {
	add := func(n ast.Node, to string) { links = append(links, link{p.at(n), to}) }
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var html []byte
		switch n := n.(type) {
		case *ast.Link:
			add(n, string(n.Destination))
		case *ast.Image:
			add(n, string(n.Destination))
		case *ast.AutoLink:
			if n.AutoLinkType == ast.AutoLinkURL {
				add(n, string(n.URL(p.source)))
			}
		case *ast.HTMLBlock:
			html = n.Lines().Value(p.source)
		case *ast.RawHTML:
			html = n.Segments.Value(p.source)
		case *ast.CodeBlock, *ast.FencedCodeBlock, *ast.CodeSpan:
			return ast.WalkSkipChildren, nil
		case *ast.Paragraph, *ast.TextBlock:
			for _, found := range undefined.FindAllString(code.ReplaceAllString(p.prose(n), ""), -1) {
				add(n, found)
			}
		}
		for _, found := range address.FindAllSubmatch(html, -1) {
			add(n, string(found[1]))
		}
		return ast.WalkContinue, nil
	})
	return links
}

// ours are pages of this repository on GitHub.
const ours = "https://github.com/classbind/classbind/"

// fault of a link from a page. It is empty if the link is right.
func fault(from, to string, files map[string]bool, anchors map[string]map[string]bool) string {
	if undefined.MatchString(to) {
		return "the reference is not defined"
	}
	u, err := url.Parse(to)
	if err != nil {
		return err.Error()
	}
	switch {
	case strings.HasPrefix(to, ours+"blob/main/"), strings.HasPrefix(to, ours+"tree/main/"):
		return "name the file by its relative path, which tests follow"
	case u.Scheme != "" && u.Scheme != "https":
		return "the address must begin with https://"
	case u.Scheme == "https" && (!strings.Contains(u.Host, ".") || strings.ContainsAny(to, " \t")):
		return "the address is malformed"
	case u.Scheme == "https":
		return ""
	case u.Host != "" || path.IsAbs(u.Path):
		return "the path must be relative to the page"
	}
	target := from
	if u.Path != "" {
		target = path.Join(path.Dir(from), u.Path)
	}
	if target != "." && !files[target] {
		return "there is no file " + target
	}
	if u.Fragment != "" && !anchors[target][u.Fragment] {
		return fmt.Sprintf("%s has no heading #%s", target, u.Fragment)
	}
	return ""
}

func TestBroken(t *testing.T) {
	t.Parallel()
	files := map[string]bool{"README.md": true, "docs": true, "docs/a.md": true, "LICENSE": true}
	for name, tc := range map[string]struct {
		reason, text string
		want         []string
	}{
		"NoFile": {
			reason: "We should report a file that is missing.",
			text:   "\n[a](docs/b.md)",
			want:   []string{"README.md:2: docs/b.md: there is no file docs/b.md"},
		},
		"Heading": {
			reason: "We should find headings as GitHub names them.",
			text:   "[a](docs/a.md#what-claims-get) [b](docs/a.md#twice-1) [c](#here--there)\n\n# Here & there",
		},
		"NoHeading": {
			reason: "We should report a heading that is missing.",
			text:   "[a](docs/a.md#twice-2)",
			want:   []string{"README.md:1: docs/a.md#twice-2: docs/a.md has no heading #twice-2"},
		},
		"NamedByHTML": {reason: "We should find what HTML names.", text: `<a id="x"></a> [a](#x)`},
		"HTML":        {reason: "We should read links in HTML.", text: `<img src="x.svg">`, want: []string{"README.md:1: x.svg: there is no file x.svg"}},
		"Reference": {
			reason: "We should report a reference without a definition.",
			text:   "[a][b]",
			want:   []string{"README.md:1: ][b]: the reference is not defined"},
		},
		"Code": {reason: "We should not read code.", text: "`[a](b.md)` `a[0][1]`\n```\n[a](b.md)\n```"},
		"HTTP": {
			reason: "We should report an address that is not encrypted.",
			text:   "[a](http://example.com)",
			want:   []string{"README.md:1: http://example.com: the address must begin with https://"},
		},
		"NoHost": {
			reason: "We should report an address without a host.",
			text:   "[a](https:///a)",
			want:   []string{"README.md:1: https:///a: the address is malformed"},
		},
		"Ours": {
			reason: "We should report our own files on GitHub.",
			text:   "[a](https://github.com/classbind/classbind/blob/main/LICENSE)",
			want:   []string{"README.md:1: https://github.com/classbind/classbind/blob/main/LICENSE: name the file by its relative path, which tests follow"},
		},
		"Absolute": {
			reason: "We should report a path from the root.",
			text:   "[a](/LICENSE)",
			want:   []string{"README.md:1: /LICENSE: the path must be relative to the page"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := parse("docs/a.md", []byte("# What `claims` get?\n## Twice\n## Twice\n"))
			assert.Equal(t, tc.want, broken([]page{parse("README.md", []byte(tc.text)), other}, files), tc.reason)
		})
	}
}
