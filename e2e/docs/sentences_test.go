package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// longest sentence, in words.
const longest = 30

// TestSentences prints those that are too long.
func TestSentences(t *testing.T) {
	t.Parallel()
	pages, _ := pages(t)
	for _, p := range pages {
		for _, s := range p.sentences() {
			if s.words > longest {
				t.Errorf("%s:%d: %d words: %s", p.path, s.line, s.words, s.text)
			}
		}
	}
}

// TestDialect looks for the phrases of dialect.tsv, which only we used, in all our files: in a Go test, in its comments.
func TestDialect(t *testing.T) {
	t.Parallel()
	dialect, err := os.ReadFile("dialect.tsv")
	require.NoError(t, err)
	var phrases []string
	for row := range strings.Lines(string(dialect)) {
		phrase, _, _ := strings.Cut(row, "\t")
		phrases = append(phrases, regexp.QuoteMeta(phrase))
	}
	ours := regexp.MustCompile(`(?i)\b(?:` + strings.Join(phrases, "|") + `)\b`)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "*.go", "*.md", "*.yaml", "*.html")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(out)) {
		content, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // It is one of ours.
		require.NoError(t, err)
		for number, line := range strings.Split(string(content), "\n") {
			if strings.HasSuffix(name, "_test.go") {
				_, line, _ = strings.Cut(line, "// ")
			}
			if phrase := ours.FindString(line); phrase != "" {
				t.Errorf("%s:%d: %q: write as dialect.tsv has it", name, number+1, phrase)
			}
		}
	}
}

// TestHelp reads what the command says of itself.
func TestHelp(t *testing.T) {
	t.Parallel()
	help := func(args ...string) string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		command := exec.CommandContext(ctx, "go", append(append([]string{"run", "./cmd/classbind"}, args...), "--help")...) //nolint:gosec // We choose the arguments.
		command.Dir = root
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	commands := [][]string{{}}
	for len(commands) > 0 {
		args := commands[0]
		commands = commands[1:]
		text := help(args...)
		prose := indented.ReplaceAllString(flags.ReplaceAllString(text, "\n"), "\n")
		for _, s := range parse("", []byte(prose)).sentences() {
			if s.words > longest {
				t.Errorf("classbind %s --help: %d words: %s", strings.Join(args, " "), s.words, s.text)
			}
		}
		for _, name := range subcommands(text) {
			commands = append(commands, append(append([]string{}, args...), name))
		}
	}
}

// subcommands that the help of a command lists.
func subcommands(help string) (names []string) {
	_, list, found := strings.Cut(help, " [command]\n")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	for line := range strings.Lines(list) { // A group begins with its title.
		if words := strings.Fields(line); strings.HasPrefix(line, "  ") && words[0] != "help" && words[0] != "completion" {
			names = append(names, words[0])
		}
	}
	return names
}

var (
	// flags of a help begin the text that each has.
	flags = regexp.MustCompile(`(?m)^ +(?:-\w, )?--[\w-]+(?: \S+)?  +`)
	// indented lines of a help are no prose.
	indented = regexp.MustCompile(`(?m)^  .*$`)
)

// sentence of a block that begins at a line.
type sentence struct {
	text        string
	line, words int
}

// space within code, which is one word.
const space = '\x00'

// sentences of prose, list items and the cells of tables.
func (p page) sentences() (sentences []sentence) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.(type) {
		case *ast.Paragraph, *ast.TextBlock, *ast.Heading, *extast.TableCell:
			for part := range strings.SplitSeq(p.prose(n), lineBreak) {
				sentences = append(sentences, split(p.line(offset(n)), strings.Fields(part))...)
			}
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return sentences
}

// lineBreak is <br>, which ends a sentence.
const lineBreak = "\x01"

// prose of a block.
func (p page) prose(n ast.Node) string {
	var text strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan:
			text.WriteByte('`')
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				code := strings.Join(strings.Fields(string(c.(*ast.Text).Value(p.source))), string(space))
				text.WriteString(code)
			}
			text.WriteByte('`')
			return ast.WalkSkipChildren, nil
		case *ast.Image:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			text.Write(n.Value(p.source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				text.WriteByte(' ')
			}
		case *ast.String:
			text.Write(n.Value)
		case *ast.AutoLink:
			text.Write(n.Label(p.source))
		case *ast.RawHTML:
			if strings.HasPrefix(string(n.Segments.Value(p.source)), "<br") {
				text.WriteString(lineBreak)
			}
		}
		return ast.WalkContinue, nil
	})
	return text.String()
}

// abbreviations end no sentence.
var abbreviations = map[string]bool{"e.g.": true, "i.e.": true, "cf.": true, "vs.": true, "approx.": true, "no.": true, "No.": true}

// split words of a block into sentences. What has neither a letter nor a digit is no word.
func split(line int, words []string) (sentences []sentence) {
	current := sentence{line: line}
	for i, w := range append(words, "") {
		if w == "" || i > 0 && ends(words[i-1], w) {
			if current.words > 0 {
				sentences = append(sentences, current)
			}
			current = sentence{line: line}
		}
		current.text = strings.TrimSpace(current.text + " " + strings.ReplaceAll(w, string(space), " "))
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) || strings.Contains(w, "`") {
			current.words++
		}
	}
	return sentences
}

// ends reports whether a word is the last of its sentence.
func ends(word, next string) bool {
	word = strings.TrimLeft(word, `("'“‘[`)
	word = strings.TrimRight(word, `)"'”’]*`)
	switch {
	case abbreviations[word], strings.HasSuffix(word, "..."):
		return false
	case word == "etc.":
		return strings.IndexFunc(next, unicode.IsUpper) == 0
	default:
		return strings.HasSuffix(word, ".") || strings.HasSuffix(word, "!") || strings.HasSuffix(word, "?")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text string
		want         []string
	}{
		"Prose": {
			reason: "We should end sentences at stops.",
			text:   "One two. Three\nfour! Five?",
			want:   []string{"1: 2: One two.", "1: 2: Three four!", "1: 1: Five?"},
		},
		"Code": {
			reason: "We should count code as one word, whatever is in it.",
			text:   "Run `make a. B c` or `d.` now.",
			want:   []string{"1: 5: Run `make a. B c` or `d.` now."},
		},
		"CodeAtTheEnd": {
			reason: "We should see the stop behind code.",
			text:   "Run `a`. (Or `b`.) Or **c.** Or d.",
			want:   []string{"1: 2: Run `a`.", "1: 2: (Or `b`.)", "1: 2: Or c.", "1: 2: Or d."},
		},
		"Abbreviations": {
			reason: "We should not end a sentence at an abbreviation or a version.",
			text:   "A, e.g. B of 1.31 etc. and v1.2.3 (i.e. C).",
			want:   []string{"1: 10: A, e.g. B of 1.31 etc. and v1.2.3 (i.e. C)."},
		},
		"List": {reason: "We should end a sentence with its item.", text: "A:\n\n- b\n- c\n  d", want: []string{"1: 1: A:", "3: 1: b", "4: 2: c d"}},
		"Table": {
			reason: "We should end a sentence with its cell.",
			text:   "| a b | c |\n|---|---|\n| d. e | f<br>g |",
			want:   []string{"1: 2: a b", "1: 1: c", "3: 1: d.", "3: 1: e", "3: 1: f", "3: 1: g"},
		},
		"NoProse": {reason: "We should read no blocks of code and no comments.", text: "<!-- a b. -->\n```sh\na b\n```\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range parse("page.md", []byte(tc.text)).sentences() {
				got = append(got, fmt.Sprintf("%d: %d: %s", s.line, s.words, s.text))
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}
