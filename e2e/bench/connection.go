package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// receiveWindow is what a server may send before it hears of us again, in bytes.
	receiveWindow = 1 << 20
	// firstWindow is what may be sent before a server says more (RFC 9113, 6.9.2).
	firstWindow = 65535
	// largestBody is one DATA frame of the size that every server takes.
	largestBody = 16 << 10
)

// connection is one of HTTP/2 over TLS 1.3, with one request in flight. It is for
// a client that shares its processors with the server that it measures: net/http
// takes as much for a request as a server takes for the answer, this a few µs.
// Not for concurrent use.
type connection struct {
	authority string

	tls *tls.Conn
	// framer reads from the connection and writes to out, which is written at
	// once: a request is one record of TLS, one segment of TCP and one system call.
	framer *http2.Framer
	out    bytes.Buffer
	send   struct {
		*hpack.Encoder
		block  bytes.Buffer
		window int // of the connection
		first  int // of each stream
	}
	receive struct {
		*hpack.Decoder
		taken int // bytes of DATA that the server was not told of
	}

	stream uint32
	status string
	body   bytes.Buffer
	ended  bool
}

// dial an HTTP/2 server at host:port, whose certificate is for the config to
// trust, to POST JSON.
func dial(ctx context.Context, address string, config *tls.Config) (*connection, error) {
	config = config.Clone()
	config.NextProtos, config.MinVersion = []string{http2.NextProtoTLS}, tls.VersionTLS13
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", address, err)
	}
	c := &connection{authority: address, tls: conn.(*tls.Conn)}
	if err := c.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot speak HTTP/2 to %s: %w", address, err), c.Close())
	}
	return c, nil
}

func (c *connection) begin() error {
	if p := c.tls.ConnectionState().NegotiatedProtocol; p != http2.NextProtoTLS {
		return fmt.Errorf("it speaks %q", p)
	}
	c.framer = http2.NewFramer(&c.out, bufio.NewReaderSize(c.tls, largestBody))
	c.framer.SetReuseFrames()
	c.send.Encoder = hpack.NewEncoder(&c.send.block)
	c.send.window, c.send.first = firstWindow, firstWindow
	c.receive.Decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			c.status = f.Value
		}
	})
	c.out.WriteString(http2.ClientPreface)
	return errors.Join(
		c.framer.WriteSettings(
			http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: receiveWindow},
		),
		c.framer.WriteWindowUpdate(0, receiveWindow-firstWindow),
		c.flush(),
	)
}

// Close the connection.
func (c *connection) Close() error { return c.tls.Close() }

// SetDeadline of all that follows.
func (c *connection) SetDeadline(t time.Time) error { return c.tls.SetDeadline(t) }

// Post a body to a path and return that of the answer, which is valid until the next one.
// An answer other than 200 is an error.
func (c *connection) Post(path string, body []byte) ([]byte, error) {
	if len(body) > min(largestBody, c.send.first) {
		return nil, fmt.Errorf("a request of %d bytes: at most %d can be sent at once", len(body), min(largestBody, c.send.first))
	}
	for c.send.window < len(body) {
		if err := c.read(); err != nil {
			return nil, err
		}
	}
	if err := c.request(path, body); err != nil {
		return nil, err
	}
	for !c.ended {
		if err := c.read(); err != nil {
			return nil, err
		}
	}
	if c.status != strconv.Itoa(http.StatusOK) {
		return nil, fmt.Errorf("status %s: %s", c.status, c.body.Bytes())
	}
	return c.body.Bytes(), nil
}

// request is sent with the headers that kube-apiserver sends.
func (c *connection) request(path string, body []byte) error {
	if c.stream == 0 {
		c.stream = 1
	} else {
		c.stream += 2
	}
	c.status, c.ended = "", false
	c.body.Reset()
	c.send.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":authority", Value: c.authority},
		{Name: ":method", Value: http.MethodPost},
		{Name: ":path", Value: path},
		{Name: ":scheme", Value: "https"},
		{Name: "accept", Value: "application/json, */*"},
		{Name: "content-type", Value: "application/json"},
		{Name: "content-length", Value: strconv.Itoa(len(body))},
		{Name: "accept-encoding", Value: "gzip"},
		{Name: "user-agent", Value: "kube-apiserver-admission"},
	} {
		if err := c.send.WriteField(f); err != nil {
			return err
		}
	}
	c.send.window -= len(body)
	return errors.Join(
		c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.send.block.Bytes(), EndHeaders: true}),
		c.framer.WriteData(c.stream, true, body),
		c.flush(),
	)
}

// read one frame and do what it asks for.
func (c *connection) read() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		if !f.HeadersEnded() {
			return errors.New("an answer with more headers than one frame has")
		}
		c.ended = f.StreamEnded()
		_, err := c.receive.Write(f.HeaderBlockFragment())
		return errors.Join(err, c.receive.Close())
	case *http2.DataFrame:
		c.body.Write(f.Data())
		c.ended = f.StreamEnded()
		return c.taken(int(f.Length))
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.send.window += int(f.Increment)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return errors.Join(c.framer.WritePing(true, f.Data), c.flush())
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the request was reset: %s", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the connection is to end: %s %s", f.ErrCode, f.DebugData())
	}
	return nil
}

func (c *connection) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if size, ok := f.Value(http2.SettingHeaderTableSize); ok {
		c.send.SetMaxDynamicTableSizeLimit(size)
	}
	if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
		c.send.first = int(size)
	}
	return errors.Join(c.framer.WriteSettingsAck(), c.flush())
}

// taken tells the server now and then that it may send more. The window of the
// stream needs none of that: an answer is smaller, or is an error at its end.
func (c *connection) taken(n int) error {
	if c.receive.taken += n; c.receive.taken < receiveWindow/2 {
		return nil
	}
	n, c.receive.taken = c.receive.taken, 0
	return errors.Join(c.framer.WriteWindowUpdate(0, uint32(n)), c.flush()) //nolint:gosec // The window has 31 bits.
}

func (c *connection) flush() error {
	_, err := c.tls.Write(c.out.Bytes())
	c.out.Reset()
	return err
}
