package truncate

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, text, want string
		most               int
	}{
		"Short":       {"We should leave a short text as it is.", "abcdef", "abcdef", 6},
		"Long":        {"We should say that there is more.", "abcdefg", "abc...", 6},
		"Letter":      {"We should not cut a letter.", "abéddde", "ab...", 6},
		"WholeLetter": {"We should keep a letter that fits.", "aéddddd", "aé...", 6},
		"NoText":      {"We should shorten what is no text.", "\x80\x80\x80\x80\x80\x80\x80", "???...", 6},
		"Partly":      {"We should say what is valid.", "a\x80b", "a?b", 6},
		"Escape":      {"We should send nothing to a terminal but what it shows.", "a\x1b[2J\a\u009b1mb", `a\x1b[2J\a\u009b1mb`, 100},
		"Lines":       {"We should begin no line.", "a\r\n::error::b\u2028c", `a\r\n::error::b\u2028c`, 100},
		"Direction":   {"We should not turn what follows around.", "a\u202eb\u2066c\u2069", `a\u202eb\u2066c\u2069`, 100},
		"NoWidth":     {"We should show what has no width.", "a\u200bb\ufeff\u00adc", `a\u200bb\ufeff\u00adc`, 100},
		"Escaped":     {"We should not cut what is escaped.", "abc\x1bd", "abc...", 6},
		"Letters":     {"We should leave letters of all languages alone.", "žluťoučký 馬 مرحبا 🐎", "žluťoučký 馬 مرحبا 🐎", 100},
		"Backslash":   {"We should escape once.", `a\x1b`, `a\x1b`, 6},
		"Nothing":     {"We should say that there is something.", "abcdef", "...", 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := String(tc.text, tc.most)
			assert.Equal(t, tc.want, got, tc.reason)
			assert.LessOrEqual(t, len(got), tc.most, tc.reason)
		})
	}
}

func TestError(t *testing.T) {
	long := strings.Repeat("ä=b,", 500_000)
	asked := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://10.0.0.1/apis/example.org/v1/golds?labelSelector=" + long, Err: err}
	}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   string // as it begins
	}{
		"Short": {reason: "We should leave an error as it is that is short enough.", err: io.ErrUnexpectedEOF, want: "unexpected EOF"},
		"URL":   {reason: "We should say the cause alone.", err: asked(io.ErrUnexpectedEOF), want: "unexpected EOF"},
		"Within": {
			reason: "We should keep what was added to it.",
			err:    fmt.Errorf("cannot list: %w", asked(io.ErrUnexpectedEOF)),
			want:   "cannot list: unexpected EOF",
		},
		"Again": {reason: "We should shorten once.", err: Error(asked(io.ErrUnexpectedEOF)), want: "unexpected EOF"},
		"Twice": {
			reason: "We should leave out each URL, such as that of a redirection.",
			err:    asked(fmt.Errorf("moved: %w", asked(io.ErrUnexpectedEOF))),
			want:   "moved: unexpected EOF",
		},
		"Several": {
			reason: "We should leave out the URLs of all errors.",
			err:    fmt.Errorf("cannot list: %w", errors.Join(asked(io.EOF), asked(io.ErrUnexpectedEOF))),
			want:   `cannot list: EOF\nunexpected EOF`,
		},
		"Long": {
			reason: "We should cut off what an API server says of a selector, between two letters.",
			err:    apierrors.NewBadRequest("x" + long),
			want:   "xä=b,ä=b,",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Error(tc.err)
			require.ErrorIs(t, got, tc.err, "We should keep the error, for those who look for its kind.")
			assert.LessOrEqual(t, len(got.Error()), v1beta1.MaxMessageBytes, tc.reason)
			assert.True(t, strings.HasPrefix(got.Error(), tc.want), "%s We got %q.", tc.reason, got)
			assert.NotContains(t, got.Error(), "10.0.0.1", "We should say no URL.")
		})
	}
	require.NoError(t, Error(nil), "We should make no error of none.")
	assert.True(t, apierrors.IsBadRequest(Error(apierrors.NewBadRequest(long))), "We should keep what the API server's answer was.")
	assert.NotErrorAs(t, Error(io.EOF), new(*shortened), "We should not wrap an error that is short enough.")
}
