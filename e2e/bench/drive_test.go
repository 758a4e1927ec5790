package bench

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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

const boundAnswer = `{"response":{"allowed":true,"patch":"W10=","patchType":"JSONPatch"}}`

// driven is a target that answers the same to all.
func driven(t *testing.T, handler http.HandlerFunc) *target {
	t.Helper()
	url, config := serve(t, handler)
	return &target{
		url: url, tls: config, process: &process{os.Getpid()},
		inFlight: 3, reviews: []poolClaim{{"", []byte("a")}, {"", []byte("b")}, {"", []byte("c")}, {"", []byte("d")}},
	}
}

func TestDrive(t *testing.T) {
	var mu sync.Mutex
	var all sync.WaitGroup // Their first requests wait for each other, so that none takes the connection of another.
	all.Add(3)
	seen, connections := map[string]int{}, map[string]int{}
	target := driven(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "HTTP/1.1", r.Proto, "We should speak HTTP/1.1, even if HTTP/2 is offered.")
		assert.Equal(t, uint16(tls.VersionTLS13), r.TLS.Version, "We should speak TLS 1.3.")
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		seen[string(body)]++
		connections[r.RemoteAddr]++
		if len(connections) <= 3 && connections[r.RemoteAddr] == 1 {
			all.Done()
		}
		mu.Unlock()
		all.Wait()
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
