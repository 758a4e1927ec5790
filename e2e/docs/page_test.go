package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// root of the repository, from here.
const root = "../.."

// page is a Markdown file of the repository.
type page struct {
	// path from the root.
	path   string
	source []byte
	tree   ast.Node
}

func parse(path string, source []byte) page {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	return page{path: path, source: source, tree: markdown.Parser().Parse(text.NewReader(source))}
}

// pages of the repository that git does not ignore, and the paths of all its files.
func pages(t *testing.T) (pages []page, files map[string]bool) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	files = map[string]bool{}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSuffix(path, "\n")
		source, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // It is a file of the repository.
		if err != nil {
			continue // It is deleted, or a link.
		}
		for p := path; p != "."; p = filepath.Dir(p) {
			files[p] = true
		}
		if filepath.Ext(path) == ".md" && !strings.Contains(path, "testdata/") {
			pages = append(pages, parse(path, source))
		}
	}
	require.NotEmpty(t, pages)
	return pages, files
}

// line of an offset into the source, from 1.
func (p page) line(offset int) int { return 1 + bytes.Count(p.source[:offset], []byte("\n")) }

// at says where a node is.
func (p page) at(n ast.Node) string { return fmt.Sprintf("%s:%d", p.path, p.line(offset(n))) }

// offset of the block that a node is in.
func offset(n ast.Node) int {
	for ; n != nil; n = n.Parent() {
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			return n.Lines().At(0).Start
		}
	}
	return 0
}

// id of an element that HTML names.
var id = regexp.MustCompile(`<a\s+(?:id|name)="([^"]+)"`)

// anchors as GitHub makes them of headings.
func (p page) anchors() map[string]bool {
	anchors := map[string]bool{}
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if heading, ok := n.(*ast.Heading); ok && entering {
			anchor, _ := heading.AttributeString("id")
			anchors[string(anchor.([]byte))] = true
		}
		return ast.WalkContinue, nil
	})
	for _, found := range id.FindAllSubmatch(p.source, -1) {
		anchors[string(found[1])] = true
	}
	return anchors
}
