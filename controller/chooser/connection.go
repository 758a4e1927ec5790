package chooser

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver/dns"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// How a connection is made, and found to be dead. gRPC resolves the name of the chooser again when a connection fails.
const (
	connectTimeout  = 2 * time.Second
	firstBackoff    = 100 * time.Millisecond
	longestBackoff  = 5 * time.Second
	shortConnection = time.Second // There is a pause after one that lasts for less.
	keepaliveTime   = 10 * time.Second
	keepaliveWait   = 2 * time.Second
)

func init() { dns.SetMinResolutionInterval(longestBackoff) } // Nothing else here uses gRPC.

// connection is that to the chooser of one claim kind.
type connection struct {
	choosers  *Choosers
	claimKind string
	address   string
	made      *v1beta1.External // what it was made for
	external  atomic.Pointer[v1beta1.External]
	// conn has one connection. It is nil, and err says why, for an address that gRPC cannot parse.
	conn *grpc.ClientConn
	err  error

	circuit circuit
	// limiters are those that a call passes, by the key of its question, if its claim is stored and if it is not.
	limiters map[bool][]*fair.Limiter
	// answers are by the hash of their question, and texts by their shownClass.
	answers *utilcache.LRUExpireCache
	texts   *lru.Cache
	// epoch is that of the last Status, and polls are the calls of it: claims share one.
	epoch  atomic.Pointer[string]
	polls  singleflight.Group
	secret atomic.Pointer[clientSecret]
	now    func() time.Time
	after  func(time.Duration) <-chan time.Time

	end sync.Once
	// ended is closed when it stops.
	ended chan struct{}
}

// clientSecret is what was last read of a Secret with a client certificate. err is why the last try failed, at readAt.
type clientSecret struct {
	name        string
	certificate *tls.Certificate // the last that could be used, nil without one
	err         error
	readAt      time.Time
}

func (c *Choosers) newConnection(claimKind string, e *v1beta1.External) *connection {
	all := fair.NewLimiter(v1beta1.ChooserCalls)
	l := &connection{
		choosers: c, claimKind: claimKind, address: e.Address(), made: e, now: time.Now, after: time.After, ended: make(chan struct{}),
		texts:    lru.New(v1beta1.MaxChooserAnswers),
		circuit:  circuit{of: map[string]*namespaceCircuit{}},
		limiters: map[bool][]*fair.Limiter{true: {fair.NewLimiter(v1beta1.StoredChooserCalls), all}, false: {all}},
	}
	l.secret.Store(&clientSecret{})
	l.answers = utilcache.NewLRUExpireCacheWithClock(v1beta1.MaxChooserAnswers, clock{l})
	l.epoch.Store(new(string))
	l.external.Store(e)
	l.conn, l.err = Dial(l.address, l.tls)
	return l
}

// isFor reports whether what proves who both sides are is that of the registration. A Secret is read again without another connection.
func (l *connection) isFor(e *v1beta1.External) bool {
	return l.address == e.Address() && bytes.Equal(l.made.CABundle, e.CABundle) && l.made.ClientCertificate == e.ClientCertificate
}

// Dial returns a connection to the chooser at an address, HOST:PORT, which is made when it is used. config is called for each TLS
// connection.
func Dial(address string, config func() (*tls.Config, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("dns:///"+address,
		grpc.WithTransportCredentials(mutual{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), config}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
			BaseDelay: firstBackoff, MaxDelay: longestBackoff,
			Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter,
		}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveWait}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(v1beta1.MaxChooserResponseBytes),
			grpc.MaxCallSendMsgSize(v1beta1.MaxChooserRequestBytes)),
		grpc.WithMaxHeaderListSize(v1beta1.MaxChooserHeaderBytes),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0))
}

// clock of a cache.
type clock struct{ of *connection }

func (c clock) Now() time.Time { return c.of.now() }

// run asks for the status, and connects again as soon as a connection ends, until it stops. Calls that have begun then end first.
func (l *connection) run(ctx context.Context) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		_ = recovered.Do(func() error { l.readSecret(within); return nil }) // Without it, there is no connection.
		running.Go(func() { recovered.Rounds(within, l.readSecret, pollInterval) })
		if l.conn != nil {
			running.Go(func() {
				_ = recovered.Again(within, func(ctx context.Context) error { l.keepConnected(ctx); return nil })
			})
		}
		recovered.Rounds(within, l.poll, wait.Jitter(pollInterval, pollJitter))
	})
	select {
	case <-ctx.Done():
	case <-l.ended:
	}
	cancel()
	running.Wait()
	if l.conn != nil {
		select {
		case <-ctx.Done():
		case <-l.after(v1beta1.MaxChooserTimeout):
		}
		_ = l.conn.Close() // It is gone then.
	}
}

// keepConnected connects whenever the connection is idle, and asks for the status as soon as there is one: that closes the circuit.
func (l *connection) keepConnected(ctx context.Context) {
	var pause time.Duration
	var began time.Time // the last connection
	for changed := true; ctx.Err() == nil; {
		state := l.conn.GetState()
		switch {
		case state == connectivity.Idle:
			pause = pauseAfter(pause, l.now().Sub(began)) // It may have been ready for so short a time that this did not see it.
			select {
			case <-ctx.Done():
			case <-l.after(pause):
			}
			l.conn.Connect()
			began = l.now()
		case state == connectivity.Ready && changed:
			l.poll(ctx)
		}
		changes, cancel := context.WithTimeout(ctx, longestBackoff) // It may have been idle again before this began to look.
		changed = l.conn.WaitForStateChange(changes, state)
		cancel()
	}
}

// pauseAfter returns how long to wait before the next connection, after one that lasted for some time. gRPC waits only after those that
// fail: a chooser that ends each one at once would cost a handshake after the other.
func pauseAfter(pause, lasted time.Duration) time.Duration {
	if lasted >= shortConnection {
		return 0
	}
	return min(max(firstBackoff, 2*pause), longestBackoff)
}

func (l *connection) stop() { l.end.Do(func() { close(l.ended) }) }

// poll asks for the status. All that ask at once share the answer.
func (l *connection) poll(ctx context.Context) {
	done := l.polls.DoChan("", func() (any, error) { return nil, recovered.Do(func() error { l.askStatus(ctx); return nil }) })
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (l *connection) askStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v1beta1.MaxChooserTimeout) // The first to ask may leave before others.
	defer cancel()
	state := State{}
	var answer *chooserv1.StatusResponse
	err := l.err
	if err == nil {
		answer, err = chooserv1.NewChooserClient(l.conn).Status(ctx, &chooserv1.StatusRequest{})
	}
	switch {
	case err != nil:
		state = State{reasonOf(err), truncate.String(status.Convert(err).Message(), v1beta1.MaxMessageBytes)}
	case len(answer.GetEpoch()) > v1beta1.MaxChooserEpochBytes:
		state = State{v1beta1.ReasonInvalid, fmt.Sprintf("its epoch is longer than %d bytes", v1beta1.MaxChooserEpochBytes)}
	default:
		epoch := answer.GetEpoch()
		l.epoch.Store(&epoch)
	}
	changed, inReason := l.circuit.record(state, l.now())
	if changed {
		l.choosers.states.Notify(l.claimKind)
	}
	if inReason {
		logf.FromContext(ctx).Info("The status of a chooser has changed", "claimKind", l.claimKind, "reason", state.Reason,
			"message", state.Message)
	}
}

// reasonOf a failed call; empty, it did not fail.
func reasonOf(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return ""
	case codes.DeadlineExceeded, codes.Canceled:
		return v1beta1.ReasonTimeout
	case codes.Unavailable:
		return v1beta1.ReasonConnection
	case codes.Unimplemented:
		return v1beta1.ReasonUnimplemented
	case codes.ResourceExhausted:
		if strings.Contains(status.Convert(err).Message(), "larger than max") { // As gRPC says of our limits.
			return v1beta1.ReasonTooLarge
		}
		return v1beta1.ReasonBusy
	case codes.Internal: // What is no answer, as gRPC says it.
		return v1beta1.ReasonInvalid
	default:
		return v1beta1.ReasonFailed
	}
}

// isConnected reports whether a call needs to wait for no connection.
func (l *connection) isConnected() bool {
	return l.conn != nil && l.conn.GetState() == connectivity.Ready
}

// readSecret reads the client certificate again, if it is time. One that cannot be read stays as it was. Claims wait for no API server: so
// this is no part of the status.
func (l *connection) readSecret(ctx context.Context) {
	name, known := l.external.Load().ClientCertificate.SecretName, l.secret.Load()
	if name == "" || known.name == name && known.err == nil && l.now().Sub(known.readAt) < secretInterval {
		return
	}
	next := &clientSecret{name: name, readAt: l.now()}
	if next.certificate, next.err = l.choosers.certificateOf(ctx, name); next.err != nil && known.name == name {
		next.certificate = known.certificate
	}
	l.secret.Store(next)
	if next.err != nil && (known.name != name || known.err == nil || known.err.Error() != next.err.Error()) {
		logf.FromContext(ctx).Info("Cannot read the client certificate for a chooser", "claimKind", l.claimKind, "error", next.err.Error())
	}
}

func (c *Choosers) certificateOf(ctx context.Context, name string) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	if err := c.Secrets.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("cannot read the Secret %q: %w", name, truncate.Error(err))
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("cannot use the Secret %q: %w", name, truncate.Error(err))
	}
	return &certificate, nil
}

// tls is made for each connection, with the newest certificates.
func (l *connection) tls() (*tls.Config, error) {
	e := l.external.Load()
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	if len(e.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(e.CABundle) {
			return nil, errors.New("choice.external.caBundle has no certificate")
		}
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if e.ClientCertificate.SecretName == "" {
			return l.choosers.Certificate(nil)
		}
		known := l.secret.Load()
		if known.certificate != nil && known.name == e.ClientCertificate.SecretName {
			return known.certificate, nil
		}
		return nil, cmp.Or(known.err, errors.New("its Secret has not been read yet"))
	}
	return config, nil
}

// mutual has a configuration for each connection, and none with a server that asks for no client certificate.
type mutual struct {
	credentials.TransportCredentials

	config func() (*tls.Config, error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (m mutual) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := m.config()
	if err != nil {
		return nil, nil, err
	}
	asked, certificate := false, config.GetClientCertificate
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		return certificate(r)
	}
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err == nil && !asked {
		_ = conn.Close() // It is not used.
		return nil, nil, errors.New("the chooser asks for no client certificate")
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (m mutual) Clone() credentials.TransportCredentials { return m }
