package webhook

import (
	"bytes"
	"context"
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
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// wholeReview is as the API server sends it.
const wholeReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
	`"kind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},"resource":{"group":"database.example.org","version":"v1","resource":"postgresqlinstances"},` +
	`"requestKind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},"requestResource":{"group":"database.example.org","version":"v1","resource":"postgresqlinstances"},` +
	`"name":"gitlab-database","namespace":"acme-team","operation":"CREATE",` +
	`"userInfo":{"username":"system:serviceaccount:flux-system:kustomize-controller","uid":"b1b8a7c2-5f0e-4c3b-9f55-0c7f6a1f2d3e","groups":["system:serviceaccounts","system:serviceaccounts:flux-system","system:authenticated"]},` +
	`"object":{"apiVersion":"database.example.org/v1","kind":"PostgreSQLInstance","metadata":{"name":"gitlab-database","namespace":"acme-team","creationTimestamp":null,` +
	`"labels":{"app.kubernetes.io/name":"gitlab","team":"acme"},"managedFields":[{"manager":"kustomize-controller","operation":"Apply","apiVersion":"database.example.org/v1","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{"f:classSelector":{},"f:engineVersion":{},"f:storageGB":{},"f:writeConnectionSecretToRef":{}}}}]},` +
	`"spec":{"classSelector":{"matchLabels":{"tier":"gold","region":"us-east-1"}},"engineVersion":"16","storageGB":20,"writeConnectionSecretToRef":{"name":"gitlab-database"}}},` +
	`"oldObject":null,"dryRun":false,"options":{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true,"fieldManager":"kustomize-controller"}}}`

// newHandler binds claims as the command does: with several classes, metrics, and a log
// line in the same form for each.
func newHandler(log io.Writer) *Handler {
	classes := []string{"silver tier=silver region=us-east-1"}
	for i := range 10 {
		classes = append(classes, fmt.Sprintf("gold-%d tier=gold region=us-east-1", i))
	}
	inventory := newInventory(newClaimKind(), index(sqlClasses, classes...))
	binder := &Binder{Snapshot: inventory.Snapshot, Decider: &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now}, Metrics: NewMetrics(inventory.Snapshot)}
	return &Handler{Review: named(binder), Log: newLog(log)}
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
	a := postTo(&Handler{Review: review.Unnamed()})
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
	a.body.Reset(body)
	a.request.ContentLength = int64(len(body))
	a.answers.body.Reset()
	a.status, a.logged.longest = 0, 0
	a.handler.ServeHTTP(&a.answers, a.request)
}

func TestServeHTTP(t *testing.T) {
	var log bytes.Buffer
	a := postTo(newHandler(&log))
	a.ask(wholeReview)
	assert.Contains(t, log.String(), `"resource":"postgresqlinstances","group":"database.example.org","namespace":"acme-team","name":"gitlab-database",`+
		`"requestUID":"705ab4f5-6393-11e8-b7cc-42010a800002","outcome":"bound",`+
		`"audit":{"candidates":"10","class":"SQLClass/gold-4","reason":"MatchingClass","strategy":"WeightedRandom"},"dryRun":false}`, "We should log the decision.")
	assert.JSONEq(t, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,`+
		`"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvY2xhc3NSZWYiLCJ2YWx1ZSI6eyJhcGlWZXJzaW9uIjoiZXhhbXBsZS5vcmcvdjEiLCJraW5kIjoiU1FMQ2xhc3MiLCJuYW1lIjoiZ29sZC00In19XQ==","patchType":"JSONPatch",`+
		`"auditAnnotations":{"candidates":"10","class":"SQLClass/gold-4","reason":"MatchingClass","strategy":"WeightedRandom"}}}`, a.answers.body.String(), "We should answer in the form that the API server reads.")
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

// waits counts how often requests have ever waited for a lock, by the stack of its
// holder. It leaves out the runtime's own locks, of its allocator and its timers, and
// that of pools, which each takes once after a garbage collection.
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
	h.Review = func(ctx context.Context, claimKind string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, func(), error) {
		mu.Lock()
		defer mu.Unlock()
		runtime.Gosched()
		return review(ctx, claimKind, request)
	}
	assert.NotEmpty(t, contended(t, h), "We should see a lock if there were one.")
}

// The garbage of one claim takes time from others. The bound is today's number, and
// some more for other releases of Go.
func TestServeHTTPAllocatesLittle(t *testing.T) {
	a := postTo(newHandler(io.Discard))
	assert.LessOrEqual(t, cost.Allocs(func() { a.ask(wholeReview) }), 105.0)
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
