package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
})

func TestDrainTakesItsTime(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		duration time.Duration
	}{
		"AtOnce": {reason: "We should end at once without a delay."},
		"Later":  {reason: "We should go on for the whole delay.", duration: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				d := newDrain(ctx, tc.duration)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.NoError(t, d.ready(nil), "We should be ready until we are told to end.")
				require.NoError(t, d.finished.Err(), "We should not end before we are told to.")

				stop()
				require.Error(t, d.ready(nil), "We should not be ready as soon as we are told to end.")
				if tc.duration > 0 {
					time.Sleep(tc.duration - 1)
					synctest.Wait()
					require.NoError(t, d.finished.Err(), tc.reason)
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				require.ErrorIs(t, d.finished.Err(), context.Canceled, tc.reason)
				assert.Error(t, d.ready(nil), "We should not be ready again.")
			})
		})
	}
}

// newServer starts a TLS server. The client trusts it. The counter is of the connections that it has closed.
func newServer(t *testing.T, h http.Handler, http2 bool) (*httptest.Server, *http.Client, *atomic.Int32) {
	t.Helper()
	closed := &atomic.Int32{}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = http2
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, s.Client(), closed
}

func call(t *testing.T, client *http.Client, url, protocol string) (ok bool) {
	t.Helper()
	response, err := client.Post(url, "text/plain", strings.NewReader("claim"))
	if err != nil { // Not require: only the test's own goroutine may end it.
		t.Errorf("We should lose no request: %v", err)
		return false
	}
	body, err := io.ReadAll(response.Body)
	return assert.NoError(t, err, "We should answer in full.") &&
		assert.Equal(t, "claim", string(body), "We should answer in full.") &&
		assert.Equal(t, protocol, response.Proto) &&
		assert.NoError(t, response.Body.Close())
}

func until(t *testing.T, reason string, enough func() bool) {
	t.Helper()
	require.Eventually(t, enough, 3*time.Minute, time.Millisecond, reason)
}

// TestDrainLosesNoRequest calls without a pause while a replica ends, as API servers do through a Service that replaces it by another.
func TestDrainLosesNoRequest(t *testing.T) {
	const callers = 8
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(protocol, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			d := newDrain(ctx, 0)
			var answers [2]atomic.Int64
			counting := func(i int, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					answers[i].Add(1)
					next.ServeHTTP(w, r)
				})
			}
			ending, client, closed := newServer(t, counting(0, d.handler(echo)), http2)
			other, _, _ := newServer(t, counting(1, echo), http2)
			var mu sync.Mutex
			service, dialled := ending, int32(0)
			transport := client.Transport.(*http.Transport)
			transport.MaxIdleConnsPerHost = callers
			if !http2 {
				transport.MaxConnsPerHost = callers // Otherwise, a spare connection might carry no calls.
			}
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				mu.Lock()
				to := service
				if to == ending {
					dialled++
				}
				mu.Unlock()
				return (&net.Dialer{}).DialContext(ctx, network, to.Listener.Addr().String())
			}
			call(t, client, ending.URL, protocol)
			var all sync.WaitGroup
			defer all.Wait()
			var done atomic.Bool
			defer done.Store(true)
			for range callers {
				all.Go(func() {
					for ok := true; ok && !done.Load(); {
						ok = call(t, client, ending.URL, protocol)
					}
				})
			}

			until(t, "", func() bool { return answers[0].Load() > 100 })
			stop()
			require.Error(t, d.ready(nil))
			told := answers[0].Load()
			until(t, "We should keep answering until the callers know that we end.", func() bool { return answers[0].Load() > told+2*callers })
			mu.Lock()
			service = other
			mu.Unlock()
			// A connection may have been dialled and not accepted yet.
			until(t, "We should leave no connection open that could carry another request.", func() bool { return closed.Load() == dialled })
			require.NoError(t, ending.Config.Shutdown(t.Context()))
			until(t, "The other replica should answer all calls.", func() bool { return answers[1].Load() > 100 })
		})
	}
}
