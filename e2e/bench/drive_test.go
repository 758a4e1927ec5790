package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve HTTP/1.1 and HTTP/2, and return what speaks to it.
func serve(t *testing.T, handler http.HandlerFunc) (url string, config *tls.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.URL, &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}
}

func TestPost(t *testing.T) {
	connections := map[string]int{}
	url, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr]++
		assert.Equal(t, "HTTP/1.1", r.Proto, "We should speak HTTP/1.1, even if HTTP/2 is offered.")
		assert.Equal(t, uint16(tls.VersionTLS13), r.TLS.Version, "We should speak TLS 1.3.")
		assert.Equal(t, "/bind/a?timeout=3s", r.URL.String())
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.Equal(t, "gzip", r.Header.Get("Accept-Encoding"))
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.EqualValues(t, len(body), r.ContentLength)
		if string(body) == "bad" {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		_, _ = fmt.Fprintf(w, "%d %s", len(body), body)
	})
	c := newClient(url, config, 1)
	t.Cleanup(c.Close)
	for _, n := range []int{0, 1, 1600, 1 << 20} {
		text := strings.Repeat("x", n)
		got, err := c.Post(t.Context(), "/bind/a?timeout=3s", []byte(text))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d %s", n, text), string(got))
	}
	_, err := c.Post(t.Context(), "/bind/a?timeout=3s", []byte("bad"))
	require.ErrorContains(t, err, "status 418 I'm a teapot: no")
	_, err = c.Post(t.Context(), "/bind/a?timeout=3s", []byte("good"))
	require.NoError(t, err, "We should go on after an answer that is none of ours.")
	assert.Len(t, connections, 1, "We should keep the connection.")

	_, err = newClient(url, &tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS13}, 1).Post(t.Context(), "/", nil)
	require.ErrorContains(t, err, "certificate", "We should trust no server that we are not told to.")
}

const boundAnswer = `{"response":{"allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`

// driven is a target that answers the same to all.
func driven(t *testing.T, handler http.HandlerFunc) *target {
	t.Helper()
	url, config := serve(t, handler)
	return &target{
		url: url, path: bindPath, tls: config, process: &process{os.Getpid()},
		inFlight: 3, reviews: []poolClaim{{"", []byte("a")}, {"", []byte("b")}, {"", []byte("c")}, {"", []byte("d")}},
	}
}

func TestDrive(t *testing.T) {
	var mu sync.Mutex
	seen, connections := map[string]int{}, map[string]int{}
	target := driven(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[string(body)]++
		connections[r.RemoteAddr]++
		mu.Unlock()
		_, _ = io.WriteString(w, boundAnswer)
	})
	r, err := target.drive(t.Context(), 50*time.Millisecond, 0)
	require.NoError(t, err)
	assert.Positive(t, r.Requests)
	assert.Positive(t, r.P50)
	assert.LessOrEqual(t, r.P50, r.P99)
	total := 0
	for _, n := range seen {
		total += n
	}
	assert.Equal(t, r.Requests+target.inFlight, total, "We should not count the first request of each connection.")
	assert.Len(t, connections, target.inFlight, "We should have a connection for each request in flight, and keep it.")

	r, err = target.drive(t.Context(), 100*time.Millisecond, 200)
	require.NoError(t, err)
	assert.Equal(t, 20, r.Requests, "We should send as many as are due, however long they take.")
}

func TestDriveFails(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, answer string
		status         int
		want           string
	}{
		"Denied":      {"We should count no refusal.", `{"response":{"allowed":false,"status":{"code":403}}}`, 200, "the claim is not bound: "},
		"NoPatch":     {"We should count no claim that is left alone.", `{"response":{"allowed":true}}`, 200, "the claim is not bound: "},
		"Unavailable": {"We should count no fault.", "not now", 503, "status 503 Service Unavailable: not now"},
	} {
		t.Run(name, func(t *testing.T) {
			target := driven(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.answer)
			})
			_, err := target.drive(t.Context(), time.Second, 0)
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}

func TestDriveIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	target := driven(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) == "d" { // Those before are the first of each connection.
			cancel()
		}
		_, _ = io.WriteString(w, boundAnswer)
	})
	_, err := target.drive(ctx, time.Hour, 0)
	require.ErrorIs(t, err, context.Canceled, "We should not wait for the end of a round.")
}
