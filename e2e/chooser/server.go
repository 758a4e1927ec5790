package chooser

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
)

// Server serves a chooser with mutual TLS. Its fields are set before it starts.
type Server struct {
	Chooser

	// Certificate is the server's, and Clients are the CAs of those who may call it.
	Certificate tls.Certificate
	Clients     *x509.CertPool
	// Asked is called with each question before it is answered, if there is one.
	Asked func(*chooserv1.RankRequest)

	rank, status atomic.Pointer[Behaviour]
	server       *grpc.Server
	served       chan error
	connections  atomic.Int64
}

// Behave answers Rank and Status from now on as the Behaviours with these names do.
func (s *Server) Behave(rank, status string) error {
	for _, set := range []struct {
		of   *atomic.Pointer[Behaviour]
		name string
	}{{&s.rank, rank}, {&s.status, status}} {
		behaviour, known := Behaviours[set.name]
		if !known {
			return fmt.Errorf("there is no behaviour %q", set.name)
		}
		set.of.Store(&behaviour)
	}
	return nil
}

// Start listens on an address, HOST:PORT, and serves until Stop. It may be started again then.
func (s *Server) Start(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot start the chooser: %w", err)
	}
	s.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{s.Certificate}, MinVersion: tls.VersionTLS13,
			ClientCAs: s.Clients, ClientAuth: tls.RequireAndVerifyClientCert,
		})),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.UnaryInterceptor(s.intercept),
	)
	chooserv1.RegisterChooserServer(s.server, s)
	s.served = make(chan error, 1)
	go func() { s.served <- s.server.Serve(&counted{listener, &s.connections}) }()
	return nil
}

// Stop at once, as if it was killed: calls under way fail.
func (s *Server) Stop() error {
	if s.server == nil {
		return nil
	}
	s.server.Stop()
	s.server = nil
	return <-s.served
}

// Connections that are open.
func (s *Server) Connections() int { return int(s.connections.Load()) }

func (s *Server) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	of := &s.status
	if r, is := request.(*chooserv1.RankRequest); is {
		of = &s.rank
		if s.Asked != nil {
			s.Asked(r)
		}
	}
	if behaviour := of.Load(); behaviour != nil {
		return (*behaviour)(ctx, request, next)
	}
	return next(ctx, request)
}

// codec sends raw as it is.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if bytes, is := message.(raw); is {
		return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
	}
	return c.CodecV2.Marshal(message)
}

// counted counts the connections of a listener that are open.
type counted struct {
	net.Listener
	open *atomic.Int64
}

func (l *counted) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: connection, open: l.open}, nil
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
