// Package brief keeps short what others sent where it ends in answers, conditions,
// events and logs.
package brief

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/classbind/classbind/api/v1alpha1"
)

const rest = "..."

// Text of so many bytes at most, and valid UTF-8. One that is longer ends in three
// dots, and is a string of its own, which does not keep the whole one in memory.
func Text(text string, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(text, "?")
	}
	end := max(most-len(rest), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.ToValidUTF8(text[:end], "?") + rest
}

// Error without the URLs that were asked for, which may have a selector of
// megabytes in them, and of MaxMessageBytes at most. It wraps the whole error.
// The caller says what was asked.
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

// urlErrors in the tree of an error, each before those within it.
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
