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
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	// settle is how long every entry of the webhook configurations must have
	// trusted a certificate before it is served: the API servers hear of a changed
	// entry a little after it has been stored.
	settle = 5 * time.Second

	// pace is how often it is seen whether there is another certificate to serve.
	pace = 250 * time.Millisecond
)

var (
	errNone     = errors.New("there is no certificate yet")
	errSettling = fmt.Errorf("it has been valid, and trusted by all entries of the webhook configurations, for less than %s", settle)
)

// Source makes certificates; the newest is the one that it would serve itself.
type Source interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(context.Context) error
}

// Gate goes on serving a certificate until the API servers trust the next one,
// so that no rotation, of a certificate or of its CA, loses a request. It runs on
// every replica.
type Gate struct {
	Source Source
	// Name by which the API servers verify certificates.
	Name string
	// Bundles that they verify them with: those of all entries.
	Bundles func(context.Context) ([][]byte, error)
	// Now is time.Now.
	Now func() time.Time

	served atomic.Pointer[tls.Certificate]
	// waiting is why the replica is not to be called yet. It is never set again after it was nil.
	waiting atomic.Pointer[error]

	// next is the newest certificate, and since when all entries have trusted it.
	next  *tls.Certificate
	since time.Time
}

// NewGate in front of a source.
func NewGate(source Source, name string, bundles func(context.Context) ([][]byte, error)) *Gate {
	g := &Gate{Source: source, Name: name, Bundles: bundles, Now: time.Now}
	g.waiting.Store(&errNone)
	return g
}

// GetCertificate is that of a tls.Config.
func (g *Gate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := g.served.Load(); c != nil {
		return c, nil
	}
	return nil, errNone
}

// Ready is an error until the API servers trust the certificate that is served.
// From then on there is none: an entry that somebody damages is the leader's to
// mend, and no reason to leave all others without a replica.
func (g *Gate) Ready(*http.Request) error {
	if why := g.waiting.Load(); why != nil {
		return *why
	}
	return nil
}

// NeedLeaderElection says that it runs on every replica.
func (g *Gate) NeedLeaderElection() bool { return false }

// Start looks for newer certificates until the context ends.
func (g *Gate) Start(ctx context.Context) error {
	log, before := logf.FromContext(ctx), ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		why, text := g.advance(ctx), ""
		switch {
		case why == nil:
			g.waiting.Store(nil)
		case g.waiting.Load() != nil:
			g.waiting.Store(&why)
		}
		if why != nil {
			text = why.Error()
		}
		if text != "" && text != before {
			log.Info("The newest certificate is not trusted yet", "because", text)
		}
		before = text
	}, pace)
	return nil
}

// advance to the newest certificate if it is time to. The error says why it is not.
func (g *Gate) advance(ctx context.Context) error {
	newest, err := g.Source.GetCertificate(nil)
	if newest == nil {
		return errors.Join(errNone, err)
	}
	now, served, unready := g.Now(), g.served.Load(), g.waiting.Load() != nil
	if newest != g.next {
		g.next, g.since = newest, time.Time{}
	}
	if newest == served && !unready {
		return nil
	}
	// Nobody trusts a certificate that has expired. And nobody but the leader calls
	// before this replica is ready, and the leader has to see the newest: it writes
	// no CA into the entries before it has seen a certificate of it.
	if unready || now.After(served.Leaf.NotAfter) {
		g.serve(ctx, newest)
	}
	bundles, err := g.bundles(ctx)
	if err == nil {
		err = g.distrust(bundles, newest, now)
	}
	if err != nil {
		g.since = time.Time{}
		return err
	}
	switch {
	case served == nil && len(bundles) == 0: // Nobody calls.
		g.since = now.Add(-settle)
	case served == nil:
		// The API servers have been told before we began; but to one whose clock is
		// late, a certificate of this moment is of the future.
		g.since = newest.Leaf.NotBefore
	case g.since.IsZero():
		g.since = now
	}
	if now.Sub(g.since) < settle {
		return errSettling
	}
	g.serve(ctx, newest)
	return nil
}

func (g *Gate) serve(ctx context.Context, c *tls.Certificate) {
	if g.served.Swap(c) != c {
		logf.FromContext(ctx).Info("Serving a certificate", "serial", c.Leaf.SerialNumber.Text(16), "issuer", c.Leaf.Issuer.String(), "notAfter", c.Leaf.NotAfter)
	}
}

// bundles may take long the first time, when the cache reads them.
func (g *Gate) bundles(ctx context.Context) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	return g.Bundles(ctx)
}

// distrust is an error if an entry does not trust a certificate.
func (g *Gate) distrust(bundles [][]byte, c *tls.Certificate, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, der := range c.Certificate[1:] {
		if i, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(i)
		}
	}
	for _, bundle := range bundles {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: g.Name, Roots: roots, Intermediates: intermediates, CurrentTime: now}); err != nil {
			return fmt.Errorf("an entry of the webhook configurations does not trust it, and the leader has to write its CA there: %w", err)
		}
	}
	return nil
}

// RegisterMetrics about the certificate that is served.
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
