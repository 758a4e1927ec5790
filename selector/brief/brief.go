// Package brief shortens what others sent, for answers, conditions, events and logs.
package brief

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/classbind/classbind/api/v1alpha1"
)

const ellipsis = "..."

// Text returns valid UTF-8 of at most maxBytes. A longer text ends in three dots, and
// is a copy, which does not keep the whole text in memory.
func Text(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return strings.ToValidUTF8(text, "?")
	}
	end := max(maxBytes-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.ToValidUTF8(text[:end], "?") + ellipsis
}

// Error shortens an error to MaxMessageBytes, and removes the URLs of requests, which
// may contain a selector of megabytes. It wraps the whole error. The caller says what
// was asked.
func Error(err error) error {
	if err == nil {
		return nil
	}
	whole := err.Error()
	text := whole
	for _, asked := range urlErrors(err) {
		text = strings.ReplaceAll(text, asked.Error(), asked.Err.Error())
	}
	if text = Text(text, v1alpha1.MaxMessageBytes); text == whole {
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
