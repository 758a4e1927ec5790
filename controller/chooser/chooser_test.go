package chooser

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/selectortest"
)

// server is a chooser.
type server struct {
	chooserv1.UnimplementedChooserServer

	address string
	running *grpc.Server
	epoch   atomic.Pointer[string]
	asked   atomic.Int64
	rank    func(context.Context, *chooserv1.RankRequest) (*chooserv1.RankResponse, error)
	answers func() // is called before each answer to Status, if it is set
}

func (s *server) Status(context.Context, *chooserv1.StatusRequest) (*chooserv1.StatusResponse, error) {
	epoch := *s.epoch.Load()
	if s.answers != nil {
		s.answers()
	}
	return &chooserv1.StatusResponse{Epoch: epoch}, nil
}

func (s *server) Rank(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
	s.asked.Add(1)
	return s.rank(ctx, r)
}

func (s *server) setEpoch(epoch string) { s.epoch.Store(&epoch) }

// world is a CA with a chooser, and the side of classbind.
type world struct {
	ca        *certtest.Pair
	server    *server
	choosers  *Choosers
	external  *v1beta1.External
	l         *connection
	presented atomic.Pointer[tls.Certificate]
	secret    string // the name of one with the client certificate
}

func leaf(t testing.TB, ca *certtest.Pair, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	pair := ca.Sign(t, template)
	return &tls.Certificate{Certificate: pair.Chain, PrivateKey: pair.Key}
}

func bundleOf(ca *certtest.Pair) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate.Raw})
}

func poolOf(ca *certtest.Pair) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	return pool
}

// newWorld has a chooser that puts the candidates in the reverse order.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{ca: certtest.NewCA(t), server: &server{rank: func(_ context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		order := &chooserv1.Order{}
		for i := range r.GetCandidates() {
			order.Ids = append(order.Ids, r.GetCandidates()[len(r.GetCandidates())-1-i].GetId())
		}
		return ordered(r.GetEpoch(), 0, order), nil
	}}}
	w.server.setEpoch("one")
	w.presented.Store(leaf(t, w.ca, &x509.Certificate{}))
	w.choosers = New()
	w.choosers.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.presented.Load(), nil }
	return w
}

func (w *world) config(t testing.TB) *tls.Config {
	t.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*leaf(t, w.ca, &x509.Certificate{})},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: poolOf(w.ca),
	}
}

// serve at the address of the chooser, or at a new one, until the test ends.
func (w *world) serve(t testing.TB, change func(*tls.Config), options ...grpc.ServerOption) {
	t.Helper()
	config := w.config(t)
	if change != nil {
		change(config)
	}
	listener, err := net.Listen("tcp", cmp.Or(w.server.address, "127.0.0.1:0"))
	require.NoError(t, err)
	w.server.address = listener.Addr().String()
	running := grpc.NewServer(append(options, grpc.Creds(credentials.NewTLS(config)))...)
	chooserv1.RegisterChooserServer(running, w.server)
	w.server.running = running
	done := make(chan struct{})
	go func() { defer close(done); _ = running.Serve(listener) }()
	t.Cleanup(func() { running.Stop(); <-done })
}

// connected waits for the connection: gRPC may answer a call before its state is Ready.
func (w *world) connected(t testing.TB) {
	t.Helper()
	w.connect(t)
	require.Eventually(t, w.l.isConnected, time.Minute, time.Millisecond)
}

// connect without asking for the status again later.
func (w *world) connect(t testing.TB) {
	t.Helper()
	w.external = &v1beta1.External{
		Host: w.server.address, CABundle: bundleOf(w.ca), Timeout: "1s",
		ClientCertificate: v1beta1.ChooserClientCertificate{SecretName: w.secret},
		Fields:            v1beta1.ChooserFields{Class: []v1beta1.Place{{Path: ".metadata.name"}}},
	}
	w.l = w.choosers.newConnection("claims.test", w.external)
	w.choosers.connections.Store(&map[string]*connection{"claims.test": w.l})
	t.Cleanup(func() { _ = w.l.conn.Close() })
	w.l.readSecret(t.Context())
	w.l.poll(t.Context())
}

func (w *world) question(names ...string) *selector.Question {
	claims := selectortest.ClaimKind(func(s *v1beta1.ClaimKindSpec) {
		s.Choice = v1beta1.Choice{Strategy: v1beta1.ExternalStrategy, External: w.external}
	})
	claims.Name = "claims.test"
	classes := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.test"}}
	classes.Spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: claims.Name}}
	kind := inventory.NewClassKind(classes, schema.GroupVersionKind{Group: "test", Version: "v1", Kind: "Gold"}, false, claims)
	q := &selector.Question{Kind: selector.NewClaimKind(claims, classes), Namespace: "team", Key: "team", Claim: "{}"}
	for _, name := range names {
		content := map[string]any{"metadata": map[string]any{"name": name}}
		q.Candidates = append(q.Candidates, kind.NewClass(&metav1.ObjectMeta{Name: name}, content))
	}
	return q
}

func (w *world) ask(t testing.TB, names ...string) (answer string) {
	t.Helper()
	return w.askFor(t, w.question(names...))
}

func (w *world) askFor(t testing.TB, q *selector.Question) string {
	t.Helper()
	a := w.choosers.Choose(t.Context(), q)
	text := a.String()
	if a.OwnDoing {
		text += " by itself"
	}
	if a.Soon {
		text += " soon"
	}
	for _, c := range a.Order {
		text += " " + c.Name
	}
	if a.Exclusive {
		text += " alone"
	}
	return text
}

// counted is a metric of the claim kind.
func (w *world) counted(t *testing.T, metric string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.choosers, w.choosers.answers, w.choosers.unknown)
	return controllertest.Scraped(t, registry)[metric]
}

func ordered(epoch string, valid time.Duration, order *chooserv1.Order) *chooserv1.RankResponse {
	return &chooserv1.RankResponse{Epoch: epoch, ValidFor: durationpb.New(valid), Answer: &chooserv1.RankResponse_Order{Order: order}}
}

// garbage is what a chooser writes instead of messages.
type garbage struct{}

func (garbage) Name() string                { return "proto" }
func (garbage) Marshal(any) ([]byte, error) { return []byte("\xff\xff\xff"), nil }
func (garbage) Unmarshal([]byte, any) error { return nil }

func TestAnswers(t *testing.T) {
	manyIDs := make([]string, 100_000)
	for i := range manyIDs {
		manyIDs[i] = strconv.Itoa(i)
	}
	none := &chooserv1.RankResponse{Epoch: "one", Answer: &chooserv1.RankResponse_NoClass{NoClass: &chooserv1.NoClass{Message: "no"}}}
	for name, tc := range map[string]struct {
		reason   string
		response *chooserv1.RankResponse
		err      error
		want     string
		outcome  string // in the metric
		unknown  float64
	}{
		"Order": {
			reason:   "We should read an order.",
			response: ordered("one", 0, &chooserv1.Order{Ids: []string{"2", "0"}}),
			want:     "Order c a", outcome: "Order",
		},
		"Exclusive": {
			reason:   "We should read that others are not to be given.",
			response: ordered("one", 0, &chooserv1.Order{Ids: []string{"1", "1"}, Exclusive: true}),
			want:     "Order b alone", outcome: "Order",
		},
		"Unknown": {
			reason:   "We should ignore what the question does not have, and count it.",
			response: ordered("one", 0, &chooserv1.Order{Ids: []string{"3", "-1", "01", "", "a", "1"}}),
			want:     "Order b", outcome: "Order", unknown: 5,
		},
		"AllUnknown": {
			reason:   "An order without a candidate should be no answer.",
			response: ordered("one", 0, &chooserv1.Order{Ids: []string{"7"}, Exclusive: true}),
			want:     "Unavailable=Invalid", outcome: "Invalid", unknown: 1,
		},
		"EmptyOrder": {
			reason:   "An empty order should be no answer.",
			response: ordered("one", 0, &chooserv1.Order{}),
			want:     "Unavailable=Invalid", outcome: "Invalid",
		},
		"None": {reason: "We should read that there is none.", response: none, want: "NoClass", outcome: "NoClass"},
		"NoOpinion": {
			reason:   "We should read that there is no opinion.",
			response: &chooserv1.RankResponse{Epoch: "one", Answer: &chooserv1.RankResponse_NoOpinion{}},
			want:     "NoOpinion", outcome: "NoOpinion",
		},
		"Nothing": {
			reason:   "A message without an answer should be none.",
			response: &chooserv1.RankResponse{Epoch: "one"},
			want:     "Unavailable=Invalid", outcome: "Invalid",
		},
		"ManyIDs": {
			reason:   "We should read no more than a limit.",
			response: ordered("one", 0, &chooserv1.Order{Ids: manyIDs}),
			want:     "Unavailable=TooLarge", outcome: "TooLarge",
		},
		"Large": {
			reason: "We should read no long message.",
			response: &chooserv1.RankResponse{Epoch: "one", Answer: &chooserv1.RankResponse_NoClass{
				NoClass: &chooserv1.NoClass{Message: strings.Repeat("x", 5<<20)},
			}},
			want: "Unavailable=TooLarge", outcome: "TooLarge",
		},
		"OtherEpoch": {
			reason:   "An answer from other data than those of Status should not count.",
			response: ordered("two", 0, &chooserv1.Order{Ids: []string{"0"}}),
			want:     "Unavailable=Epoch", outcome: "Epoch",
		},
		"Unimplemented": {
			reason: "A program that is no chooser should be reported.",
			err:    status.Error(codes.Unimplemented, "unknown method"),
			want:   "Unavailable=Unimplemented", outcome: "Unimplemented",
		},
		"Headers": {
			reason: "We should read no long headers.",
			err:    status.Error(codes.Unavailable, strings.Repeat("x", v1beta1.MaxChooserHeaderBytes)),
			want:   "Unavailable=Invalid", outcome: "Invalid",
		},
		"Exhausted": {
			reason: "A chooser that has too much to do should be reported as busy.",
			err:    status.Error(codes.ResourceExhausted, "as many as may"),
			want:   "Unavailable=Busy", outcome: "Busy",
		},
		"Failed": {
			reason: "Another code should be a failure.",
			err:    errors.New("no database"),
			want:   "Unavailable=Failed", outcome: "Failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.rank = func(context.Context, *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
				return tc.response, tc.err
			}
			w.serve(t, nil)
			w.connected(t)
			assert.Equal(t, tc.want, w.ask(t, "a", "b", "c"), tc.reason)
			assert.InDelta(t, 1, w.counted(t, "chooser_answers_total claim_kind=claims.test outcome="+tc.outcome), 0, tc.reason)
			assert.InDelta(t, tc.unknown, w.counted(t, "chooser_unknown_ids_total claim_kind=claims.test"), 0, tc.reason)
		})
	}
}

// TestConnections tries choosers with which there is no call.
func TestConnections(t *testing.T) {
	other := certtest.NewCA(t)
	for name, tc := range map[string]struct {
		reason string
		serve  func(*testing.T, *world)
		want   string
		state  string
	}{
		"Good": {
			reason: "We should ask a chooser of the CA that the ClaimKind names.",
			serve:  func(t *testing.T, w *world) { t.Helper(); w.serve(t, nil) },
			want:   "Order b a",
		},
		"WrongCA": {
			reason: "We should not trust another CA.",
			serve: func(t *testing.T, w *world) {
				t.Helper()
				w.serve(t, func(c *tls.Config) { c.Certificates[0] = *leaf(t, other, &x509.Certificate{}) })
			},
			want: "Unavailable=Connection", state: "signed by unknown authority",
		},
		"Expired": {
			reason: "We should not trust an expired certificate.",
			serve: func(t *testing.T, w *world) {
				t.Helper()
				expired := leaf(t, w.ca, &x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
				w.serve(t, func(c *tls.Config) { c.Certificates[0] = *expired })
			},
			want: "Unavailable=Connection", state: "expired",
		},
		"NotMutual": {
			reason: "We should not talk to a program that lets everybody in.",
			serve: func(t *testing.T, w *world) {
				t.Helper()
				w.serve(t, func(c *tls.Config) { c.ClientAuth = tls.NoClientCert })
			},
			want: "Unavailable=Connection", state: "asks for no client certificate",
		},
		"DoesNotTrustUs": {
			reason: "A chooser should be able to refuse us.",
			serve: func(t *testing.T, w *world) {
				t.Helper()
				w.serve(t, func(c *tls.Config) { c.ClientCAs = poolOf(other) })
			},
			want: "Unavailable=Connection",
		},
		"Garbage": {
			reason: "What is no message should be reported as such.",
			serve:  func(t *testing.T, w *world) { t.Helper(); w.serve(t, nil, grpc.ForceServerCodec(garbage{})) },
			want:   "Unavailable=Invalid", state: "unmarshal",
		},
		"Nobody": {
			reason: "We should not wait for a connection.",
			serve:  func(t *testing.T, w *world) { t.Helper(); w.serve(t, nil); w.server.running.Stop() },
			want:   "Unavailable=Connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.serve(t, w)
			if tc.want == "Unavailable=Connection" {
				w.connect(t)
			} else {
				w.connected(t)
			}
			assert.Equal(t, tc.want, w.ask(t, "a", "b"), tc.reason)
			state, known := w.choosers.StateOf("claims.test")
			assert.True(t, known)
			assert.Contains(t, state.Message, tc.state, tc.reason)
			assert.Equal(t, strings.HasPrefix(tc.want, "Order"), state.Reason == "", tc.reason)
		})
	}
}

func TestNotAsked(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.connected(t)
	long := strings.Repeat("x", v1beta1.MaxChooserClassBytes)
	assert.Equal(t, "Unavailable=TooLarge", w.ask(t, long+"a", long+"b"), "We should send no class with long fields.")
	other := *w.external
	other.Host = "other.example.org:443"
	q := w.question("a")
	q.Kind.External = &other
	assert.Equal(t, "Unavailable=Connection", w.askFor(t, q), "We should not ask at an address that the kind no longer has.")
	w.external.Service, w.external.Host = &v1beta1.ChooserService{Namespace: "team", Name: "chooser", Port: 443}, ""
	assert.Equal(t, "Unavailable=OwnNamespace", w.ask(t, "a"), "A chooser should not be asked about claims of its own namespace.")
	w.choosers.connections.Store(&map[string]*connection{})
	assert.Equal(t, "Unavailable=OwnNamespace", w.ask(t, "a"), "It should not wait for a connection, either.")
	assert.Zero(t, w.server.asked.Load())
	assert.Zero(t, w.counted(t, "chooser_answers_total claim_kind=claims.test outcome=OwnNamespace"), "A kind without a connection should not be counted.")
}

// TestLongest proves that the longest fields of a claim and of a hundred classes have room in a question, and that longer ones of a class
// take the room of no other.
func TestLongest(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.connected(t)
	names := make([]string, v1beta1.MaxChooserCandidates)
	for i := range names {
		names[i] = fmt.Sprintf("%0*d", v1beta1.MaxChooserClassBytes-len(`{"metadata":{"name":""}}`), i)
	}
	q := w.question(names...)
	q.Claim = strings.Repeat("x", v1beta1.MaxChooserClaimBytes)
	assert.Equal(t, "Order "+names[99], w.askFor(t, q)[:len("Order ")+len(names[99])], "We should ask about as many as may be.")
	names[99] += "9"
	q = w.question(names...)
	q.Claim = strings.Repeat("x", v1beta1.MaxChooserClaimBytes)
	answer := w.askFor(t, q)
	assert.Equal(t, "Order "+names[98], answer[:len("Order ")+len(names[98])], "We should leave out a class with long fields.")
	assert.NotContains(t, answer, names[99])
	assert.Len(t, q.Candidates, len(names), "We should not change the question.")
}

// TestHangs proves that claims of a namespace which make the chooser hang hold up no others.
func TestHangs(t *testing.T) {
	w := newWorld(t)
	good := w.server.rank
	w.server.rank = func(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		if r.GetClaim() == "{}" {
			return good(ctx, r)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.serve(t, nil)
	w.connected(t)
	hangs := func() *selector.Question {
		q := w.question("a", "b")
		q.Key, q.Claim = "hostile", "hang"
		return q
	}
	short := *w.external
	short.Timeout = "10ms"

	var running sync.WaitGroup
	for range v1beta1.ChooserCalls.PerKey {
		running.Go(func() { assert.Equal(t, "Unavailable=Timeout", w.askFor(t, hangs())) })
	}
	require.Eventually(t, func() bool { return w.server.asked.Load() == int64(v1beta1.ChooserCalls.PerKey) }, time.Minute, time.Millisecond)
	assert.Equal(t, "Unavailable=Busy by itself soon", w.askFor(t, hangs()), "A namespace should not have more calls.")
	assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "Another namespace should be answered.")
	running.Wait()
	assert.Equal(t, "Unavailable=NamespaceCircuitOpen", w.askFor(t, hangs()), "A namespace that times out should wait no longer. Maybe all do.")
	assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "Another namespace should still be answered.")
	w.l.poll(t.Context())
	assert.Equal(t, "Unavailable=NamespaceCircuitOpen by itself", w.askFor(t, hangs()), "A good status should not mean that its claims are answered.")
	w.l.now = func() time.Time { return time.Now().Add(namespaceRest) }
	w.l.poll(t.Context())
	q := hangs()
	q.Kind.External = &short
	assert.Equal(t, "Unavailable=Timeout", w.askFor(t, q), "It should be tried again later.")
}

// TestCircuit tries sequences of calls: c, t, f and a are calls of the namespaces 1, 2 that fail to connect, time out, fail or are answered;
// S and F are a good and a failed status.
func TestCircuit(t *testing.T) {
	for name, tc := range map[string]struct{ reason, calls, one, two string }{
		"New":            {"It should be closed at first.", "", "", ""},
		"Connections":    {"Five failed connections should open it.", "c1 c1 c2 c1 c1", "CircuitOpen", "CircuitOpen"},
		"Four":           {"Four should not.", "c1 c1 c1 c1", "", ""},
		"NotInARow":      {"An answer should end a row.", "c1 c1 c1 c1 a2 c1", "", ""},
		"Statuses":       {"Failed statuses should count.", "F c1 F F F", "CircuitOpen", "CircuitOpen"},
		"StatusFails":    {"Answers to claims should not end a row of failed statuses.", "F a1 F a1 F F a1 F", "CircuitOpen", "CircuitOpen"},
		"OneNamespace":   {"One namespace should open its own alone.", "t1 t1 t1 t1 t1 t1", "NamespaceCircuitOpen", ""},
		"TwoNamespaces":  {"Timeouts of two namespaces should open it.", "t1 t2 t1 t1 t2", "CircuitOpen", "CircuitOpen"},
		"NoNamespace":    {"Claims of unknown authors should not count as others.", "t t1 t t1 t t1 t1", "", ""},
		"Interleaved":    {"Answers of others should keep it closed.", "t1 t1 a2 t1 a2 t1 t1", "NamespaceCircuitOpen by itself", ""},
		"Answered":       {"An answer before the first timeout should not blame a namespace.", "a2 t1 t1 t1 t1 t1", "NamespaceCircuitOpen", ""},
		"Failed":         {"Nor should a failure of another.", "t1 t1 f2 t1 t1 t1", "NamespaceCircuitOpen", ""},
		"NotBlamed":      {"Nor should what was before an answer.", "t1 a2 a1 t1 t1 t1 t1 t1", "NamespaceCircuitOpen", ""},
		"OnlyStatus":     {"An answer should not close it.", "c1 c1 c1 c1 c1 a1", "CircuitOpen", "CircuitOpen"},
		"Status":         {"A good status should close it.", "c1 c1 c1 c1 c1 S", "", ""},
		"StatusOfAll":    {"A good status should not close that of a namespace.", "t1 t1 t1 t1 t1 S", "NamespaceCircuitOpen", ""},
		"NamespaceRests": {"It should later.", "t1 t1 t1 t1 t1 + S", "", ""},
		"NamespaceStays": {"Time alone should not.", "t1 t1 t1 t1 t1 +", "NamespaceCircuitOpen", ""},
		"Recovers":       {"An answer should forget the timeouts of a namespace.", "t1 t1 t1 t1 a1 t1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := circuit{of: map[string]*namespaceCircuit{}}, time.Unix(0, 0)
			reasons := map[byte]string{'c': v1beta1.ReasonConnection, 't': v1beta1.ReasonTimeout, 'f': v1beta1.ReasonFailed, 'a': ""}
			for call := range strings.FieldsSeq(tc.calls) {
				switch call {
				case "S":
					c.record(State{}, now)
				case "F":
					c.record(State{Reason: v1beta1.ReasonConnection}, now)
				case "+":
					now = now.Add(namespaceRest)
				default:
					c.called(call[1:], reasons[call[0]], now)
				}
			}
			refuses := c.refuses("1")
			if refuses == v1beta1.ReasonNamespaceCircuitOpen && !c.hangs("1") {
				refuses += " by itself"
			}
			assert.Equal(t, tc.one, refuses, tc.reason)
			assert.Equal(t, tc.two, c.refuses("2"), tc.reason)
		})
	}
}

func TestCache(t *testing.T) {
	w := newWorld(t)
	valid, answer := 10*time.Second, (func(*chooserv1.RankRequest) *chooserv1.RankResponse)(nil)
	answer = func(r *chooserv1.RankRequest) *chooserv1.RankResponse {
		best := r.GetCandidates()[0]
		for _, c := range r.GetCandidates() {
			if c.GetFields() > best.GetFields() {
				best = c
			}
		}
		return ordered(*w.server.epoch.Load(), valid, &chooserv1.Order{Ids: []string{best.GetId()}, Exclusive: true})
	}
	w.server.rank = func(_ context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		return answer(r), nil
	}
	w.serve(t, nil)
	w.connected(t)
	now := time.Unix(1000, 0)
	w.l.now = func() time.Time { return now }
	asks := func(times int64, reason string, q *selector.Question, want string) {
		t.Helper()
		before := w.server.asked.Load()
		assert.Equal(t, want, w.askFor(t, q), reason)
		assert.Equal(t, times, w.server.asked.Load()-before, reason)
	}
	q := w.question("a", "b", "c")
	asks(1, "We should ask first.", q, "Order c alone")
	asks(0, "We should not ask again.", q, "Order c alone")
	assert.InDelta(t, 1, w.counted(t, "chooser_answers_total claim_kind=claims.test outcome=Cached"), 0)
	asks(0, "Nor in another order of the draw.", w.question("c", "a", "b"), "Order c alone")
	asks(1, "We should ask about other candidates.", w.question("a", "b"), "Order b alone")
	other := w.question("a", "b", "c")
	other.Claim = `{"spec": {}}`
	asks(1, "We should ask for another claim.", other, "Order c alone")
	dry := w.question("a", "b", "c")
	dry.DryRun = true
	asks(1, "We should ask for a dry run.", dry, "Order c alone")
	asks(0, "And remember that as such.", dry, "Order c alone")
	newer := w.question("a", "b", "c")
	newer.Kind.Revision.Generation++
	asks(1, "We should ask for another revision.", newer, "Order c alone")
	now = now.Add(valid + time.Second)
	valid = time.Hour
	asks(1, "We should ask again after that time.", q, "Order c alone")
	now = now.Add(v1beta1.MaxChooserAnswerAge + time.Second)
	asks(1, "No answer should be kept for longer than a minute.", q, "Order c alone")
	w.server.setEpoch("two")
	asks(0, "We should not know of a new epoch.", q, "Order c alone")
	w.l.poll(t.Context())
	asks(1, "We should ask in a new epoch.", q, "Order c alone")
	w.server.setEpoch("three")
	asks(1, "An answer of an epoch that Status confirms should count at once.", other, "Order c alone")
	assert.Equal(t, "three", *w.l.epoch.Load())
	asks(1, "But not be kept: its question had another.", other, "Order c alone")
	asks(0, "The next should.", other, "Order c alone")
	valid = -time.Second
	now = now.Add(2 * v1beta1.MaxChooserAnswerAge)
	asks(1, "We should ask again.", q, "Order c alone")
	asks(1, "An answer should not be kept without a time.", q, "Order c alone")
	valid = time.Minute
	answer = func(*chooserv1.RankRequest) *chooserv1.RankResponse {
		return &chooserv1.RankResponse{Epoch: "three", ValidFor: durationpb.New(valid), Answer: &chooserv1.RankResponse_NoClass{}}
	}
	asks(1, "We should be told that there is none.", q, "NoClass")
	asks(1, "We should not keep that.", q, "NoClass")
	answer = func(*chooserv1.RankRequest) *chooserv1.RankResponse {
		return &chooserv1.RankResponse{ValidFor: durationpb.New(valid), Epoch: "three"}
	}
	asks(1, "We should be told nothing.", q, "Unavailable=Invalid")
	asks(1, "We should not keep that.", q, "Unavailable=Invalid")
}

// TestGone has the status of a chooser, and an answer to a claim, come after its registration is gone.
func TestGone(t *testing.T) {
	w := newWorld(t)
	good := w.server.rank
	asked, answer := make(chan struct{}), make(chan struct{})
	w.server.rank = func(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		close(asked)
		<-answer
		return good(ctx, r)
	}
	w.serve(t, nil)
	w.connected(t)
	assert.InDelta(t, 1, w.counted(t, "chooser_ready claim_kind=claims.test"), 0)
	var running sync.WaitGroup
	running.Go(func() { assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "It should be answered.") })
	<-asked
	w.choosers.Snapshot = func() selector.Snapshot { return nil }
	w.choosers.sync(t.Context(), &running)
	close(answer)
	running.Wait()
	w.server.running.Stop()
	w.l.poll(t.Context())
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.choosers, w.choosers.answers, w.choosers.unknown, w.choosers.seconds)
	assert.Empty(t, controllertest.Scraped(t, registry), "Nothing should be counted for it.")
}

// TestDrains proves that a call in flight is answered when its connection is replaced.
func TestDrains(t *testing.T) {
	w := newWorld(t)
	good := w.server.rank
	asked, answer := make(chan struct{}), make(chan struct{})
	w.server.rank = func(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		close(asked)
		<-answer
		return good(ctx, r)
	}
	w.serve(t, nil)
	w.connected(t)
	closing, over := make(chan struct{}), make(chan time.Time)
	w.l.after = func(d time.Duration) <-chan time.Time {
		assert.Equal(t, v1beta1.MaxChooserTimeout, d)
		close(closing)
		return over
	}
	var running, calls sync.WaitGroup
	calls.Go(func() { assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "It should be answered.") })
	<-asked
	w.l.stop()
	running.Go(func() { w.l.run(t.Context()) })
	<-closing
	close(answer)
	calls.Wait()
	assert.NotEqual(t, connectivity.Shutdown, w.l.conn.GetState())
	close(over)
	running.Wait()
	assert.Equal(t, connectivity.Shutdown, w.l.conn.GetState(), "No connection should be left.")
}

// TestStored has claims that are stored take as many calls as they may.
func TestStored(t *testing.T) {
	w := newWorld(t)
	good := w.server.rank
	answer := make(chan struct{})
	w.server.rank = func(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		if r.GetClaim() == "stored" {
			<-answer
		}
		return good(ctx, r)
	}
	w.serve(t, nil)
	w.connected(t)
	stored := func() *selector.Question {
		q := w.question("a", "b")
		q.Claim, q.Stored = "stored", true
		return q
	}
	var running sync.WaitGroup
	for range v1beta1.StoredChooserCalls.PerKey {
		running.Go(func() { assert.Equal(t, "Order b a", w.askFor(t, stored())) })
	}
	require.Eventually(t, func() bool { return w.server.asked.Load() == int64(v1beta1.StoredChooserCalls.PerKey) }, time.Minute, time.Millisecond)
	assert.Equal(t, "Unavailable=Busy by itself soon", w.askFor(t, stored()), "They should have no more than half.")
	assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "A new claim of the namespace should be answered.")
	close(answer)
	running.Wait()
	assert.Equal(t, "Order b a", w.askFor(t, stored()), "The places should be free again.")
	for range v1beta1.MaxChooserFailures {
		w.l.circuit.called("", v1beta1.ReasonTimeout, time.Now())
	}
	q := stored()
	q.Namespace, q.Key = "", ""
	assert.Equal(t, "Unavailable=Busy soon", w.askFor(t, q), "A claim should wait if only those of other authors may have timed out.")
}

// TestConfirms has a status that was asked for before the epoch changed come after an answer of the new epoch.
func TestConfirms(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.connected(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	w.server.answers = func() { asked <- struct{}{}; <-answer }
	var running sync.WaitGroup
	running.Go(func() { w.l.poll(t.Context()) })
	<-asked
	w.server.setEpoch("two")
	running.Go(func() {
		assert.Empty(t, w.l.confirm(t.Context(), "two"), "We should ask again, since the first answer may be old.")
	})
	for range 1000 { // It joins the call.
		runtime.Gosched()
	}
	close(answer)
	running.Wait()
}

// TestKept proves that no class is kept which was replaced.
func TestKept(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.connected(t)
	class := func() weak.Pointer[inventory.Class] {
		q := w.question("a")
		assert.Equal(t, "Order a", w.askFor(t, q))
		return weak.Make(q.Candidates[0])
	}()
	runtime.GC()
	assert.Nil(t, class.Value())
}

// TestEndedConnections has a chooser end each connection as soon as it is ready.
func TestEndedConnections(t *testing.T) {
	w := newWorld(t)
	config := w.config(t)
	config.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	w.server.address = listener.Addr().String()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_, _ = io.ReadFull(conn, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // its settings
			_ = conn.Close()
		}
	}()
	w.connect(t)
	now := time.Now()
	w.l.now = func() time.Time { return now }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pauses []time.Duration
	w.l.after = func(d time.Duration) <-chan time.Time {
		if pauses = append(pauses, d); len(pauses) == 5 {
			cancel()
		}
		return time.After(0)
	}
	w.l.keepConnected(ctx)
	for i, want := range []time.Duration{0, 100, 200, 400, 800} {
		assert.Equal(t, want*time.Millisecond, pauses[i], "We should wait for longer after each connection that ends at once.")
	}
}

// TestRegistered has choosers asked for their status as soon as their kind is registered. No time passes.
func TestRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.external = &v1beta1.External{Host: "%zz"} // gRPC cannot parse it: there is no network here.
		kind := w.question("a").Kind
		var snapshot atomic.Pointer[selector.Snapshot]
		w.choosers.Snapshot = func() selector.Snapshot {
			if s := snapshot.Load(); s != nil {
				return *s
			}
			return nil
		}
		registered := make(chan func(string), 1)
		w.choosers.OnRegistered = func(_ context.Context, call func(string)) { registered <- call }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.choosers.Start(ctx) }()
		call := <-registered
		synctest.Wait()
		require.ErrorContains(t, w.choosers.Ready(), "no registration is known yet")
		snapshot.Store(&selector.Snapshot{kind.Name: {Kind: kind}, "others.test": {Kind: &selector.ClaimKind{}}})
		require.ErrorContains(t, w.choosers.Ready(), "has not been asked for its status yet")
		call(kind.Name)
		synctest.Wait()
		require.NoError(t, w.choosers.Ready(), "Any answer should do.")
		state, known := w.choosers.StateOf(kind.Name)
		assert.True(t, known)
		assert.NotEmpty(t, state.Reason)
		snapshot.Store(&selector.Snapshot{"later.test": {Kind: kind}})
		require.NoError(t, w.choosers.Ready(), "A later registration should not take a replica out of service.")
		cancel()
		require.NoError(t, <-done)
	})
}

// TestRotation proves that new certificates lose no call, and that a CA which is no longer named is not trusted.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.connected(t)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	isKept := func(bundle []byte) bool {
		changed := *w.external
		changed.CABundle = bundle
		w.choosers.Snapshot = func() selector.Snapshot {
			return selector.Snapshot{"claims.test": {Kind: &selector.ClaimKind{External: &changed}}}
		}
		w.choosers.sync(ctx, &running)
		return (*w.choosers.connections.Load())["claims.test"] == w.l
	}
	answers := func() bool { return w.ask(t, "a", "b") == "Order b a" }
	first, next := w.ca, certtest.NewCA(t)
	both := append(bundleOf(first), bundleOf(next)...)
	assert.True(t, isKept(bundleOf(first)), "We should keep a connection.")
	require.Eventually(t, func() bool {
		assert.True(t, answers(), "No claim should wait for the next.")
		return !isKept(both)
	}, time.Minute, time.Millisecond, "We should connect again with other CAs.")
	w.presented.Store(leaf(t, next, &x509.Certificate{}))
	assert.True(t, answers(), "A connection should outlive its certificates.")
	w.server.running.Stop()
	w.ca = next
	w.serve(t, nil)
	require.Eventually(t, answers, time.Minute, 10*time.Millisecond, "The next connection should have the new ones.")
	require.Eventually(t, func() bool {
		return !isKept(bundleOf(first)) && w.ask(t, "a", "b") == "Unavailable=Connection"
	}, time.Minute, 10*time.Millisecond, "We should not go on with a chooser that is no longer trusted.")
}

func TestSecret(t *testing.T) {
	w := newWorld(t)
	w.serve(t, nil)
	w.choosers.Certificate = nil // It should not be used.
	certificate := leaf(t, w.ca, &x509.Certificate{})
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "classbind-system", Name: "classbind-chooser"}, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}}
	w.choosers.Secrets, w.choosers.Namespace = fake.NewClientBuilder().WithObjects(secret).Build(), "classbind-system"
	w.secret = secret.Name
	w.connected(t)
	assert.Equal(t, "Order b a", w.ask(t, "a", "b"), "We should present the certificate of the Secret.")

	presented := func() (*tls.Certificate, error) {
		config, err := w.l.tls()
		require.NoError(t, err)
		return config.GetClientCertificate(nil)
	}
	failing := errors.New("no answer")
	w.choosers.Secrets = interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return failing
		},
	})
	w.l.now = func() time.Time { return time.Now().Add(secretInterval) }
	w.l.poll(t.Context())
	state, _ := w.choosers.StateOf("claims.test")
	assert.Empty(t, state, "The status should not depend on the API server.")
	w.l.readSecret(t.Context())
	_, err = presented()
	require.NoError(t, err, "A certificate that cannot be read again should still be used.")
	require.ErrorIs(t, w.l.secret.Load().err, failing)
	changed := *w.external
	changed.ClientCertificate.SecretName = "other"
	w.l.external.Store(&changed)
	_, err = presented()
	require.Error(t, err, "We should not present the certificate of another Secret.")
	w.l.readSecret(t.Context())
	_, err = presented()
	require.EqualError(t, err, `cannot read the Secret "other": no answer`, "We should say why there is none.")
}

func TestStates(t *testing.T) {
	c := circuit{of: map[string]*namespaceCircuit{}}
	now := time.Unix(0, 0)
	for _, tc := range []struct {
		reason            string
		after             time.Duration
		state             State
		changed, inReason bool
	}{
		{"The first state should be reported.", 0, State{}, true, true},
		{"The same should not.", messageRest, State{}, false, false},
		{"Another reason should.", 0, State{"Connection", "refused"}, true, true},
		{"Another message should not: each connection may have its own.", messageRest - 1, State{"Connection", "reset"}, false, false},
		{"It should later.", 1, State{"Connection", "reset"}, true, false},
		{"But not soon after.", 1, State{"Connection", "refused"}, false, false},
		{"Nor if it is what was reported last.", messageRest, State{"Connection", "reset"}, false, false},
		{"A recovery should at once.", 0, State{}, true, true},
	} {
		now = now.Add(tc.after)
		changed, inReason := c.record(tc.state, now)
		assert.Equal(t, []bool{tc.changed, tc.inReason}, []bool{changed, inReason}, tc.reason)
	}
}

// TestStart follows a chooser that is restarted, and proves that nothing is left in the end.
func TestStart(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("Runs", func(t *testing.T) {
		w := newWorld(t)
		w.serve(t, nil)
		w.external = &v1beta1.External{
			Host: w.server.address, CABundle: bundleOf(w.ca), Timeout: "1s",
			Fields: v1beta1.ChooserFields{Class: []v1beta1.Place{{Path: ".metadata.name"}}},
		}
		kind := w.question("a").Kind
		var registered atomic.Bool
		registered.Store(true)
		w.choosers.Snapshot = func() selector.Snapshot {
			if !registered.Load() {
				return nil
			}
			return selector.Snapshot{kind.Name: &selector.View{Kind: kind}, "others.test": &selector.View{Kind: &selector.ClaimKind{}}}
		}
		w.choosers.OnRegistered = func(context.Context, func(string)) {}
		changes := make(chan string, 100)
		w.choosers.OnChange(t.Context(), func(name string) { changes <- name })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.choosers.Start(ctx) }()
		isAnswered := func() bool { return w.ask(t, "a", "b") == "Order b a" }
		require.Eventually(t, isAnswered, time.Minute, 10*time.Millisecond, "A registration should have a connection soon.")
		assert.Equal(t, kind.Name, <-changes)

		w.server.running.Stop()
		require.Eventually(t, func() bool { return !isAnswered() }, time.Minute, 10*time.Millisecond)
		for range v1beta1.MaxChooserFailures {
			w.ask(t, "a", "b")
		}
		assert.Equal(t, "Unavailable=CircuitOpen", w.ask(t, "a", "b"), "A chooser that is gone should not be tried for each claim.")
		w.serve(t, nil)
		require.Eventually(t, isAnswered, time.Minute, 10*time.Millisecond, "One that is back should be asked.")

		registered.Store(false)
		require.Eventually(t, func() bool { return w.ask(t, "a", "b") == "Unavailable=Connection" }, time.Minute, 10*time.Millisecond)
		_, known := w.choosers.StateOf(kind.Name)
		assert.False(t, known, "A registration that is gone should have no state.")
		registered.Store(true)
		require.Eventually(t, isAnswered, time.Minute, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
	})
	isOver := func() bool { return runtime.NumGoroutine()-1 <= before } // It has a goroutine of its own.
	require.Eventually(t, isOver, time.Minute, 10*time.Millisecond, "No goroutine should be left.")
}

func BenchmarkChoose(b *testing.B) {
	for _, candidates := range []int{3, 100} {
		names := make([]string, candidates)
		for i := range names {
			names[i] = fmt.Sprintf("class-%03d", i)
		}
		for name, valid := range map[string]time.Duration{"Cached": time.Minute, "Asked": 0} {
			b.Run(fmt.Sprint(name, candidates), func(b *testing.B) {
				w := newWorld(b)
				good := w.server.rank
				w.server.rank = func(ctx context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
					response, err := good(ctx, r)
					response.ValidFor = durationpb.New(valid)
					return response, err
				}
				w.serve(b, nil)
				w.connected(b)
				q := w.question(names...)
				for b.Loop() {
					if a := w.choosers.Choose(b.Context(), q); a.Outcome != selector.ChooserOrdered {
						b.Fatal(a.String())
					}
				}
			})
		}
	}
}
