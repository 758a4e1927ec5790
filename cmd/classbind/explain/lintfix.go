package explain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fix replaces a part of one line. It keeps comments and formatting, which YAML that is written anew does not.
type Fix struct {
	// Line and Column, in characters, count from 1.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Old    string `json:"old"`
	New    string `json:"new"`
}

// fix the last finding, if its document matches a pattern in one place: the group of the pattern is replaced.
func (l *linter) fix(d *document, pattern, replacement string) {
	matches := regexp.MustCompile("(?m)"+pattern).FindAllSubmatchIndex(d.text, 2)
	if len(matches) != 1 {
		return
	}
	start, end := matches[0][2], matches[0][3]
	before := d.text[:start]
	l.findings[len(l.findings)-1].Fix = Fix{
		Line:   d.line + bytes.Count(before, []byte("\n")),
		Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1,
		Old:    string(d.text[start:end]), New: replacement,
	}
}

// fixMark fixes a mark such as "True", of which only the case is wrong.
func (l *linter) fixMark(d *document, err *field.Error) {
	_, key, _ := strings.Cut(strings.TrimSuffix(err.Field, "]"), "metadata.annotations[")
	value, _ := err.BadValue.(string)
	lower := strings.ToLower(value)
	if key != "" && (lower == "true" || lower == "false") {
		l.fix(d, regexp.QuoteMeta(key)+`["']?:\s*["'](`+regexp.QuoteMeta(value)+`)["']`, lower)
	}
}

// in returns a text with the fix, and false if the text is not the one that was checked.
func (f Fix) in(text []byte) ([]byte, bool) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if f.Line < 1 || f.Line > len(lines) {
		return nil, false
	}
	at, line := 0, lines[f.Line-1]
	for range f.Column - 1 {
		_, size := utf8.DecodeRune(line[at:])
		at += size
	}
	if !bytes.HasPrefix(line[at:], []byte(f.Old)) {
		return nil, false
	}
	lines[f.Line-1] = slices.Concat(line[:at], []byte(f.New), line[at+len(f.Old):])
	return bytes.Join(lines, nil), true
}

// fixAll writes the fixes of each file if they mend all that they are for, and break nothing else. It returns the findings
// that remain.
func fixAll(ctx context.Context, objects []document, findings []Finding, progress io.Writer) ([]Finding, error) {
	var files []string
	for _, f := range findings {
		if f.Fix != (Fix{}) && !slices.Contains(files, f.File) {
			files = append(files, f.File)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // The user names the files.
		if err != nil {
			return nil, fmt.Errorf("cannot fix: %w", err)
		}
		var fixes []Finding
		for _, f := range slices.Backward(findings) { // So a fix does not move another of its line.
			if f.File != file || f.Fix == (Fix{}) {
				continue
			}
			if fixed, ok := f.Fix.in(text); ok {
				text, fixes = fixed, append(fixes, f)
			}
		}
		after, err := parse(text, file)
		if err != nil {
			continue // It changed in the meantime.
		}
		fixed := withFile(objects, file, after)
		if fixed == nil {
			continue
		}
		remaining, err := lint(ctx, fixed)
		if err != nil {
			return nil, err
		}
		isNew := func(f Finding) bool { return !slices.Contains(findings, f) }
		remains := func(f Finding) bool { return slices.Contains(remaining, f) }
		if slices.ContainsFunc(remaining, isNew) || slices.ContainsFunc(fixes, remains) {
			continue
		}
		if err := replaceFile(file, text); err != nil {
			return nil, fmt.Errorf("cannot fix %q: %w", file, err)
		}
		objects, findings = fixed, remaining
		for _, f := range slices.Backward(fixes) {
			_, _ = fmt.Fprintf(progress, "%s:%d: fixed: %q is %q now (%s)\n", file, f.Fix.Line, f.Fix.Old, f.Fix.New, f.Rule)
		}
	}
	return findings, nil
}

// withFile returns copies of the objects, with those of one file replaced, nil if the file has not as many.
func withFile(objects []document, file string, with []document) []document {
	all := slices.Clone(objects)
	for i := range all {
		if all[i].file == file {
			if len(with) == 0 {
				return nil
			}
			all[i], with = with[0], with[1:]
		}
		all[i].Unstructured = *all[i].DeepCopy()
	}
	if len(with) > 0 {
		return nil
	}
	return all
}

// replaceFile replaces a file at once, and keeps its mode. A link stays a link.
func replaceFile(file string, text []byte) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".classbind-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // It is gone already where all went well.
	_, err = next.Write(text)
	if err == nil {
		err = next.Chmod(info.Mode())
	}
	if closeErr := next.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	return err
}
