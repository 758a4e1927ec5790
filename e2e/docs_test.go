package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestDocs runs the blocks of commands in the documents, and compares what they print.
//
// The blocks of a page run from top to bottom in one session of bash, in a fresh copy of the repository, with kubectl
// and classbind on the PATH, and a control plane of its own. This is what blocks are, by the word after the fence:
//
//   - sh: commands, all of which must succeed.
//   - console: commands, each after "$ ", and what each prints. "…" is any text of a line, and a line of "..." any lines.
//   - yaml: a manifest. If its first line is "# file: PATH", it is written there. If not, the API server must accept
//     its objects of classbind.io in a dry run, and the rest must be YAML.
//   - text, json, mermaid, promql, go: not run.
//
// A comment above a block says otherwise:
//
//   - <!-- test: world=NAME -->: a new session begins here. As the first comment of a page, before any block, it is for
//     the page. NAME is none (no cluster), empty (a control plane without classbind), installed (the default), or
//     crossplane (with deploy/samples/crossplane, as make run leaves it).
//   - <!-- test: fails -->: the last command must fail, and no other.
//   - <!-- test: make -->: all commands are make, and make knows their targets.
//   - <!-- test: pods -->: TestDocsInPods runs it, in a cluster with pods.
//   - <!-- test: TestName -->: that test runs it. It finds the block with documented.
//
// docker does nothing. The files of a release are served from dist; install.yaml is what deploy is. A folder of this repository at a ref
// is that of the copy. In pods, the image of a release is $IMAGE.
func TestDocs(t *testing.T) {
	t.Parallel()
	notInPods(t, "TestDocsInPods runs what needs pods.")
	for _, p := range docPages(t) {
		t.Run(p.path, func(t *testing.T) {
			t.Parallel()
			p.run(t, "")
		})
	}
}

// TestDocsInPods runs the blocks for pods. It comes before the tests that share a world, and leaves none of it.
func TestDocsInPods(t *testing.T) {
	if !inPods() {
		t.Skip("It needs a cluster with pods: make e2e.")
	}
	for _, p := range docPages(t) {
		if !slices.ContainsFunc(p.blocks, func(b docBlock) bool { return b.by == "pods" }) {
			continue
		}
		t.Run(p.path, func(t *testing.T) { p.run(t, "pods") })
	}
}

// run the blocks of a page that are for one runner. In pods, there is one session a page.
func (p *docPage) run(t *testing.T, by string) {
	var session *docSession
	kind := docsNone
	for n := range p.blocks {
		b := &p.blocks[n]
		if b.world != "" {
			kind = b.world
			if by == "" {
				session = nil
			}
		}
		if b.by != by {
			continue
		}
		for _, step := range b.steps() {
			if session == nil {
				session = newDocSession(t, kind)
			}
			if step.command == "" && step.file == "" {
				session.checkManifest(t, &step)
				continue
			}
			if err := session.run(&step); err != nil {
				t.Error(err)
				if errors.Is(err, errDocEnd) {
					return
				}
			}
		}
	}
}

func docPages(t *testing.T) (pages []*docPage) {
	root, paths := docRoot(t)
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // It is a file of the repository.
		require.NoError(t, err)
		p, err := readPage(path, string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		if len(p.blocks) > 0 {
			pages = append(pages, p)
		}
	}
	return pages
}

// docRoot is the repository, with the paths of its documents.
func docRoot(t *testing.T) (root string, paths []string) {
	root = ".."
	if inPods() {
		root = filepath.Dir(podDeploy)
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "deploy/*/*.md", "deploy/*/*/*.md"} {
		found := must(filepath.Glob(filepath.Join(root, pattern)))(t)
		for _, path := range found {
			path = must(filepath.Rel(root, path))(t)
			paths = append(paths, path)
		}
	}
	require.Contains(t, paths, "README.md")
	return root, paths
}

// documented are the blocks of a page that name the test. It fails without any.
func documented(t *testing.T, path string) (blocks []docBlock) {
	root, _ := docRoot(t)
	text, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // It is a file of the repository.
	require.NoError(t, err)
	p := must(readPage(path, string(text)))(t)
	name, _, _ := strings.Cut(t.Name(), "/")
	for _, b := range p.blocks {
		if b.by == name {
			blocks = append(blocks, b)
		}
	}
	require.NotEmpty(t, blocks, "We should find a block for %s in %s.", name, path)
	return blocks
}

// docObjects of classbind.io in a YAML stream, each as YAML.
func docObjects(text string) (objects []string, err error) {
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var object any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("the block is no YAML: %w", err)
		}
		fields, _ := object.(map[string]any)
		if version, _ := fields["apiVersion"].(string); strings.HasPrefix(version, "classbind.io/") {
			objects = append(objects, document)
		}
	}
	return objects, nil
}

var docTestFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// TestDocsRunners proves that somebody runs each block of commands that TestDocs does not.
func TestDocsRunners(t *testing.T) {
	t.Parallel()
	notInPods(t, "It reads the source.")
	tests := docTests(t)
	for _, p := range docPages(t) {
		for n := range p.blocks {
			b := &p.blocks[n]
			switch {
			case b.by == "make":
				for _, line := range b.lines {
					dry := exec.CommandContext(t.Context(), "bash", "-c", line+" --dry-run") //nolint:gosec // It is in our documents.
					dry.Dir = ".."
					out, err := dry.CombinedOutput()
					require.NoError(t, err, "%s: %s: %s", b.at, line, out)
				}
			case strings.HasPrefix(b.by, "Test") && tests[b.by] == "":
				t.Errorf("%s: there is no test %s in e2e", b.at, b.by)
			case strings.HasPrefix(b.by, "Test") && !strings.Contains(tests[b.by], "documented("):
				t.Errorf("%s: %s does not read the block: its file has no call of documented", b.at, b.by)
			}
		}
	}
}

func docTests(t *testing.T) map[string]string {
	files := must(filepath.Glob("*_test.go"))(t)
	tests := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // It is ours.
		require.NoError(t, err)
		for _, found := range docTestFunc.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = string(text)
		}
	}
	return tests
}

func TestDocsSession(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs a control plane of its own.")
	const path = "testdata/docs/session.md"
	text := must(os.ReadFile(path))(t)
	p := must(readPage(path, string(text)))(t)
	require.NotEmpty(t, p.blocks)
	p.run(t, "")
}

func TestDocsFaults(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs a copy of the repository.")
	for name, tc := range map[string]struct {
		reason string
		step   docStep
		want   string
		end    bool
	}{
		"Fails":       {"We should end at a command that fails.", docStep{command: "false\ntrue\n"}, "the command fails", true},
		"Pipe":        {"We should see a command fail within a pipe.", docStep{command: "false | cat\n"}, "the command fails", true},
		"Unset":       {"We should see a variable that is not set.", docStep{command: "echo $nothing\n"}, "the command fails", true},
		"Late":        {"We should not wait for ever.", docStep{command: "sleep 60\n"}, "the command takes more than 2s", true},
		"Other":       {"We should compare what is printed, and go on.", docStep{command: "printf 'a\\nb\\nc\\n'\n", compared: true, want: "a\nx\nc\n"}, "a\nx\nc\n\nThe command prints:\na\nb\nc\n", false},
		"Error":       {"We should compare standard error, too.", docStep{command: "echo a >&2\n", compared: true, want: "\n"}, "The command prints:\na\n", false},
		"Works":       {"We should see that nothing fails.", docStep{command: "true\n", fails: true}, "the last command does not fail", true},
		"FailsEarly":  {"We should have the last command alone fail.", docStep{command: "false\nfalse\n", fails: true}, "a command before the last fails", true},
		"NotTheLast":  {"We should have the last command fail.", docStep{command: "false\ntrue\n", fails: true}, "the last command does not fail", true},
		"OutOfFolder": {"We should report a file that cannot be written.", docStep{file: "README.md/a.yaml", content: "a: b\n"}, "the command fails", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDocSession(t, docsNone)
			s.patience = patience
			if name == "Late" {
				s.patience = 2 * time.Second
			}
			err := s.run(&tc.step)
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.Equal(t, tc.end, errors.Is(err, errDocEnd), tc.reason)
		})
	}
}

// TestReadPageRefuses what nobody would run. TestDocsSession reads a page that is right.
func TestReadPageRefuses(t *testing.T) {
	t.Parallel()
	const fence = "```"
	block := func(language, text string) string { return fence + language + "\n" + text + fence + "\n" }
	for name, tc := range map[string]struct{ reason, text, err string }{
		"OpenFence":       {reason: "We should report a block that does not end.", text: "\n" + fence + "sh\ntrue\n", err: "p.md:2: the block does not end"},
		"UnknownWorld":    {reason: "We should report an unknown world.", text: "<!-- test: world=moon -->\n" + block("sh", ""), err: `p.md:1: the world "moon" is unknown: it must be one of none, empty, installed, crossplane`},
		"UnknownComment":  {reason: "We should report an unknown comment.", text: "<!-- test: skip -->\n" + block("sh", ""), err: `p.md:1: "skip" is unknown: it must be world=, fails, pods, make or the name of a test`},
		"UnknownLanguage": {reason: "We should report a block that nobody would run.", text: block("bash", ""), err: `p.md:1: the language "bash" is unknown`},
		"NoLanguage":      {reason: "We should have every block say what it is.", text: block("", ""), err: `p.md:1: the language "" is unknown`},
		"TwoRunners":      {reason: "We should have one runner a block.", text: "<!-- test: pods -->\n<!-- test: make -->\n" + block("sh", ""), err: "p.md:2: the block is run by pods already"},
		"NoBlock":         {reason: "We should report a comment above text.", text: "<!-- test: fails -->\nText.\n" + block("sh", ""), err: "p.md:1: the comment stands above no block"},
		"Malformed":       {reason: "We should report a comment within a line.", text: "A <!-- test: fails -->\n" + block("sh", ""), err: "p.md:1: the comment is malformed"},
		"Inapt":           {reason: "We should report a comment that says nothing of a block.", text: "<!-- test: fails -->\n" + block("yaml", ""), err: "p.md:2: the comment is for a block of commands"},
		"NoCommand":       {reason: "We should have output follow a command.", text: block("console", "a\n"), err: "p.md:1: a console block must begin with a command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readPage("p.md", tc.text)
			require.ErrorContains(t, err, tc.err, tc.reason)
		})
	}
}

func TestDocMatches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, want, got string
		matches           bool
	}{
		"Same":     {"We should not see space at the end.", "a\nb\n", "a  \nb\n\n", true},
		"Other":    {"We should see another line.", "a\n", "b\n", false},
		"More":     {"We should see a line that the page does not show.", "a\n", "a\nb\n", false},
		"Nothing":  {"We should have a command print nothing if the page shows nothing.", "\n", "a\n", false},
		"Silent":   {"We should accept nothing where nothing is shown.", "\n", "", true},
		"Within":   {"We should take … for any text of a line.", "a…c…\n", "a b c\n", true},
		"Lines":    {"We should take ... for any lines.", "a\n...\nd\n", "a\nb\nc\nd\n", true},
		"NoLines":  {"We should take ... for no line, too.", "...\na\n...\n", "a\n", true},
		"OneLine":  {"We should not take … for lines.", "a…\n", "a\nb\n", false},
		"Literal":  {"We should take all else as it is.", "a.c (d)*\n", "abc (d)*\n", false},
		"Indented": {"We should see space at the beginning.", "  a\n", " a\n", false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.matches, docMatches(tc.want, tc.got), tc.reason) })
	}
}
