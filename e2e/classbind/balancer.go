package classbind

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
)

// Balancer is what a Service would be: one address for several replicas. It hands on connections, not requests, so TLS stays between the
// API server and the replica.
type Balancer struct {
	// URL of the replicas, for --webhook-url.
	URL string

	listener net.Listener

	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]bool
}

// NewBalancer listens on a free port. Without a backend it ends every connection.
func NewBalancer() (*Balancer, error) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	b := &Balancer{URL: fmt.Sprintf("https://localhost:%d", port), listener: l, open: map[net.Conn]bool{}}
	go b.serve()
	return b, nil
}

// Close ends no connection that is open.
func (b *Balancer) Close() error { return b.listener.Close() }

// Cut every connection that is open. New ones are handed on.
func (b *Balancer) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		_ = c.Close()
	}
}

// Add a backend, host:port, to those that new connections go to in turn. One that does not accept its connection is passed over.
func (b *Balancer) Add(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, backend)
}

// Remove a backend. Connections to it go on.
func (b *Balancer) Remove(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.DeleteFunc(b.backends, func(s string) bool { return s == backend })
}

func (b *Balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.handOn(client)
	}
}

func (b *Balancer) handOn(client net.Conn) {
	defer func() { _ = client.Close() }()
	b.mu.Lock()
	b.open[client] = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, client)
	}()
	for _, backend := range b.turn() {
		server, err := net.Dial("tcp", backend)
		if err != nil {
			continue
		}
		go func() {
			// The end of one direction is the end of both: neither side of TLS goes on when the other has ended.
			defer func() { _ = client.Close() }()
			_, _ = io.Copy(client, server)
		}()
		_, _ = io.Copy(server, client)
		_ = server.Close()
		return
	}
}

// turn is the order in which to try the backends.
func (b *Balancer) turn() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 {
		return nil
	}
	b.next = (b.next + 1) % len(b.backends)
	return slices.Concat(b.backends[b.next:], b.backends[:b.next])
}
