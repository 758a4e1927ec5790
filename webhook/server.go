package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	webhookserver "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// idleTimeout is longer than the API server's, 90 s. If we closed a connection first, a review might be on its way, and it would not be
	// sent again.
	idleTimeout = 3 * time.Minute
	// writeTimeout is longer than it takes to read a review and to answer it.
	writeTimeout = 4 * deadline
	// ShutdownTimeout is how long the server waits for answers when it shuts down: longer than any takes.
	ShutdownTimeout = 2 * deadline
)

// ServerOptions of a Server.
type ServerOptions struct {
	// Address is host:port.
	Address string
	// HTTP2 is offered beside HTTP/1.1.
	HTTP2 bool
	// TLSOpts change the TLS configuration, in this order.
	TLSOpts []func(*tls.Config)
	// MaxConnections at once; 0 means v1beta1.MaxConnections.
	MaxConnections int
	Log            logr.Logger
}

// Server serves the webhooks. It takes the handlers and their metrics from controller-runtime's server, which limits neither connections
// nor their time.
type Server struct {
	webhookserver.Server

	options ServerOptions
	mux     *http.ServeMux
}

// NewServer returns a server for a manager to start.
func NewServer(o ServerOptions) *Server {
	mux := http.NewServeMux()
	if o.MaxConnections == 0 {
		o.MaxConnections = v1beta1.MaxConnections
	}
	return &Server{Server: webhookserver.NewServer(webhookserver.Options{WebhookMux: mux}), options: o, mux: mux}
}

// Start serves until the context ends, and then finishes the reviews in hand.
func (s *Server) Start(ctx context.Context) error {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	return s.serve(ctx, tcp)
}

func (s *Server) serve(ctx context.Context, tcp net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	if s.options.HTTP2 {
		config.NextProtos = []string{"http/1.1", "h2"}
	}
	for _, change := range s.options.TLSOpts {
		change(config)
	}
	limited := newConnections(tcp, s.options.MaxConnections)
	server := s.newHTTPServer()
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { //nolint:contextcheck // The context has ended then.
		defer recovered.Here()
		ctx, cancel := context.WithTimeout(context.Background(), ShutdownTimeout)
		defer cancel()
		ended <- server.Shutdown(ctx)
	})
	defer stop()
	s.options.Log.Info("Serving the webhooks", "address", tcp.Addr().String(), "http2", s.options.HTTP2)
	if err := server.Serve(tls.NewListener(limited, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the webhooks: %w", err)
	}
	if err := <-ended; err != nil {
		s.options.Log.Error(err, "Stopped before all reviews were answered")
	}
	return nil
}

// newHTTPServer limits what a client may take. The handler limits the time to send a review, because ReadTimeout would start when the
// connection opens. Connections that are idle, or have sent nothing yet, are closed only if their place is needed.
func (s *Server) newHTTPServer() *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.options.HTTP2)
	return &http.Server{
		Handler:           s.mux,
		Protocols:         protocols,
		ReadHeaderTimeout: idleTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    v1beta1.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: v1beta1.MaxStreams,
			// Bytes that wait to be read take memory, too.
			MaxReceiveBufferPerConnection: v1beta1.FreeReviewBytes,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionOf(c))
		},
		ConnState: connectionState,
	}
}

// connections is a listener that limits open connections. At the limit, it closes one for the next: the oldest of those without a review,
// if they are many, or else the one idle the longest since its review. So a client that holds all connections locks no one out: a new
// connection has time for its first review, however many have had theirs, and those stay open, however many are new. x/net/netutil instead
// makes the next connection wait: there, a client with idle connections locks out all others.
type connections struct {
	net.Listener

	limit int

	mu   sync.Mutex
	open map[*connection]struct{}
	// room wakes admit when a connection has closed or may be closed.
	room    *sync.Cond
	waiting atomic.Bool // admit may be waiting for room
	closed  bool
}

// connection of a client.
type connection struct {
	net.Conn

	listener *connections
	once     sync.Once
	// reviewed reports whether a review has ever arrived on it.
	reviewed atomic.Bool
	// answering reports whether a complete review has no answer yet.
	answering atomic.Bool
	// idleSince is when it was opened or last answered, in nanoseconds.
	idleSince atomic.Int64
}

func newConnections(l net.Listener, limit int) *connections {
	c := &connections{Listener: l, limit: limit, open: map[*connection]struct{}{}}
	c.room = sync.NewCond(&c.mu)
	return c
}

// Accept returns the next connection and makes room for it.
func (l *connections) Accept() (net.Conn, error) {
	tcp, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: tcp, listener: l}
	c.idleSince.Store(time.Now().UnixNano())
	if victim := l.admit(c); victim != nil {
		_ = victim.Close() // The error is not needed: the client sees that it is closed.
	}
	return c, nil
}

// admit adds a connection. The caller has to close the victim, if any.
func (l *connections) admit(c *connection) (victim *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Store(true) // Before leastUseful looks: an answer after that signals room.
	defer l.waiting.Store(false)
	for len(l.open) >= l.limit && !l.closed {
		if victim = l.leastUseful(); victim != nil {
			delete(l.open, victim)
			break
		}
		l.room.Wait()
	}
	l.open[c] = struct{}{}
	return victim
}

// leastUseful is the connection to close; nil if all are being answered.
func (l *connections) leastUseful() *connection {
	var reviewed, unreviewed *connection // idle the longest
	newcomers := 0
	for c := range l.open {
		switch {
		case c.answering.Load():
		case c.reviewed.Load():
			reviewed = idleLonger(reviewed, c)
		default:
			unreviewed = idleLonger(unreviewed, c)
			newcomers++
		}
	}
	if reviewed == nil || newcomers > l.limit/4 {
		return unreviewed
	}
	return reviewed
}

// idleLonger returns the connection that has been idle longer; a may be nil.
func idleLonger(a, b *connection) *connection {
	if a != nil && a.idleSince.Load() <= b.idleSince.Load() {
		return a
	}
	return b
}

// Close the listener.
func (l *connections) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// Close a connection. The server and the listener may both do that.
func (c *connection) Close() error {
	c.once.Do(func() {
		c.listener.mu.Lock()
		delete(c.listener.open, c)
		c.listener.room.Signal()
		c.listener.mu.Unlock()
	})
	return c.Conn.Close()
}

// connectionKey finds the connection of a request in its context.
type connectionKey struct{}

func connectionOf(c net.Conn) *connection {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	accepted, _ := c.(*connection)
	return accepted
}

// markAnswering keeps the connection open for the answer: the request has arrived completely.
func markAnswering(ctx context.Context) {
	if c, _ := ctx.Value(connectionKey{}).(*connection); c != nil {
		c.answering.Store(true)
		if !c.reviewed.Load() {
			c.reviewed.Store(true)
		}
	}
}

// connectionState is the server's ConnState hook.
func connectionState(conn net.Conn, state http.ConnState) {
	if state != http.StateIdle {
		return
	}
	if c := connectionOf(conn); c != nil {
		c.idleSince.Store(time.Now().UnixNano())
		c.answering.Store(false)
		if c.listener.waiting.Load() {
			c.listener.mu.Lock()
			c.listener.room.Signal()
			c.listener.mu.Unlock()
		}
	}
}
