// Package truncate makes short and printable what users sent, for terminals, answers, conditions, events and logs.
package truncate

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
)

const ellipsis = "..."

// String returns what is printable as it is, and the rest escaped as in Go: line breaks, other control
// characters, and those without a width or that change the direction. It returns at most maxBytes. A
// longer text ends in three dots, and is a copy, which does not keep the whole text in memory.
func String(text string, maxBytes int) string {
	isEscaped := func(r rune) bool { return !strconv.IsPrint(r) }
	if len(text) <= maxBytes && utf8.ValidString(text) && strings.IndexFunc(text, isEscaped) < 0 {
		return text
	}
	var b []byte
	for end := 0; len(text) > 0; {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, '?')
		case strconv.IsPrint(r):
			b = append(b, text[:size]...)
		default:
			quoted := strconv.QuoteRune(r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		text = text[size:]
		switch {
		case len(b) > maxBytes:
			return string(b[:end]) + ellipsis
		case len(b) <= maxBytes-len(ellipsis):
			end = len(b)
		}
	}
	return string(b)
}

// Printable is the whole text, escaped like that. What is escaped stays as it is.
func Printable(text string) string { return String(text, math.MaxInt) }

// PrintableLines does the same with each line.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Error makes a Text of an error, of MaxMessageBytes, and removes the URLs of requests, which may contain a selector of megabytes. It wraps
// the whole error. The caller says what was asked.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, asked := range urlErrors(err) {
		text = strings.ReplaceAll(text, asked.Error(), asked.Err.Error())
	}
	if text = String(text, v1beta1.MaxMessageBytes); text == err.Error() {
		return err
	}
	return &shortened{text, err}
}

type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.err }

// urlErrors in the tree of an error, outer ones first.
func urlErrors(err error) (all []*url.Error) {
	if asked, ok := err.(*url.Error); ok { //nolint:errorlint // The tree is walked.
		all = append(all, asked)
	}
	switch e := err.(type) { //nolint:errorlint // The tree is walked.
	case interface{ Unwrap() error }:
		all = append(all, urlErrors(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, urlErrors(inner)...)
		}
	}
	return all
}

// Value is what an error shows of a value: a shortened text, and no object or list.
func Value(value any) any {
	switch v := value.(type) {
	case nil, bool, int64, float64:
		return v
	case string:
		return String(v, v1beta1.MaxShownBytes)
	}
	return field.OmitValueType{}
}
