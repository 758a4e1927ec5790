package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	webhookserver "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/classbind/classbind/api/v1alpha1"
)

const (
	// idleTimeout is longer than the API server's, 90 s. If we closed a connection
	// first, a review might be on its way, and it would not be sent again.
	idleTimeout = 3 * time.Minute
	// writeTimeout is longer than it takes to read a review and to answer it.
	writeTimeout = 4 * deadline
	// shutdownTimeout is how long the server waits for answers when it shuts down.
	shutdownTimeout = time.Minute
)

// ServerOptions of a Server.
type ServerOptions struct {
	// Address is host:port.
	Address string
	// HTTP2 is offered beside HTTP/1.1.
	HTTP2 bool
	// TLSOpts change the TLS configuration, in this order.
	TLSOpts []func(*tls.Config)
	// MaxConnections at once; 0 means v1alpha1.MaxConnections.
	MaxConnections int
	Log            logr.Logger
}

// Server serves the webhooks. It takes the handlers and their metrics from
// controller-runtime's server, which limits neither connections nor their time.
type Server struct {
	webhookserver.Server

	options ServerOptions
	mux     *http.ServeMux
	started atomic.Bool
}

// NewServer returns a server for a manager to start.
func NewServer(o ServerOptions) *Server {
	mux := http.NewServeMux()
	if o.MaxConnections == 0 {
		o.MaxConnections = v1alpha1.MaxConnections
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
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		ended <- server.Shutdown(ctx)
	})
	defer stop()
	s.options.Log.Info("Serving the webhooks", "address", tcp.Addr().String(), "http2", s.options.HTTP2)
	s.started.Store(true)
	if err := server.Serve(tls.NewListener(limited, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the webhooks: %w", err)
	}
	if err := <-ended; err != nil {
		s.options.Log.Error(err, "Ended before all reviews were answered")
	}
	return nil
}

// newHTTPServer limits what a client may take. The handler limits the time to send a
// review, because ReadTimeout would start when the connection opens. Connections that
// are idle, or have sent nothing yet, are closed only if their place is needed.
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
		MaxHeaderBytes:    v1alpha1.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: v1alpha1.MaxStreams,
			// Bytes that wait to be read take memory, too.
			MaxReceiveBufferPerConnection: v1alpha1.FreeReviewBytes,
		},
		ConnContext: withConnection,
		ConnState:   connectionState,
	}
}

// StartedChecker tries a TLS handshake with the server.
func (s *Server) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhook server has not been started yet")
		}
		dialer := &tls.Dialer{
			NetDialer: &net.Dialer{Timeout: 10 * time.Second},
			Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // It is this process, and is sent nothing.
		}
		connection, err := dialer.DialContext(r.Context(), "tcp", s.options.Address)
		if err != nil {
			return fmt.Errorf("cannot reach the webhook server: %w", err)
		}
		return connection.Close()
	}
}
