package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/e2e/release/published"
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
//   - text, json, mermaid, promql, go, python: not run.
//
// A comment above a block says otherwise:
//
//   - <!-- test: world=NAME -->: a new session begins at the next block. NAME is none (no cluster), empty (a control plane without
//     classbind), installed (the default), or crossplane (with deploy/samples/crossplane, as make run leaves it).
//   - <!-- test: fails -->: the last command must fail, and no other.
//   - <!-- test: make -->: all commands are make, and make knows their targets.
//   - <!-- test: pods -->: TestDocsInPods runs it, in a cluster with pods.
//   - <!-- test: TestName -->: that test runs it. It finds the block with documented.
//
// What depends on docs/published reads as before a release. In pods, it reads as after that of $VERSION, if that is set.
//
// docker run is classbind. All other commands of docker, and kind, do nothing. kubectl wait waits longer. The files of a release are served
// from dist; install.yaml is what deploy is. The CRDs of the Gateway API are those of a test. A folder of this repository at a ref is that
// of the copy. In pods, the image of a release is $IMAGE.
func TestDocs(t *testing.T) {
	t.Parallel()
	notInPods(t, "TestDocsInPods runs what needs pods.")
	for _, p := range docPages(t, published.None) {
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
	for _, p := range docPages(t, cmp.Or(os.Getenv("VERSION"), published.None)) {
		if !slices.ContainsFunc(p.blocks, func(b docBlock) bool { return b.by == "pods" }) {
			continue
		}
		t.Run(p.path, func(t *testing.T) {
			p.run(t, "pods")
			if p.path == "README.md" {
				deleteGateways(t)
			}
		})
	}
}

// deleteGateways deletes what README creates beside classbind, so that it is on no other page.
func deleteGateways(t *testing.T) {
	crds := []string{"delete", "crd", "--ignore-not-found"}
	for _, plural := range []string{"gateways", "gatewayclasses", "httproutes"} {
		crds = append(crds, plural+".gateway.networking.k8s.io")
	}
	for _, args := range [][]string{{"delete", "-k", filepath.Join(podDeploy, "kinds", "gateway-api"), "--ignore-not-found"}, crds} {
		_, _, err := podKubectl(t.Context(), nil, args...)
		assert.NoError(t, err)
	}
}

// TestPublished installs classbind from a clone, as the documents show it before there is a release. TestRelease does so from the release.
func TestPublished(t *testing.T) {
	t.Parallel()
	notInPods(t, "TestDocsInPods runs the same.")
	installs(t, published.None, "")
}

// installs runs what depends on docs/published, as it reads with that version, and with the files of the release in a folder. There are no
// pods to wait for: a replica runs beside the control plane.
func installs(t *testing.T, version, dist string) {
	for _, p := range docPages(t, version) {
		if !slices.Contains(published.Pages, p.path) {
			continue
		}
		p.dist = dist
		for n := range p.blocks {
			p.blocks[n].lines = slices.DeleteFunc(p.blocks[n].lines, func(line string) bool { return strings.Contains(line, " rollout status ") })
		}
		t.Run(p.path, func(t *testing.T) {
			t.Parallel()
			p.run(t, "pods")
		})
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
			if step.command == "" && step.file == "" {
				checkManifest(t, &step)
				continue
			}
			if session == nil {
				session = newDocSession(t, kind)
				session.dist = p.dist
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

// docPages as they read if that version is published.
func docPages(t *testing.T, version string) (pages []*docPage) {
	root, paths := docRoot(t)
	for _, path := range paths {
		text := readText(t, filepath.Join(root, path))
		if slices.Contains(published.Pages, path) {
			text = must(published.Page(text, version))(t, path)
		}
		if p := must(readPage(path, text))(t); len(p.blocks) > 0 {
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
	for _, p := range slices.Concat(docPages(t, published.None), docPages(t, releaseVersion)) {
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

type docPage struct {
	path   string
	blocks []docBlock
	// dist is the folder of a release that the session serves, instead of what the tree has.
	dist string
}

type docBlock struct {
	// at is where its first line is: path:line.
	at, language string
	lines        []string
	// world starts a session with this block, unless it is empty. The first block of a page has one.
	world string
	// by is who runs it: a test, "make" or "pods". It is empty for the page's session.
	by    string
	fails bool
}

func (b *docBlock) line(n int) string {
	path, first, _ := strings.Cut(b.at, ":")
	var line int
	_, _ = fmt.Sscan(first, &line)
	return fmt.Sprintf("%s:%d", path, line+n)
}

const (
	docsNone       = "none"       // No cluster.
	docsEmpty      = "empty"      // A control plane without deploy.
	docsInstalled  = "installed"  // With it, and with classbind beside it.
	docsCrossplane = "crossplane" // And with deploy/samples/crossplane, as make run leaves it.
)

var (
	docWorlds = []string{docsNone, docsEmpty, docsInstalled, docsCrossplane}
	// docLanguages are those of blocks. What is not run is not compared, so there are few.
	docLanguages = []string{"sh", "console", "yaml", "json", "text", "mermaid", "promql", "go", "python"}

	docFence   = regexp.MustCompile("^( *)(```+|~~~+) *([^` ]*)")
	docComment = regexp.MustCompile(`^ *<!-- *test: *(.*?) *-->\s*$`)
	docTest    = regexp.MustCompile(`^Test[A-Z]\w*$`)
)

// readPage finds the blocks of a page, and what its comments say of them.
func readPage(path, text string) (*docPage, error) {
	p, next, pending := &docPage{path: path}, docBlock{}, false
	lines := strings.Split(text, "\n")
	for n := 0; n < len(lines); n++ {
		fault := func(text string) error { return fmt.Errorf("%s:%d: %s", path, n+1, text) }
		line := lines[n]
		found := docFence.FindStringSubmatch(line)
		switch comment := docComment.FindStringSubmatch(line); {
		case comment != nil:
			if err := next.mark(comment[1]); err != nil {
				return nil, fault(err.Error())
			}
			pending = pending || !strings.HasPrefix(comment[1], "world=") // That of a page stands above text.
			continue
		case strings.Contains(line, "<!-- test"), strings.Contains(line, "<!--test"):
			return nil, fault("the comment is malformed: it must be a line of its own, <!-- test: WHAT -->")
		case found == nil && pending && strings.TrimSpace(line) != "":
			return nil, fault("the comment above stands above no block")
		case found == nil:
			continue
		}
		b := next
		next, pending = docBlock{}, false
		b.at, b.language = fmt.Sprintf("%s:%d", path, n+2), found[3]
		if len(p.blocks) == 0 {
			b.world = cmp.Or(b.world, docsInstalled)
		}
		for n++; n < len(lines) && strings.TrimSpace(lines[n]) != found[2]; n++ {
			b.lines = append(b.lines, strings.TrimPrefix(lines[n], found[1]))
		}
		if n == len(lines) {
			return nil, fmt.Errorf("%s: the block does not end", b.at)
		}
		if err := b.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", b.at, err)
		}
		p.blocks = append(p.blocks, b)
	}
	return p, nil
}

// mark the block with what a comment says.
func (b *docBlock) mark(comment string) error {
	world, isWorld := strings.CutPrefix(comment, "world=")
	switch {
	case isWorld && slices.Contains(docWorlds, world):
		b.world = world
	case comment == "fails":
		b.fails = true
	case b.by == "" && (comment == "pods" || comment == "make" || docTest.MatchString(comment)):
		b.by = comment
	default:
		return fmt.Errorf("%q must be world= and one of %s, fails, pods, make or the name of a test, and one of the last three alone", comment, strings.Join(
			docWorlds, ", ",
		))
	}
	return nil
}

func (b *docBlock) check() error {
	switch {
	case !slices.Contains(docLanguages, b.language):
		return fmt.Errorf("the language %q is unknown: it must be one of %s", b.language, strings.Join(docLanguages, ", "))
	case b.fails && b.language != "sh" && b.language != "console":
		return errors.New("the comment is for a block of commands")
	case b.language == "console" && (len(b.lines) == 0 || !strings.HasPrefix(b.lines[0], "$ ")):
		return errors.New("a console block must begin with a command: $ COMMAND")
	}
	return nil
}

// docStep is a command of a page with what it is to print, or a file to write.
type docStep struct {
	at, command string
	// compared reports whether the command prints want.
	compared bool
	want     string
	fails    bool
	// file to write, with content; or with no file, a manifest to check.
	file, content string
}

var docHereDoc = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)

func (b *docBlock) steps() (steps []docStep) {
	text := func(lines []string) string { return strings.Join(lines, "\n") + "\n" }
	switch b.language {
	case "sh":
		return []docStep{{at: b.at, command: text(b.lines), fails: b.fails}}
	case "console":
		for n := 0; n < len(b.lines); {
			s := docStep{at: b.line(n), compared: true}
			command := []string{strings.TrimPrefix(b.lines[n], "$ ")}
			until := docHereDoc.FindStringSubmatch(b.lines[n])
			for n++; n < len(b.lines) && (strings.HasSuffix(command[len(command)-1], `\`) ||
				until != nil && strings.TrimSpace(command[len(command)-1]) != until[1]); n++ {
				command = append(command, strings.TrimPrefix(b.lines[n], "> "))
				if until == nil {
					until = docHereDoc.FindStringSubmatch(b.lines[n])
				}
			}
			var want []string
			for ; n < len(b.lines) && !strings.HasPrefix(b.lines[n], "$ "); n++ {
				want = append(want, b.lines[n])
			}
			s.command, s.want = text(command), text(want)
			steps = append(steps, s)
		}
		steps[len(steps)-1].fails = b.fails
		return steps
	case "yaml":
		s := docStep{at: b.at, content: text(b.lines)}
		if len(b.lines) > 0 {
			if path, ok := strings.CutPrefix(b.lines[0], "# file: "); ok {
				s.file = strings.TrimSpace(path)
			}
		}
		return []docStep{s}
	default:
		return nil
	}
}

// docMatches reports whether an output is as shown: … is any text of a line, and a line of ... are any lines.
func docMatches(want, got string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(docTrim(want), "\n") {
		if line == "..." {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(docTrim(got) + "\n")
}

// docTrim drops what is invisible: space at the ends of lines, and empty lines at the end.
func docTrim(text string) string {
	lines := strings.Split(text, "\n")
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " \t\r")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
