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

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/selector/truncate"
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
	if f.Line < 1 || f.Line > len(lines) { // There is no fix, or no such line.
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

// fixAll writes the fixes if they mend all that they are for, and break nothing else. If not all files are good together, it tries each
// alone. It returns the findings that remain.
func fixAll(ctx context.Context, objects []document, findings []Finding, progress io.Writer) ([]Finding, error) {
	var files []string
	for _, f := range findings {
		if f.Fix != (Fix{}) && !slices.Contains(files, f.File) {
			files = append(files, f.File)
		}
	}
	tries := slices.Collect(slices.Chunk(files, 1))
	if len(files) > 1 {
		tries = slices.Insert(tries, 0, files)
	}
	for _, try := range tries {
		fixed, err := newFixed(ctx, objects, findings, try)
		if err != nil {
			return nil, err
		}
		if fixed == nil {
			continue
		}
		for _, file := range try {
			if err := replaceFile(file, fixed.texts[file]); err != nil {
				return nil, fmt.Errorf("cannot fix %q: %w", file, err)
			}
		}
		objects, findings = fixed.objects, fixed.findings
		for _, f := range slices.Backward(fixed.fixes) {
			_, _ = fmt.Fprintf(progress, "%s:%d: fixed: %q is %q now (%s)\n",
				truncate.Printable(f.File), f.Fix.Line, f.Fix.Old, f.Fix.New, f.Rule)
		}
		if len(try) == len(files) {
			break
		}
	}
	return findings, nil
}

// fixed files: what they have, and what is found then.
type fixed struct {
	texts    map[string][]byte
	objects  []document
	findings []Finding
	fixes    []Finding
}

// newFixed applies the fixes of some files, and checks again. It is nil if a fix does not mend what it is for, or something else is found.
func newFixed(ctx context.Context, objects []document, findings []Finding, files []string) (*fixed, error) {
	r := &fixed{texts: map[string][]byte{}}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // The user names the files.
		if err != nil {
			return nil, fmt.Errorf("cannot fix: %w", err)
		}
		r.texts[file] = text
	}
	for _, f := range slices.Backward(findings) { // So a fix does not move another of its line.
		if text, ok := f.Fix.in(r.texts[f.File]); ok {
			r.texts[f.File], r.fixes = text, append(r.fixes, f)
		}
	}
	if r.objects = withTexts(objects, r.texts); r.objects == nil {
		return nil, nil
	}
	var err error
	if r.findings, err = lint(ctx, r.objects); err != nil {
		return nil, err
	}
	if !sets.New(findings...).HasAll(r.findings...) || sets.New(r.findings...).HasAny(r.fixes...) {
		return nil, nil
	}
	return r, nil
}

// withTexts returns copies of the objects, with other texts of some files. It is nil if a file has not as many now, or changed otherwise.
func withTexts(objects []document, texts map[string][]byte) []document {
	files := map[string][]document{}
	for file, text := range texts {
		parsed, err := parse(text, file)
		count := 0
		for _, d := range objects {
			if d.file == file {
				count++
			}
		}
		if err != nil || len(parsed) != count {
			return nil
		}
		files[file] = parsed
	}
	all := slices.Clone(objects)
	for i := range all {
		if with := files[all[i].file]; len(with) > 0 {
			files[all[i].file], all[i] = with[1:], with[0]
		}
		all[i].Unstructured = *all[i].DeepCopy()
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
