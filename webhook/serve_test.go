package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// wholeReview is as the API server sends it.
const wholeReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
	`"kind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},"resource":{"group":"database.example.org",` +
	`"version":"v1","resource":"postgresqlinstances"},` +
	`"requestKind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},` +
	`"requestResource":{"group":"database.example.org","version":"v1","resource":"postgresqlinstances"},` +
	`"name":"gitlab-database","namespace":"acme-team","operation":"CREATE",` +
	`"userInfo":{"username":"system:serviceaccount:flux-system:kustomize-controller","uid":"b1b8a7c2-5f0e-4c3b-9f55-0c7f6a1f2d3e",` +
	`"groups":["system:serviceaccounts","system:serviceaccounts:flux-system","system:authenticated"]},` +
	`"object":{"apiVersion":"database.example.org/v1","kind":"PostgreSQLInstance","metadata":{"name":"gitlab-database","namespace":"acme-team",` +
	`"creationTimestamp":null,` +
	`"labels":{"app.kubernetes.io/name":"gitlab","team":"acme"},"managedFields":[{"manager":"kustomize-controller","operation":"Apply",` +
	`"apiVersion":"database.example.org/v1","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{"f:classSelector":{},"f:engineVersion":{},` +
	`"f:storageGB":{},"f:writeConnectionSecretToRef":{}}}}]},` +
	`"spec":{"classSelector":{"matchLabels":{"tier":"gold","region":"us-east-1"}},"engineVersion":"16","storageGB":20,` +
	`"writeConnectionSecretToRef":{"name":"gitlab-database"}}},` +
	`"oldObject":null,"dryRun":false,"options":{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true,"fieldManager":"kustomize-controller"}}}`

// goldBinder binds claims as the command does: with several classes, and metrics.
func goldBinder() *Binder {
	classes := []string{"silver tier=silver region=us-east-1"}
	for i := range 10 {
		classes = append(classes, fmt.Sprintf("gold-%d tier=gold region=us-east-1", i))
	}
	inventory := newInventory(newClaimKind(), index(sqlClasses, classes...))
	return &Binder{
		Snapshot: inventory.Snapshot,
		Decider:  &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now},
		Metrics:  NewMetrics(inventory.Snapshot),
	}
}

// newHandler writes a log line for each review, too, in the form of the command's.
func newHandler(log io.Writer) *Handler {
	return &Handler{Review: named(goldBinder()), Log: newLog(log)}
}

// newLog returns a log in the form of the command's.
func newLog(to io.Writer) logr.Logger {
	return zapr.NewLogger(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(to), zap.DebugLevel)))
}

// answers is a ResponseWriter that can be used again.
type answers struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answers) Header() http.Header         { return a.header }
func (a *answers) WriteHeader(status int)      { a.status = status }
func (a *answers) Write(p []byte) (int, error) { return a.body.Write(p) }
func (a *answers) FlushError() error           { return nil }

// post asks a handler again and again, and reuses the request and the answer.
type post struct {
	answers
	handler *Handler
	request *http.Request
	body    strings.Reader
	logged  lineWriter
}

// newPost notes what is logged.
func newPost(review Reviewer) *post {
	a := postTo(&Handler{Review: review})
	a.handler.Log = newLog(&a.logged)
	return a
}

func postTo(h *Handler) *post {
	a := &post{answers: answers{header: http.Header{}}, handler: h, request: httptest.NewRequest(http.MethodPost, "/bind", nil)}
	a.request.Header.Set("Content-Type", "application/json")
	a.request.Body = io.NopCloser(&a.body)
	return a
}

func (a *post) ask(body string) {
	a.send(body)
	a.answers.body.Reset()
	a.status, a.logged.longest = 0, 0
	a.handler.ServeHTTP(&a.answers, a.request)
}

func (a *post) send(body string) {
	a.body.Reset(body)
	a.request.ContentLength = int64(len(body))
}

func TestServeHTTP(t *testing.T) {
	var log bytes.Buffer
	a := postTo(newHandler(&log))
	a.ask(wholeReview)
	assert.Contains(t, log.String(), `"resource":"postgresqlinstances","group":"database.example.org","namespace":"acme-team","name":"gitlab-database",`+
		`"requestUID":"705ab4f5-6393-11e8-b7cc-42010a800002","outcome":"bound",`+
		`"audit":{"candidates":"10","class":"SQLClass/gold-4","reason":"MatchingClass","strategy":"WeightedRandom"},"dryRun":false}`, "We should log the decision.")
	assert.JSONEq(t, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,`+
		`"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvY2xhc3NSZWYiLCJ2YWx1ZSI6eyJhcGlWZXJzaW9uIjoiZXhhbXBsZS5vcmcvdjEiLCJraW5kIjoiU1FMQ2xhc3MiLCJuYW1l`+
		`IjoiZ29sZC00In19XQ==","patchType":"JSONPatch",`+
		`"auditAnnotations":{"candidates":"10","class":"SQLClass/gold-4","reason":"MatchingClass","strategy":"WeightedRandom"}}}`,
		a.answers.body.String(), "We should answer in the form that the API server reads.")
	assert.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(a.answers.body.Len())}}, a.header)
}

// contended returns the stacks of the locks for which requests wait for each other.
func contended(t *testing.T, h *Handler) (stacks []string) {
	t.Helper()
	postTo(h).ask(wholeReview) // It creates the counters of its kind.
	before := waits(t)
	fraction := runtime.SetMutexProfileFraction(1)
	defer runtime.SetMutexProfileFraction(fraction)
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			a := postTo(h)
			for range 500 {
				a.ask(wholeReview)
			}
		})
	}
	working.Wait()
	for stack, n := range waits(t) {
		if n > before[stack] {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// waits counts how often requests have ever waited for a lock, by the stack of its holder. It leaves out the runtime's own locks, of its
// allocator and its timers, and that of pools, which each takes once after a garbage collection.
func waits(t *testing.T) map[string]int64 {
	t.Helper()
	records := make([]runtime.BlockProfileRecord, 10_000)
	n, ok := runtime.MutexProfile(records)
	require.True(t, ok)
	counts := map[string]int64{}
	for _, r := range records[:n] {
		var functions []string
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			functions = append(functions, frame.Function)
		}
		stack := strings.Join(functions, "\n")
		if slices.Contains(functions, "github.com/classbind/classbind/webhook.(*Handler).ServeHTTP") &&
			strings.HasPrefix(functions[0], "sync.") && !strings.Contains(stack, "sync.(*Pool)") {
			counts[stack] += r.Count
		}
	}
	return counts
}

func TestNoClaimWaitsForAnother(t *testing.T) {
	h := newHandler(io.Discard)
	assert.Empty(t, contended(t, h), "We should take no lock on a claim's way.")

	var mu sync.Mutex
	review := h.Review
	h.Review = func(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		runtime.Gosched()
		return review(ctx, request)
	}
	assert.NotEmpty(t, contended(t, h), "We should see a lock if there were one.")
}

// The garbage of one claim takes time from others. The bound is today's number, and some more for other releases of Go.
func TestServeHTTPAllocatesLittle(t *testing.T) {
	a := postTo(newHandler(io.Discard))
	assert.LessOrEqual(t, cost.Allocs(func() { a.ask(wholeReview) }), 90.0)
}

func BenchmarkServeHTTP(b *testing.B) {
	a := postTo(newHandler(io.Discard))
	b.ReportAllocs()
	for b.Loop() {
		a.ask(wholeReview)
	}
	if a.status != http.StatusOK || !strings.Contains(a.answers.body.String(), `"patch"`) {
		b.Fatal(a.status, a.answers.body.String())
	}
}

// A body has to arrive while the API server waits for the answer.
func TestServeHTTPWaitsForNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		listener := &oneConnection{connections: make(chan net.Conn, 1)}
		listener.connections <- server
		s := &http.Server{Handler: newHandler(io.Discard), ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(listener) }()
		begin := time.Now()
		go func() {
			_, _ = io.WriteString(client, "POST /bind/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		}()
		answer, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Contains(t, string(answer), "HTTP/1.1 400 Bad Request", "We should say that it did not come.")
		assert.Contains(t, string(answer), "cannot read the request: ", "We should say that it did not come.")
		assert.Equal(t, deadline, time.Since(begin).Truncate(time.Second/10), "We should wait for no longer than the API server.")
		assert.NoError(t, s.Close())
	})
}

// oneConnection is a listener with one connection to accept.
type oneConnection struct{ connections chan net.Conn }

func (o *oneConnection) Accept() (net.Conn, error) {
	if c, ok := <-o.connections; ok {
		return c, nil
	}
	return nil, errors.New("closed")
}
func (o *oneConnection) Close() error   { close(o.connections); return nil }
func (o *oneConnection) Addr() net.Addr { return &net.IPAddr{} }

// started serves reviews at /bind, on at most maxConnections.
func started(t *testing.T, maxConnections int, http2 bool, review Reviewer) (address string) {
	t.Helper()
	stand := httptest.NewTLSServer(nil) // for its certificate
	certificates := stand.TLS.Certificates
	stand.Close()
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(ServerOptions{
		Address: tcp.Addr().String(), HTTP2: http2, MaxConnections: maxConnections,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.Certificates = certificates }},
	})
	s.mux.Handle(BindPattern, &Handler{Review: review, BodyBudget: semaphore.NewWeighted(v1beta1.MaxReviewBytesInFlight)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, tcp) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return tcp.Addr().String()
}

var insecure = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // It is a test's.

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := (&tls.Dialer{Config: insecure}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// review is sent on a connection of its own.
func review(t *testing.T, address string) {
	t.Helper()
	c := dial(t, address)
	ask1(t, c)
	require.NoError(t, c.Close())
}

// ask1 sends a review and reads its answer.
func ask1(t *testing.T, c net.Conn) {
	t.Helper()
	status, err := exchange(c)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, "We should answer.")
}

func exchange(c net.Conn) (status int, err error) {
	if _, err := fmt.Fprintf(
		c, "POST /bind/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(goodReview), goodReview,
	); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// A client that holds all connections, in whatever way, stops no one else.
func TestServerServesBesideHostileConnections(t *testing.T) {
	const most = 4
	for name, tc := range map[string]struct{ reason, sends string }{
		"Idle":       {"We should close a connection on which nothing comes, for one that asks.", ""},
		"SlowHeader": {"We should close a connection whose header does not come.", "POST /bind/a HTTP/1.1\r\nHost: a\r\n"},
		"SlowBody": {
			"We should close a connection whose body does not come.",
			"POST /bind/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := started(t, most, false, admit)
			known := dial(t, address)
			ask1(t, known)
			for range 5 {
				for range 2 * most {
					c := dial(t, address)
					_, err := io.WriteString(c, tc.sends)
					require.NoError(t, err)
				}
				review(t, address)
			}
			ask1(t, known) // It has had a review, so it is not closed for those without one.
		})
	}
}

// Even if all connections are held and have had a review, the next has time for its own.
func TestServerServesBesideHostileReviews(t *testing.T) {
	const most = 8
	address := started(t, most, false, admit)
	hostile := func() { ask1(t, dial(t, address)) }
	for range most {
		hostile()
	}
	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	for range 2 * most {
		hostile()
	}
	ask1(t, tls.Client(slow, insecure))
	assert.NoError(t, slow.Close())
}

// One connection of HTTP/2 has few reviews at once.
func TestServerLimitsStreams(t *testing.T) {
	const many = 2 * v1beta1.MaxStreams
	var mu sync.Mutex
	at, most := map[any]int{}, 0 // reviews, by connection
	begun, finish := make(chan struct{}, many), make(chan struct{})
	address := started(t, 100, true, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		mu.Lock()
		at[ctx.Value(connectionKey{})]++
		most = max(most, at[ctx.Value(connectionKey{})])
		mu.Unlock()
		begun <- struct{}{}
		<-finish
		return admit(ctx, r)
	})
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: insecure.Clone(), Protocols: protocols}
	defer transport.CloseIdleConnections()
	answered := make(chan error, many)
	for range many {
		go func() {
			//nolint:noctx // It ends with the server.
			answer, err := (&http.Client{Transport: transport}).Post(
				"https://"+address+v1beta1.BindPath+claimKindName, "application/json", strings.NewReader(goodReview),
			)
			if err == nil {
				err = answer.Body.Close()
			}
			answered <- err
		}()
	}
	for range many {
		<-begun
	}
	close(finish)
	for range many {
		require.NoError(t, <-answered, "We should answer on further connections.")
	}
	assert.LessOrEqual(t, most, v1beta1.MaxStreams, "We should take no more at once on one connection.")
	assert.Greater(t, most, 1, "We should take several at once.")
}

// A review that is being answered is not given up for others.
func TestServerKeepsWhatItAnswers(t *testing.T) {
	const most = 2
	begun, finish := make(chan struct{}, most), make(chan struct{})
	address := started(t, most, false, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		begun <- struct{}{}
		<-finish
		return admit(ctx, r)
	})
	answered := make(chan error)
	for range most {
		c := dial(t, address)
		go func() {
			status, err := exchange(c)
			if status != http.StatusOK {
				err = errors.Join(err, fmt.Errorf("status %d", status))
			}
			answered <- err
		}()
	}
	for range most {
		<-begun
	}
	waiting, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	close(finish)
	for range most {
		require.NoError(t, <-answered, "We should answer what has begun.")
	}
	assert.NoError(t, tls.Client(waiting, insecure).HandshakeContext(t.Context()), "We should take the next as soon as one is answered.")
	assert.NoError(t, waiting.Close())
}

func TestServerSpeaks(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		http2  bool
		offer  []string
		want   string
	}{
		"HTTP1":     {"We should speak HTTP/1.1 alone.", false, []string{"h2", "http/1.1"}, "http/1.1"},
		"HTTP2":     {"We should speak HTTP/2 where it is turned on.", true, []string{"h2"}, "h2"},
		"Preferred": {"We should prefer HTTP/1.1 even then.", true, []string{"h2", "http/1.1"}, "http/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			config := insecure.Clone()
			config.NextProtos = tc.offer
			c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", started(t, 10, tc.http2, admit))
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, c.(*tls.Conn).ConnectionState().NegotiatedProtocol, tc.reason)
			assert.NoError(t, c.Close())
		})
	}
}

func TestServerLimits(t *testing.T) {
	s := NewServer(ServerOptions{}).newHTTPServer()
	assert.Greater(t, s.IdleTimeout, 90*time.Second, "We should not close a connection that the API server is about to use.")
	assert.Greater(t, s.ReadHeaderTimeout, 90*time.Second, "We should not close one that it has not used yet either.")
	assert.Greater(t, s.WriteTimeout, 2*deadline, "We should have time to read a review, and to answer it.")
	assert.Zero(t, s.ReadTimeout, "We should not count the time before a review is sent.")

	address := started(t, 10, false, admit)
	c := dial(t, address)
	_, err := io.WriteString(c, "POST /bind/a HTTP/1.1\r\nHost: a\r\nA: "+strings.Repeat("a", 32<<10)+"\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode, "We should limit the header.")
}
