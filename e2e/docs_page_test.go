package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type docPage struct {
	path   string
	blocks []docBlock
}

type docBlock struct {
	// at is where its first line is: path:line.
	at       string
	language string
	lines    []string
	// world starts a session with this block, unless it is empty. The first block of a page has one.
	world string
	// by is who runs it: a test, "make" or "pods". It is empty for the page's session.
	by    string
	fails bool
}

func (b *docBlock) isCommand() bool { return b.language == "sh" || b.language == "console" }

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
	docLanguages = []string{"sh", "console", "yaml", "json", "text", "mermaid", "promql", "go"}

	docFence   = regexp.MustCompile("^( *)(```+|~~~+) *([^` ]*)")
	docComment = regexp.MustCompile(`^ *<!-- *test: *(.*?) *-->\s*$`)
	docTest    = regexp.MustCompile(`^Test[A-Z]\w*$`)
)

// readPage finds the blocks of a page, and what its comments say of them.
func readPage(path, text string) (*docPage, error) {
	p := &docPage{path: path}
	var errs []error
	fault := func(n int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", path, n+1, fmt.Sprintf(format, args...)))
	}
	world, next, comments, pending := docsInstalled, docBlock{}, 0, -1
	lines := strings.Split(text, "\n")
	for n := 0; n < len(lines); n++ {
		line := lines[n]
		if found := docComment.FindStringSubmatch(line); found != nil {
			pageWorld, err := next.mark(found[1])
			if err != nil {
				fault(n, "%v", err)
			}
			if comments++; comments == 1 && pageWorld != "" && len(p.blocks) == 0 {
				world, next.world = pageWorld, ""
				continue
			}
			pending = n
			continue
		}
		if strings.Contains(line, "<!-- test") || strings.Contains(line, "<!--test") {
			fault(n, "the comment is malformed: it must be a line of its own, <!-- test: WHAT -->")
		}
		found := docFence.FindStringSubmatch(line)
		if found == nil {
			if strings.TrimSpace(line) != "" && pending >= 0 {
				fault(pending, "the comment stands above no block")
				next, pending = docBlock{}, -1
			}
			continue
		}
		b := next
		next, pending = docBlock{}, -1
		b.at, b.language = fmt.Sprintf("%s:%d", path, n+2), found[3]
		end := n + 1
		for ; end < len(lines) && strings.TrimSpace(lines[end]) != found[2]; end++ {
			b.lines = append(b.lines, strings.TrimPrefix(lines[end], found[1]))
		}
		if end == len(lines) {
			fault(n, "the block does not end")
		}
		if err := b.check(); err != nil {
			fault(n, "%v", err)
		}
		if len(p.blocks) == 0 && b.world == "" {
			b.world = world
		}
		p.blocks = append(p.blocks, b)
		n = end
	}
	if pending >= 0 {
		fault(pending, "the comment stands above no block")
	}
	return p, errors.Join(errs...)
}

// mark the block with what a comment says. It returns the world in it, which may be the page's.
func (b *docBlock) mark(comment string) (world string, err error) {
	name, value, _ := strings.Cut(comment, "=")
	switch {
	case name == "world":
		if !slices.Contains(docWorlds, value) {
			return "", fmt.Errorf("the world %q is unknown: it must be one of %s", value, strings.Join(docWorlds, ", "))
		}
		b.world = value
		return value, nil
	case comment == "fails":
		b.fails = true
	case b.by != "":
		return "", fmt.Errorf("the block is run by %s already", b.by)
	case comment == "pods", comment == "make", docTest.MatchString(comment):
		b.by = comment
	default:
		return "", fmt.Errorf("%q is unknown: it must be world=, fails, pods, make or the name of a test", comment)
	}
	return "", nil
}

func (b *docBlock) check() error {
	switch {
	case !slices.Contains(docLanguages, b.language):
		return fmt.Errorf("the language %q is unknown: it must be one of %s", b.language, strings.Join(docLanguages, ", "))
	case !b.isCommand() && b.fails:
		return errors.New("the comment is for a block of commands")
	case b.language == "console" && (len(b.lines) == 0 || !strings.HasPrefix(b.lines[0], "$ ")):
		return errors.New("a console block must begin with a command: $ COMMAND")
	}
	return nil
}

// docStep is a command of a page with what it is to print, or a file to write.
type docStep struct {
	at      string
	command string
	// compared says that the command prints want.
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

// docTrim drops what nobody sees: space at the ends of lines, and empty lines at the end.
func docTrim(text string) string {
	lines := strings.Split(text, "\n")
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " \t\r")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
