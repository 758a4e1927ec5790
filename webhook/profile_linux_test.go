package webhook

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// BenchmarkParts measures the CPU time of one review by part, for docs/performance.md.
func BenchmarkParts(b *testing.B) {
	b.Run("Handler", benchmarkHandler)
	b.Run("Connection", benchmarkConnection)
}

// benchmarkHandler measures the parts of classbind's own, without a network, and all of them together.
func benchmarkHandler(b *testing.B) {
	binder := goldBinder()
	view := binder.Snapshot()[claimKindName]
	decode := func() (*admissionv1.AdmissionRequest, claim.Intake) {
		request, _, err := decodeReview([]byte(wholeReview))
		require.NoError(b, err)
		object, err := view.Kind.Reader.DecodeValid(request.Object.Raw)
		require.NoError(b, err)
		return request, view.Kind.Reader.Read(request.Namespace, request.Name, object)
	}
	request, in := decode()
	decide := func() selector.Decision {
		decision, err := binder.Decider.Decide(b.Context(), view, in, selector.Mode{})
		require.NoError(b, err)
		return decision
	}
	decision := decide()
	encoded := func() []byte {
		response := answer(request, &decision)
		response.UID = request.UID
		makePrintable(response)
		return encode(response)
	}
	counted := &verdict{
		metrics: binder.Metrics, log: logr.Discard(), request: request, view: view, decision: decision, response: answer(request, &decision),
	}
	all, part := postTo(&Handler{Review: named(binder)}), postTo(&Handler{})
	body := encoded()
	for _, p := range []struct {
		name string
		do   func()
	}{
		{"Read", func() {
			part.send(wholeReview)
			_, err := read(part, part.request, &reservation{ctx: b.Context()})
			require.NoError(b, err)
		}},
		{"Decode", func() { decode() }},
		{"Decide", func() { decide() }},
		{"Encode", func() { encoded() }},
		{"Write", func() {
			part.answers.body.Reset()
			part.handler.reply(part, http.StatusOK, body)
		}},
		{"Count", counted.record},
		{"Together", func() { all.ask(wholeReview) }},
	} {
		b.Run(p.name, func(b *testing.B) { perReview(b, p.do) })
	}
	require.Equal(b, string(body), all.answers.body.String(), "We should measure the parts of what the handler does.")
}

// benchmarkConnection measures what a connection costs. Each row has all of the one before it: bytes over TCP, then over TLS, then as HTTP
// with a handler that answers the same, then classbind. Client and server are in one process, and the client does as little as it can.
func benchmarkConnection(b *testing.B) {
	handler := &Handler{Review: named(goldBinder())}
	message := "POST /bind/" + claimKindName + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(wholeReview)) + "\r\n\r\n" + wholeReview
	once := postTo(handler)
	once.ask(wholeReview)
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		handler.reply(w, http.StatusOK, once.answers.body.Bytes())
	})
	const bytes = "HTTP/1.1 200 OK\r\nContent-Length: 463\r\nContent-Type: application/json\r\nDate: Sun, 29 Nov 2026 12:00:00 GMT\r\n\r\n"
	for _, c := range []struct {
		name   string
		secure bool
		serve  http.Handler // nil for bytes alone
	}{
		{"TCP", false, nil},
		{"TLS", true, nil},
		{"HTTP", true, answers},
		{"Classbind", true, handler},
	} {
		b.Run(c.name, func(b *testing.B) {
			listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
			require.NoError(b, err)
			defer func() { _ = listener.Close() }()
			if c.secure {
				stand := httptest.NewTLSServer(nil) // for its certificate
				stand.Close()
				listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: stand.TLS.Certificates})
			}
			if c.serve != nil {
				server := NewServer(ServerOptions{}).newHTTPServer()
				server.Handler = c.serve
				go func() { _ = server.Serve(listener) }()
			} else {
				go answerBytes(listener, len(message), bytes+once.answers.body.String())
			}
			client, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", listener.Addr().String())
			require.NoError(b, err)
			defer func() { _ = client.Close() }()
			if c.secure {
				client = tls.Client(client, insecure)
			}
			from := bufio.NewReader(client)
			perReview(b, func() {
				_, err := io.WriteString(client, message)
				require.NoError(b, err)
				_, err = from.Peek(1)
				require.NoError(b, err)
				_, err = from.Discard(from.Buffered())
				require.NoError(b, err)
			})
		})
	}
}

// answerBytes answers requests of a length on one connection, whatever they say.
func answerBytes(l net.Listener, request int, answer string) {
	c, err := l.Accept()
	for body := make([]byte, request); err == nil; _, err = io.WriteString(c, answer) {
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
	}
}

// perReview reports the CPU time of this process for each call of a function, the kernel's part included.
func perReview(b *testing.B, do func()) {
	b.Helper()
	used := func() time.Duration {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	do()
	began, times := used(), 0
	for b.Loop() {
		do()
		times++
	}
	b.ReportMetric(float64(used()-began)/float64(times)/1000, "cpu-µs/op")
}
