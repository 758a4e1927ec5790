package cluster

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
)

// WithMaxDepth returns a configuration for clients that read what authors wrote. Authors may nest an object as deep as decoders go. The
// list or the event around it is deeper: decoders would refuse it, with all other objects in it, again and again.
func WithMaxDepth(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return shallowTransport{next} })
	return config
}

// shallowTransport cuts each JSON answer to a depth of v1beta1.MaxDepth.
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

// shallow reads JSON without what is in objects and arrays below v1beta1.MaxDepth. It looks only at brackets and strings.
type shallow struct {
	io.ReadCloser

	depth           int
	inText, escaped bool
}

// Read returns some of it.
func (s *shallow) Read(p []byte) (int, error) {
	for {
		n, err := s.ReadCloser.Read(p)
		if n = s.cut(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// cut removes what is too deep, and returns the length of the rest.
func (s *shallow) cut(p []byte) int {
	n := 0
	for _, c := range p {
		deep := s.depth > v1beta1.MaxDepth
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
			deep = s.depth > v1beta1.MaxDepth // It closes an emptied value.
		}
		if !deep {
			p[n] = c
			n++
		}
	}
	return n
}
