package controller

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1alpha1"
)

// shallowed is a configuration for clients of what authors wrote, who may nest it
// as deep as decoders go. The list or the event around it is deeper, and would be
// refused, with all others in it, again and again.
func shallowed(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return shallowTransport{next} })
	return config
}

// shallowTransport has each answer in JSON be shallow.
type shallowTransport struct{ next http.RoundTripper }

// RoundTrip is called by the client.
func (t shallowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil || !strings.HasPrefix(answer.Header.Get("Content-Type"), runtime.ContentTypeJSON) {
		return answer, err
	}
	answer.Body = &shallow{ReadCloser: answer.Body}
	answer.ContentLength = -1
	return answer, nil
}

// shallow JSON is what another reads, without what is in objects and arrays below
// v1alpha1.MaxDepth. It looks at brackets and texts alone.
type shallow struct {
	io.ReadCloser

	depth           int
	inText, escaped bool
}

// Read some of it.
func (s *shallow) Read(p []byte) (int, error) {
	for {
		n, err := s.ReadCloser.Read(p)
		if n = s.cut(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// cut out what is too deep, and say how much is left.
func (s *shallow) cut(p []byte) int {
	n := 0
	for _, c := range p {
		deep := s.depth > v1alpha1.MaxDepth
		switch {
		case s.escaped:
			s.escaped = false
		case s.inText:
			s.escaped, s.inText = c == '\\', c != '"'
		case c == '"':
			s.inText = true
		case c == '{', c == '[':
			s.depth++
		case c == '}', c == ']':
			s.depth--
			deep = s.depth > v1alpha1.MaxDepth // It closes what has become empty.
		}
		if !deep {
			p[n] = c
			n++
		}
	}
	return n
}
