package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections are accepted up to a limit. At the limit, one makes room for the next:
// where many have had no review yet, the oldest of those, and else the one that has
// been idle the longest since its review. Whoever holds all connections then locks
// nobody out: a new one has time for its first review, however many had theirs, and
// those that had theirs stay, however many are new. A limit that only has the next one
// wait, as that of x/net/netutil, lets whoever holds idle connections lock all others out.
type connections struct {
	net.Listener

	most int

	mu   sync.Mutex
	open map[*connection]struct{}
	// room is signalled when a connection is closed, or may be, while one waits.
	room    *sync.Cond
	waiting atomic.Bool
	closed  bool
}

// connection of a client.
type connection struct {
	net.Conn

	of   *connections
	once sync.Once
	// review says that one has come on it, ever.
	review atomic.Bool
	// answering says that one has come whole, and has no answer yet.
	answering atomic.Bool
	// since when nothing is answered on it, in nanoseconds.
	since atomic.Int64
}

func newConnections(l net.Listener, most int) *connections {
	c := &connections{Listener: l, most: most, open: map[*connection]struct{}{}}
	c.room = sync.NewCond(&c.mu)
	return c
}

// Accept the next connection, and make room for it.
func (l *connections) Accept() (net.Conn, error) {
	tcp, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: tcp, of: l}
	c.since.Store(time.Now().UnixNano())
	if victim := l.admit(c); victim != nil {
		_ = victim.Close() // Its client is to see that it is closed; there is no one else to tell.
	}
	return c, nil
}

// admit a connection, in the place of the one that it returns.
func (l *connections) admit(c *connection) (victim *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Store(true) // Before it looks: whoever is done after that sees it.
	defer l.waiting.Store(false)
	for len(l.open) >= l.most && !l.closed {
		if victim = l.least(); victim != nil {
			delete(l.open, victim)
			break
		}
		l.room.Wait()
	}
	l.open[c] = struct{}{}
	return victim
}

// least is the connection that is missed the least, nil where all are being answered.
func (l *connections) least() *connection {
	var reviewed, unreviewed *connection // idle the longest
	newcomers := 0
	for c := range l.open {
		switch {
		case c.answering.Load():
		case c.review.Load():
			reviewed = idleLonger(reviewed, c)
		default:
			unreviewed = idleLonger(unreviewed, c)
			newcomers++
		}
	}
	if reviewed == nil || newcomers > l.most/4 {
		return unreviewed
	}
	return reviewed
}

// idleLonger is the one of two connections that has been idle for longer; a may be nil.
func idleLonger(a, b *connection) *connection {
	if a != nil && a.since.Load() <= b.since.Load() {
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

// Close a connection, which the server and the listener may do.
func (c *connection) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.room.Signal()
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection has a request know on which connection it came.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if of := connectionOf(c); of != nil {
		return context.WithValue(ctx, connectionKey{}, of)
	}
	return ctx
}

func connectionOf(c net.Conn) *connection {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	of, _ := c.(*connection)
	return of
}

// answering says that a request has come whole, whose answer its connection has to
// stay open for.
func answering(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.answering.Store(true)
		if !c.review.Load() {
			c.review.Store(true)
		}
	}
}

// connectionState is told by the server.
func connectionState(conn net.Conn, state http.ConnState) {
	if state != http.StateIdle {
		return
	}
	if c := connectionOf(conn); c != nil {
		c.since.Store(time.Now().UnixNano())
		c.answering.Store(false)
		if c.of.waiting.Load() {
			c.of.mu.Lock()
			c.of.room.Signal()
			c.of.mu.Unlock()
		}
	}
}
