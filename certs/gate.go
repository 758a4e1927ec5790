package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/selector/recovered"
)

const (
	// settleTime is how long every entry of the webhook configurations must have trusted a certificate before it is served. Each API server
	// verifies us with the entries of its own informer, which notices a changed entry a little after it is stored. Nothing else is waited
	// for: an API server whose informer is 5 s behind refuses a certificate of a new CA, but one of a CA that was in every entry 5 s ago,
	// it trusts.
	settleTime = 5 * time.Second

	// clockSkew is how much the clocks of API servers and replicas may differ. An API server with a slow clock takes a certificate of this
	// moment for one from the future, and writes a time into an entry that is too early.
	clockSkew = 30 * time.Second

	// pollInterval is how often the gate looks for another certificate to serve.
	pollInterval = 100 * time.Millisecond

	// dialTimeout limits a connection to our own server.
	dialTimeout = 10 * time.Second
)

var (
	errNoCertificate = errors.New("there is no certificate yet")
	errSettling      = fmt.Errorf("this replica has seen all entries of the webhook configurations trust it for less than %s, "+
		"and one of them, or the certificate, is new", settleTime)
)

// Source makes certificates. GetCertificate returns the newest.
type Source interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(context.Context) error
}

// Gate serves a certificate until the API servers trust the next one, so that no rotation of it or its CA loses a request.
type Gate struct {
	Source Source
	// Name that the API servers verify certificates for.
	Name string
	// Bundles returns the CA bundles of all entries, and when one was last written by the clock of an API server; zero is not known.
	Bundles func(context.Context) (bundles [][]byte, written time.Time, err error)

	served atomic.Pointer[tls.Certificate]
	// notReady is why the replica must not be called yet. Once nil, it stays nil.
	notReady atomic.Pointer[error]

	// next is the newest certificate. We have seen all entries trust it since trustedSince, which is zero while one does not.
	next         *tls.Certificate
	trustedSince time.Time
}

// NewGate returns a gate in front of a source. It needs Bundles before it starts.
func NewGate(source Source, name string) *Gate {
	g := &Gate{Source: source, Name: name}
	g.notReady.Store(&errNoCertificate)
	return g
}

// GetCertificate returns the served certificate, for a tls.Config.
func (g *Gate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := g.served.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Ready returns an error until the API servers trust the served certificate, and never again after that. If somebody damages an entry, the
// leader mends it, and the other entries still need a replica.
func (g *Gate) Ready(*http.Request) error {
	if why := g.notReady.Load(); why != nil {
		return *why
	}
	return nil
}

// NeedLeaderElection is false: the gate runs on every replica.
func (g *Gate) NeedLeaderElection() bool { return false }

// Start looks for newer certificates until the context ends.
func (g *Gate) Start(ctx context.Context) error {
	before := ""
	recovered.Rounds(ctx, func(ctx context.Context) {
		why := g.advance(ctx)
		if why == nil {
			before = ""
			g.notReady.Store(nil)
			return
		}
		if g.notReady.Load() != nil {
			g.notReady.Store(&why)
		}
		if why.Error() != before {
			before = why.Error()
			logf.FromContext(ctx).Info("The newest certificate is not trusted yet", "because", before)
		}
	}, pollInterval)
	return nil
}

// advance serves the newest certificate when its time has come, and else returns why not.
func (g *Gate) advance(ctx context.Context) error {
	newest, err := g.Source.GetCertificate(nil)
	if newest == nil {
		return errors.Join(errNoCertificate, err)
	}
	now, served, unready := time.Now(), g.served.Load(), g.notReady.Load() != nil
	if newest != g.next {
		g.next, g.trustedSince = newest, time.Time{}
	}
	if newest == served && !unready {
		return nil
	}
	// No client trusts an expired certificate. And before this replica is ready, only the leader calls it, and must see the newest
	// certificate: it writes a CA into the entries only after it has seen a certificate of that CA.
	if unready || now.After(served.Leaf.NotAfter) {
		g.serve(ctx, newest)
	}
	bundles, written, err := g.bundles(ctx)
	if err == nil {
		err = g.checkTrust(bundles, newest, now)
	}
	if err != nil {
		g.trustedSince = time.Time{}
		return err
	}
	if g.trustedSince.IsZero() {
		g.trustedSince = now
	}
	uncalled := served == nil && len(bundles) == 0
	if !uncalled && !longTrusted(bundles, written, newest, now) && now.Sub(g.trustedSince) < settleTime {
		return errSettling
	}
	g.serve(ctx, newest)
	return nil
}

// longTrusted reports whether all API servers trust a certificate that all entries trust now. It knows this where no entry was written for
// longer than their informers take: what we see now, they saw then. It allows for clocks that differ.
func longTrusted(bundles [][]byte, written time.Time, c *tls.Certificate, now time.Time) bool {
	return len(bundles) > 0 && !written.IsZero() &&
		now.Sub(written) >= settleTime+clockSkew && now.Sub(c.Leaf.NotBefore) >= clockSkew
}

func (g *Gate) serve(ctx context.Context, c *tls.Certificate) {
	if g.served.Swap(c) != c {
		logf.FromContext(ctx).Info("Serving a certificate",
			"serial", c.Leaf.SerialNumber.Text(16), "issuer", c.Leaf.Issuer.String(), "notAfter", c.Leaf.NotAfter)
	}
}

// bundles reads the bundles with a timeout: the first read fills the cache and may be slow.
func (g *Gate) bundles(ctx context.Context) ([][]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return g.Bundles(ctx)
}

// checkTrust returns an error if an entry does not trust a certificate.
func (g *Gate) checkTrust(bundles [][]byte, c *tls.Certificate, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, der := range c.Certificate[1:] {
		if i, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(i)
		}
	}
	for _, bundle := range bundles {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		by := x509.VerifyOptions{DNSName: g.Name, Roots: roots, Intermediates: intermediates, CurrentTime: now}
		if _, err := c.Leaf.Verify(by); err != nil {
			return fmt.Errorf("an entry of the webhook configurations does not trust it, and the leader has to write its CA there: %w", err)
		}
	}
	return nil
}

// RegisterMetrics registers the expiry time of the served certificate.
func (g *Gate) RegisterMetrics() error {
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "classbind_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that this replica serves expires, in seconds since 1970; 0 while there is none.",
	}, func() float64 {
		if c := g.served.Load(); c != nil {
			return float64(c.Leaf.NotAfter.Unix())
		}
		return 0
	}))
}

// Verify connects to this replica and returns an error unless the API server would trust it: by our name, with only this CA, in PEM.
func (g *Gate) Verify(ctx context.Context, address string, ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the CA has not been made yet")
	}
	return g.dial(ctx, address, &tls.Config{RootCAs: roots})
}

// CheckServing returns an error unless some server speaks TLS at address.
func (g *Gate) CheckServing(ctx context.Context, address string) error {
	return g.dial(ctx, address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Verify checks who it is.
}

// dial presents the served certificate. With --client-ca-file, the server would log a dial without it as an attack.
func (g *Gate) dial(ctx context.Context, address string, config *tls.Config) error {
	config.ServerName, config.MinVersion = g.Name, tls.VersionTLS13
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return g.GetCertificate(nil) }
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot connect to %s as %q: %w", address, g.Name, err)
	}
	return connection.Close()
}
