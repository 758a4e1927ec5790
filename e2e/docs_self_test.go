package e2e

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsSession runs a page that has a little of all.
func TestDocsSession(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It needs a control plane of its own.")
	}
	const path = "testdata/docs/session.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	p, err := readPage(path, string(text))
	require.NoError(t, err)
	require.NotEmpty(t, p.blocks)
	p.run(t, "")
}

// TestDocsFaults proves that a page that is wrong fails.
func TestDocsFaults(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It needs a copy of the repository.")
	}
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
		"Other":       {"We should compare what is printed, and go on.", docStep{command: "printf 'a\\nb\\nc\\n'\n", compared: true, want: "a\nx\nc\n"}, "$ printf 'a\\nb\\nc\\n'\n  a\n- x\n+ b\n  c\n", false},
		"Error":       {"We should compare standard error, too.", docStep{command: "echo a >&2\n", compared: true, want: "\n"}, "- \n+ a\n", false},
		"Works":       {"We should see that nothing fails.", docStep{command: "true\n", fails: true}, "the last command does not fail", true},
		"FailsEarly":  {"We should have the last command alone fail.", docStep{command: "false\nfalse\n", fails: true}, "a command before the last fails", true},
		"NotTheLast":  {"We should have the last command fail.", docStep{command: "false\ntrue\n", fails: true}, "the last command does not fail", true},
		"NotCalled":   {"We should have a stub called.", docStep{command: "true\n", stubs: []string{"docker"}}, "the command does not call docker", false},
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
		"UnknownComment":  {reason: "We should report an unknown comment.", text: "<!-- test: skip -->\n" + block("sh", ""), err: `p.md:1: "skip" is unknown: it must be world=, stub=, fails, pods, make or the name of a test`},
		"UnknownStub":     {reason: "We should not replace what a test can run.", text: "<!-- test: stub=kubectl -->\n" + block("sh", ""), err: `p.md:1: "kubectl" may not be replaced: a test runs what it can`},
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
