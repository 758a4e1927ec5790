package ui

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
)

// maxRemembered limits the bytes of the answers that a memo has. Beyond, the API server is asked again.
const maxRemembered = 16 << 20

// memo has what the API server answered during one read of the cluster. Each package that looks at a cluster asks for the same discovery
// documents, registrations and lists of classes, and for some of them once for each kind.
type memo struct {
	mu      sync.Mutex        // mu guards what follows.
	answers map[string]answer // by URL and format; nil once the read is over
	size    int
}

type answer struct {
	head http.Response
	body []byte
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is called by the client.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// before another transport. What is in a namespace is not remembered: to see whether a Lease is renewed takes two looks.
func (m *memo) before(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		key := r.URL.String() + " " + r.Header.Get("Accept")
		m.mu.Lock()
		known, found := m.answers[key]
		m.mu.Unlock()
		if !found {
			fresh, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodGet || strings.Contains(r.URL.Path, "/namespaces/") {
				return fresh, err
			}
			known.body, err = io.ReadAll(fresh.Body)
			if _ = fresh.Body.Close(); err != nil {
				return nil, err
			}
			known.head = *fresh
			m.add(key, known)
		}
		copied := known.head
		copied.Body, copied.Request = io.NopCloser(bytes.NewReader(known.body)), r
		return &copied, nil
	})
}

func (m *memo) add(key string, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	final := a.head.StatusCode < http.StatusInternalServerError && a.head.StatusCode != http.StatusTooManyRequests
	if m.size+len(a.body) <= maxRemembered && final && m.answers != nil {
		m.answers[key] = a
		m.size += len(a.body)
	}
}

// end forgets all answers, and remembers no other.
func (m *memo) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = nil
}
