package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

// started serves reviews at /bind, on at most maxConnections.
func started(t *testing.T, maxConnections int, http2 bool, review Reviewer) (address string) {
	t.Helper()
	stand := httptest.NewTLSServer(nil) // for its certificate
	certificates := stand.TLS.Certificates
	stand.Close()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(ServerOptions{
		Address: tcp.Addr().String(), HTTP2: http2, MaxConnections: maxConnections,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.Certificates = certificates }},
	})
	s.mux.Handle(BindPattern, &Handler{Review: review.Unnamed(), BodyBudget: semaphore.NewWeighted(v1beta1.MaxReviewBytesInFlight)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, tcp) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return tcp.Addr().String()
}

var insecure = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // It is a test's.

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := (&tls.Dialer{Config: insecure}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// review is sent on a connection of its own.
func review(t *testing.T, address string) {
	t.Helper()
	c := dial(t, address)
	ask1(t, c)
	require.NoError(t, c.Close())
}

// ask1 sends a review and reads its answer.
func ask1(t *testing.T, c net.Conn) {
	t.Helper()
	status, err := exchange(c)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, "We should answer.")
}

func exchange(c net.Conn) (status int, err error) {
	if _, err := fmt.Fprintf(c, "POST /bind/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(goodReview), goodReview); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// A client that holds all connections, in whatever way, stops nobody else.
func TestServerServesBesideHostileConnections(t *testing.T) {
	const most = 4
	for name, tc := range map[string]struct{ reason, sends string }{
		"Idle":       {"We should close a connection on which nothing comes, for one that asks.", ""},
		"SlowHeader": {"We should close a connection whose header does not come.", "POST /bind/a HTTP/1.1\r\nHost: a\r\n"},
		"SlowBody":   {"We should close a connection whose body does not come.", "POST /bind/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"},
	} {
		t.Run(name, func(t *testing.T) {
			address := started(t, most, false, admit)
			known := dial(t, address)
			ask1(t, known)
			for range 5 {
				for range 2 * most {
					c := dial(t, address)
					_, err := io.WriteString(c, tc.sends)
					require.NoError(t, err)
				}
				review(t, address)
			}
			ask1(t, known) // It has had a review, so it is not closed for those without one.
		})
	}
}

// Even if all connections are held and have had a review, the next has time for its own.
func TestServerServesBesideHostileReviews(t *testing.T) {
	const most = 8
	address := started(t, most, false, admit)
	hostile := func() { ask1(t, dial(t, address)) }
	for range most {
		hostile()
	}
	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	for range 2 * most {
		hostile()
	}
	ask1(t, tls.Client(slow, insecure))
	assert.NoError(t, slow.Close())
}

// One connection of HTTP/2 has few reviews at once.
func TestServerLimitsStreams(t *testing.T) {
	const many = 2 * v1beta1.MaxStreams
	var mu sync.Mutex
	at, most := map[any]int{}, 0 // reviews, by connection
	begun, finish := make(chan struct{}, many), make(chan struct{})
	address := started(t, 100, true, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		mu.Lock()
		at[ctx.Value(connectionKey{})]++
		most = max(most, at[ctx.Value(connectionKey{})])
		mu.Unlock()
		begun <- struct{}{}
		<-finish
		return admit(ctx, r)
	})
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: insecure.Clone(), Protocols: protocols}
	defer transport.CloseIdleConnections()
	answered := make(chan error, many)
	for range many {
		go func() {
			answer, err := (&http.Client{Transport: transport}).Post("https://"+address+v1beta1.BindPath+claimKindName, "application/json", strings.NewReader(goodReview)) //nolint:noctx // It ends with the server.
			if err == nil {
				err = answer.Body.Close()
			}
			answered <- err
		}()
	}
	for range many {
		<-begun
	}
	close(finish)
	for range many {
		require.NoError(t, <-answered, "We should answer on further connections.")
	}
	assert.LessOrEqual(t, most, v1beta1.MaxStreams, "We should take no more at once on one connection.")
	assert.Greater(t, most, 1, "We should take several at once.")
}

// A review that is being answered is not given up for others.
func TestServerKeepsWhatItAnswers(t *testing.T) {
	const most = 2
	begun, finish := make(chan struct{}, most), make(chan struct{})
	address := started(t, most, false, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		begun <- struct{}{}
		<-finish
		return admit(ctx, r)
	})
	answered := make(chan error)
	for range most {
		c := dial(t, address)
		go func() {
			status, err := exchange(c)
			if status != http.StatusOK {
				err = errors.Join(err, fmt.Errorf("status %d", status))
			}
			answered <- err
		}()
	}
	for range most {
		<-begun
	}
	waiting, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	close(finish)
	for range most {
		require.NoError(t, <-answered, "We should answer what has begun.")
	}
	assert.NoError(t, tls.Client(waiting, insecure).HandshakeContext(t.Context()), "We should take the next as soon as one is answered.")
	assert.NoError(t, waiting.Close())
}

func TestServerSpeaks(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		http2  bool
		offer  []string
		want   string
	}{
		"HTTP1":     {"We should speak HTTP/1.1 alone.", false, []string{"h2", "http/1.1"}, "http/1.1"},
		"HTTP2":     {"We should speak HTTP/2 where it is turned on.", true, []string{"h2"}, "h2"},
		"Preferred": {"We should prefer HTTP/1.1 even then.", true, []string{"h2", "http/1.1"}, "http/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			config := insecure.Clone()
			config.NextProtos = tc.offer
			c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", started(t, 10, tc.http2, admit))
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, c.(*tls.Conn).ConnectionState().NegotiatedProtocol, tc.reason)
			assert.NoError(t, c.Close())
		})
	}
}

func TestServerLimits(t *testing.T) {
	s := NewServer(ServerOptions{}).newHTTPServer()
	assert.Greater(t, s.IdleTimeout, 90*time.Second, "We should not close a connection that the API server is about to use.")
	assert.Greater(t, s.ReadHeaderTimeout, 90*time.Second, "We should not close one that it has not used yet either.")
	assert.Greater(t, s.WriteTimeout, 2*deadline, "We should have time to read a review, and to answer it.")
	assert.Zero(t, s.ReadTimeout, "We should not count the time before a review is sent.")

	address := started(t, 10, false, admit)
	c := dial(t, address)
	_, err := io.WriteString(c, "POST /bind/a HTTP/1.1\r\nHost: a\r\nA: "+strings.Repeat("a", 32<<10)+"\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode, "We should limit the header.")
}

func TestConnectionsMakeRoom(t *testing.T) {
	const (
		unreviewed = 'u'
		answering  = 'a'
	)
	for name, tc := range map[string]struct {
		reason string
		open   string // the one idle the longest first
		closed int    // its index; -1, none
	}{
		"ManyUnreviewed": {"We should close the oldest unreviewed one, where these hold more than a quarter.", "rruurrur", 2},
		"FewUnreviewed":  {"We should leave a new connection the time for a review.", "urrrrrru", 1},
		"AllReviewed":    {"We should close the one that has been idle the longest.", "rrrrrrrr", 0},
		"Answering":      {"We should close none that is being answered.", "aaaraaru", 3},
		"NoneReviewed":   {"We should close an unreviewed one where all others are being answered.", "aaaaaaua", 6},
		"AllAnswering":   {"We should close none where all are being answered.", "aaaaaaaa", -1},
		"OnlyUnreviewed": {"We should close the oldest.", "uuuuuuuu", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newConnections(nil, len(tc.open))
			closed := map[*connection]int{nil: -1}
			for i, state := range tc.open {
				c := &connection{listener: l}
				c.idleSince.Store(int64(i))
				c.reviewed.Store(state != unreviewed)
				c.answering.Store(state == answering)
				l.open[c] = struct{}{}
				closed[c] = i
			}
			assert.Equal(t, tc.closed, closed[l.leastUseful()], tc.reason)
		})
	}
}
