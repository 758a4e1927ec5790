package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/controller/controllertest"
)

const service = "classbind.classbind-system.svc"

// issuer is a CA of servers.
type issuer struct{ *certtest.Pair }

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	return &issuer{certtest.NewCA(t)}
}

func (a *issuer) intermediate(t *testing.T) *issuer {
	t.Helper()
	return &issuer{a.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "intermediate"}, IsCA: true, BasicConstraintsValid: true, NotAfter: a.Certificate.NotAfter,
	})}
}

// issue issues a certificate for a name, valid for a duration.
func (a *issuer) issue(t *testing.T, name string, duration time.Duration) *tls.Certificate {
	t.Helper()
	return a.Sign(t, &x509.Certificate{
		DNSNames: []string{name}, NotAfter: time.Now().Add(duration), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}).TLS()
}

// world is what a gate sees: its source and the bundles.
type world struct {
	mu          sync.Mutex
	newest      *tls.Certificate
	newestErr   error
	bundles     [][]byte
	written     time.Time
	bundlesErr  error
	bundleReads int
}

func (w *world) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest, w.newestErr
}

func (w *world) Start(context.Context) error { return nil }

func (w *world) readBundles(context.Context) ([][]byte, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bundleReads++
	return w.bundles, w.written, w.bundlesErr
}

func (w *world) change(f func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func newGate(w *world) *Gate {
	g := NewGate(w, service)
	g.Bundles = w.readBundles
	return g
}

// open runs a gate in front of the world until the test ends.
func (w *world) open(ctx context.Context, t *testing.T) *Gate {
	t.Helper()
	g := newGate(w)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, g.Start(ctx)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return g
}

// TestGate simulates up to an hour: each step makes changes, waits a while, and checks what is served then and whether the replica is
// ready.
func TestGate(t *testing.T) {
	const (
		// moment is one and a half intervals: the gate polls at least once.
		moment = pollInterval + pollInterval/2
		// before ends shortly before the gate opens, if trust began in the last moment.
		before = settleTime - moment - pollInterval/2
		// brief is how long the first certificate is valid.
		brief = 10 * time.Minute
	)
	// certificates are the CAs, and the certificates by name: the CA's and a number.
	type certificates struct {
		a, b, c *issuer
		issued  map[string]*tls.Certificate
	}
	type change = func(*certificates, *world)
	issue := func(name string) change {
		return func(c *certificates, w *world) { w.newest, w.newestErr = c.issued[name], nil }
	}
	none := func(err error) change { return func(_ *certificates, w *world) { w.newest, w.newestErr = nil, err } }
	// entries sets the entries; each has the CAs of its letters.
	entries := func(all ...string) change {
		return func(c *certificates, w *world) {
			w.bundles, w.bundlesErr = nil, nil
			for _, letters := range all {
				var bundle []byte
				for _, l := range letters {
					bundle = append(bundle, map[rune]*issuer{'a': c.a, 'b': c.b, 'c': c.c}[l].PEM()...)
				}
				w.bundles = append(w.bundles, bundle)
			}
		}
	}
	// written sets how long ago the entries were last written; by default, this is not known.
	written := func(ago time.Duration) change {
		return func(_ *certificates, w *world) { w.written = time.Now().Add(-ago) }
	}
	refused := func(_ *certificates, w *world) { w.bundlesErr = errors.New("connection refused") }
	garbage := func(_ *certificates, w *world) { w.bundles = [][]byte{[]byte("PEM")} }
	// step makes changes, waits, and says what is served then and whether it is ready.
	type step struct {
		changes []change
		while   time.Duration
		served  string
		ready   bool
	}
	do := func(c ...change) []change { return c }
	// begun serves the first certificate, which the entry trusts.
	begun := step{do(issue("a1"), entries("a")), settleTime + moment, "a1", true}

	for name, tc := range map[string]struct {
		reason string
		life   []step
	}{
		"FirstWithoutEntries": {"We should serve at once if there is no entry to wait for.", []step{{do(issue("a1")), moment, "a1", true}}},
		"FirstTrusted": {
			"We should be ready at once with a certificate of a CA that the entries have long had.",
			[]step{{do(issue("a1"), entries("a", "ba"), written(time.Hour)), moment, "a1", true}},
		},
		"FirstWrittenJustNow": {"We should wait for API servers to see an entry that was just written, also by one with a slow clock.", []step{
			{do(issue("a1"), entries("a"), written(clockSkew)), moment, "a1", false},
			{nil, before, "a1", false},
			{nil, 2 * pollInterval, "a1", true},
		}},
		"FirstLongNotTrusted": {"We should not take old entries that do not have our CA for trust, and wait for API servers to see it once it is there.", []step{
			{do(issue("a1"), entries("a", "b"), written(time.Hour)), time.Minute, "a1", false},
			{do(entries("a", "ab"), written(0)), moment + before, "a1", false},
			{nil, 2 * pollInterval, "a1", true},
		}},
		"FirstOfThisMoment": {"We should not be called at once with a certificate issued just now: a slow clock takes it for one from the future.", []step{
			{do(issue("a of this moment"), entries("a"), written(time.Hour)), moment + before, "a of this moment", false},
			{nil, 2 * pollInterval, "a of this moment", true},
		}},
		"FirstExpires": {
			"We should not be ready with an expired certificate.",
			[]step{{do(issue("a1"), entries("b")), brief, "a1", false}, {do(entries("a")), time.Minute, "a1", false}},
		},
		"FirstReplaced": {"We should serve the newest while we are not ready: the leader verifies us with the current CA, and cannot write an " +
			"entry while we serve another.", []step{
			{do(issue("a1"), entries("c")), moment, "a1", false},
			{do(issue("b1")), moment, "b1", false},
			{do(entries("cb")), moment + before, "b1", false},
			{nil, 2 * pollInterval, "b1", true},
		}},
		"NoneYet": {"We should serve nothing before there is a certificate.", []step{
			{nil, moment, "", false},
			{do(none(errors.New("not available"))), moment, "", false},
			{do(none(nil), entries("a"), written(time.Hour)), moment, "", false},
			{do(issue("a1")), moment, "a1", true},
		}},
		"NoneAnyMore": {"We should go on with a certificate that its source has lost.", []step{
			begun,
			{do(none(nil)), time.Minute, "a1", true},
			{do(none(errors.New("gone"))), time.Minute, "a1", true},
			{do(issue("a2")), settleTime + moment, "a2", true},
		}},
		"Next": {"We should serve the next certificate of the same CA 5 s later, as we would one of another, unless the entries have long had it.", []step{
			begun,
			{do(issue("a2")), moment + before, "a1", true},
			{nil, 2 * pollInterval, "a2", true},
			{do(issue("a3"), written(time.Hour)), moment, "a3", true},
		}},
		"NextWithoutEntries": {"We should wait before we serve the next one even without entries: one may be on its way to the API servers.", []step{
			{do(issue("a1"), written(time.Hour)), moment, "a1", true},
			{do(issue("b1")), moment + before, "a1", true},
			{nil, 2 * pollInterval, "b1", true},
		}},
		"NextOfAnotherCA": {"We should go on with a certificate until every entry trusts the next one.", []step{
			{do(issue("a1"), entries("a", "a")), settleTime + moment, "a1", true},
			{do(issue("b1")), time.Minute, "a1", true},
			{do(entries("ab", "a")), time.Minute, "a1", true},
			{do(entries("ab", "ab")), moment + before, "a1", true},
			{nil, 2 * pollInterval, "b1", true},
			{do(entries("b", "b")), time.Minute, "b1", true},
		}},
		"TrustLost": {"We should wait another 5 s when an entry has stopped trusting the next one, however briefly.", []step{
			begun,
			{do(issue("b1"), entries("ab")), before, "a1", true},
			{do(entries("a")), moment, "a1", true},
			{do(entries("ab")), moment + before, "a1", true},
			{nil, 2 * pollInterval, "b1", true},
		}},
		"FirstWithBundlesUnknown": {
			"We should not be ready when we could not read the bundles.",
			[]step{{do(issue("a1"), refused), time.Minute, "a1", false}, {do(entries()), settleTime + moment, "a1", true}},
		},
		"NextReplacedByItsPredecessor": {"We should keep our certificate if it is the newest again, and wait another 5 s when it is replaced after all.", []step{
			begun,
			{do(issue("b1"), entries("ab")), before, "a1", true},
			{do(issue("a1")), time.Minute, "a1", true},
			{do(issue("b1")), moment + before, "a1", true},
			{nil, 2 * pollInterval, "b1", true},
		}},
		"Expired": {"We should serve the next one at once when ours has expired.", []step{
			begun,
			{do(issue("b1")), brief - settleTime - moment - pollInterval, "a1", true},
			{nil, 3 * pollInterval, "b1", true},
			{do(entries("b")), moment, "b1", true},
		}},
		"NextOfAnotherName": {
			"We should not serve a certificate for another name than ours.",
			[]step{begun, {do(issue("a of another name")), time.Minute, "a1", true}},
		},
		"NextOfAnIntermediate": {
			"We should trust a certificate through the intermediate that it is served with, as the API servers do.",
			[]step{begun, {do(issue("a by way of another")), settleTime + moment, "a by way of another", true}},
		},
		"StillReady": {"We should stay ready when entries are damaged: the leader mends them, and the others still need a replica.", []step{
			begun,
			{do(garbage), time.Minute, "a1", true},
			{do(issue("b1")), time.Minute, "a1", true},
			{do(refused), time.Minute, "a1", true},
			{do(entries("")), time.Minute, "a1", true},
		}},
		"EmptyBundle": {
			"We should not trust an entry without a CA, nor fall back to the CAs of the system.",
			[]step{{do(issue("a1"), entries("")), time.Minute, "a1", false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &certificates{a: newIssuer(t), b: newIssuer(t), c: newIssuer(t)}
				other := c.a.intermediate(t)
				c.issued = map[string]*tls.Certificate{
					"a1": c.a.issue(t, service, brief), "a2": c.a.issue(t, service, time.Hour), "a3": c.a.issue(t, service, time.Hour), "b1": c.b.issue(t, service, time.Hour),
					"a of another name": c.a.issue(t, "classbind.other.svc", time.Hour), "a by way of another": other.issue(t, service, time.Hour),
				}
				now := c.a.Sign(t, &x509.Certificate{DNSNames: []string{service}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
				c.issued["a of this moment"] = now.TLS()

				w := &world{}
				g := w.open(t.Context(), t)
				for i, s := range tc.life {
					synctest.Wait()
					w.change(func(w *world) {
						for _, f := range s.changes {
							f(c, w)
						}
					})
					time.Sleep(s.while)
					synctest.Wait()
					served, err := g.GetCertificate(nil)
					if s.served == "" {
						require.ErrorIs(t, err, errNoCertificate, "%s Step %d.", tc.reason, i)
					} else {
						require.NoError(t, err, "%s Step %d.", tc.reason, i)
					}
					var got string
					for name, certificate := range c.issued {
						if certificate == served {
							got = name
						}
					}
					assert.Equal(t, s.served, got, "%s Step %d.", tc.reason, i)
					assert.Equal(t, s.ready, g.Ready(nil) == nil, "%s Step %d: %v.", tc.reason, i, g.Ready(nil))
				}
			})
		})
	}
}

func TestGateSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, other := newIssuer(t), newIssuer(t)
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		w := &world{newestErr: errors.New("no Secret yet")}
		g := newGate(w)
		require.ErrorIs(t, g.Ready(nil), errNoCertificate, "We should not be ready before we have looked.")
		assert.False(t, g.NeedLeaderElection(), "We should serve on every replica.")

		w.open(t.Context(), t) // It logs elsewhere.
		g = w.open(logf.IntoContext(t.Context(), log), t)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, g.Ready(nil), w.newestErr, "We should say why there is none.")
		require.Len(t, lines, 1, "We should say it once.")
		assert.Contains(t, lines[0], "no Secret yet", "We should say it.")

		w.change(func(w *world) {
			w.newest, w.newestErr, w.bundles = ours.issue(t, service, time.Hour), nil, [][]byte{other.PEM()}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorAs(t, g.Ready(nil), &x509.UnknownAuthorityError{}, "We should say that an entry does not trust us.")
		assert.Contains(t, g.Ready(nil).Error(), "the leader has to write its CA there", "We should say what has to happen.")
		require.Len(t, lines, 3, "We should say what we serve, and why it is not trusted, once.")
		assert.Contains(t, lines[1], "Serving a certificate")
		assert.Contains(t, lines[1], w.newest.Leaf.SerialNumber.Text(16), "We should say which.")

		w.change(func(w *world) { w.bundles = [][]byte{ours.PEM()} })
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, g.Ready(nil), errSettling, "We should say what we wait for.")
		assert.Contains(t, g.Ready(nil).Error(), "less than 5s", "We should give the API servers the time that we promise.")

		time.Sleep(settleTime)
		synctest.Wait()
		require.NoError(t, g.Ready(nil))
		looked := w.bundleReads
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, looked, w.bundleReads, "We should verify nothing while there is nothing new.")
		assert.Len(t, lines, 4, "We should say nothing then.")
	})
}

func TestGateMetric(t *testing.T) {
	before := metrics.Registry
	t.Cleanup(func() { metrics.Registry = before })
	metrics.Registry = prometheus.NewPedanticRegistry()
	expiry := func() float64 {
		return controllertest.Scraped(t, metrics.Registry)["certificate_expiry_timestamp_seconds"]
	}
	w := &world{}
	g := newGate(w)
	require.NoError(t, g.RegisterMetrics())
	assert.Zero(t, expiry(), "We should say that there is none.")

	ca := newIssuer(t)
	w.newest, w.bundles, w.written = ca.issue(t, service, time.Hour), [][]byte{ca.PEM()}, time.Now().Add(-time.Hour)
	require.NoError(t, g.advance(t.Context()))
	assert.InDelta(t, float64(w.newest.Leaf.NotAfter.Unix()), expiry(), 0, "We should say until when the served certificate is valid.")
	require.Error(t, g.RegisterMetrics(), "We should not count twice.")
}

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestVerify(t *testing.T) {
	const name = "example.com" // in the certificate of httptest, which signs itself
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // Handshakes fail on purpose.
	server.StartTLS()
	defer server.Close()
	serving, ca := server.Listener.Addr().String(), encoded(server.Certificate().Raw)
	stopped := httptest.NewUnstartedServer(http.NotFoundHandler())
	silent := stopped.Listener.Addr().String()
	stopped.Close()

	const noCA = "the CA has not been made yet"
	for testName, tc := range map[string]struct {
		reason        string
		address, name string
		ca            []byte
		want          string // in the error
	}{
		"Good":          {reason: "We should trust a server as the API server would.", address: serving, name: name, ca: ca},
		"WrongName":     {"We should refuse a certificate for another name, as the API server would.", serving, service, ca, "example.com, not " + service},
		"WrongCA":       {"We should refuse a certificate that another CA has signed.", serving, name, newIssuer(t).PEM(), x509.UnknownAuthorityError{}.Error()},
		"NoCA":          {"We should trust nobody without a CA, not even a CA of the system.", serving, name, nil, noCA},
		"NobodyListens": {"We should say that nobody listens.", silent, name, ca, syscall.ECONNREFUSED.Error()},
	} {
		t.Run(testName, func(t *testing.T) {
			gate := NewGate(nil, tc.name)
			gate.served.Store(newIssuer(t).issue(t, tc.name, time.Hour))
			err := gate.Verify(t.Context(), tc.address, tc.ca)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}

// TestCheckServing uses a server that lets in only clients with its own certificate.
func TestCheckServing(t *testing.T) {
	own := newIssuer(t).issue(t, service, time.Hour)
	complaints := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(writerFunc(func(p []byte) (int, error) {
		complaints <- string(p)
		return len(p), nil
	}), "", 0)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{*own}, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, own.Leaf.Raw) {
				return errors.New("a stranger")
			}
			return nil
		},
	}
	server.StartTLS()
	address := server.Listener.Addr().String()

	gate := NewGate(nil, service)
	require.ErrorIs(t, gate.CheckServing(t.Context(), address), errNoCertificate, "We should not be served before there is a certificate.")
	gate.served.Store(own)
	require.NoError(t, gate.CheckServing(t.Context(), address), "We should not care who signed it.")
	server.Close()
	require.ErrorIs(t, gate.CheckServing(t.Context(), address), syscall.ECONNREFUSED, "We should say that nobody listens.")
	close(complaints)
	for c := range complaints {
		assert.NotContains(t, c, "client didn't provide a certificate", "We should present a certificate, or each check would be logged.")
		assert.NotContains(t, c, "a stranger", "We should present the one that is served.")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
