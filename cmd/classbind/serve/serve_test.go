package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/webhook"
)

func TestDrainTakesItsTime(t *testing.T) {
	for name, duration := range map[string]time.Duration{"AtOnce": 0, "Later": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				d := newDrain(ctx, duration)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.NoError(t, d.ready(nil), "We should be ready until we are told to end.")
				require.NoError(t, d.finished.Err(), "We should not end before we are told to.")

				stop()
				require.Error(t, d.ready(nil), "We should not be ready as soon as we are told to end.")
				if duration > 0 {
					time.Sleep(duration - 1)
					synctest.Wait()
					require.NoError(t, d.finished.Err(), "We should go on for the whole delay.")
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				require.ErrorIs(t, d.finished.Err(), context.Canceled, "We should end after the delay, if there is one.")
				assert.Error(t, d.ready(nil), "We should not be ready again.")
			})
		})
	}
}

// TestStopsInTime adds up what a replica may take to stop, and compares it with what its pod has.
func TestStopsInTime(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "base", "deployment.yaml"))
	require.NoError(t, err)
	grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindSubmatch(text)
	delay := regexp.MustCompile(`--shutdown-delay-duration=(\w+)`).FindSubmatch(text)
	require.NotNil(t, grace)
	require.NotNil(t, delay)
	seconds, err := strconv.Atoi(string(grace[1]))
	require.NoError(t, err)
	drain, err := time.ParseDuration(string(delay[1]))
	require.NoError(t, err)
	const margin = 5 * time.Second // for the kubelet, and a busy node
	assert.LessOrEqual(t, drain+stopTimeout+margin, time.Duration(seconds)*time.Second, "The kubelet should kill no replica that stops.")
	assert.Less(t, webhook.ShutdownTimeout, stopTimeout, "We should have time to answer what is in hand.")
	assert.GreaterOrEqual(t, webhook.ShutdownTimeout, v1beta1.WebhookTimeoutSeconds*time.Second, "We should answer all that an API server waits for.")

	// An API server that never answers, and a runnable that waits for it whatever its context says.
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Millisecond),
	})
	require.NoError(t, err)
	released, started := make(chan struct{}), make(chan struct{})
	defer close(released)
	require.NoError(t, mgr.Add(manager.RunnableFunc(func(context.Context) error { close(started); <-released; return nil })))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	<-started
	stop()
	assert.ErrorContains(t, <-ended, "grace period", "The timeout should end what does not end.")
}

// TestDrainEndsConnections has no caller keep a connection to a replica that ends. TestDeployment sees that no request is lost.
func TestDrainEndsConnections(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	handler := newDrain(ctx, time.Hour).handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, want := range []string{"", "close"} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
		assert.Equal(t, http.StatusTeapot, answer.Code, "We should keep answering.")
		assert.Equal(t, want, answer.Header().Get("Connection"), "We should leave no connection that could carry another request.")
		stop()
	}
}

// versions are those of the API server's answers, in turn, and the last for ever. An empty one is no answer.
type versions struct {
	client.Reader
	t       *testing.T
	answers []string
}

func (v *versions) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	assert.EqualValues(v.t, 1, o.Limit, "We should read little.")
	assert.Equal(v.t, &metav1.ListOptions{Limit: 1}, o.AsListOptions(), "We should ask for the newest state, and not for one that an API server has in its cache.")
	assert.IsType(v.t, &v1beta1.ClaimKindList{}, list, "We should compare versions of one resource alone.")
	answer := v.answers[0]
	if len(v.answers) > 1 {
		v.answers = v.answers[1:]
	}
	if answer == "" {
		return errors.New("connection refused")
	}
	list.SetResourceVersion(answer)
	return nil
}

func TestHistory(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		answers []string
		void    bool
	}{
		"Forward": {reason: "We should go on where time goes on, and not compare versions as strings.", answers: []string{"7", "9", "10", "100", "100", "101"}},
		"Back":    {reason: "We should end when time went back.", answers: []string{"7", "100", "99"}, void: true},
		"BackInAnHour": {
			reason:  "We should compare with the last answer before the API server was away.",
			answers: append(append([]string{"100"}, make([]string, 18000)...), "99"),
			void:    true,
		},
		"Unordered": {reason: "We should go on with a storage whose versions have no order.", answers: []string{"b", "a", "", "0a", "a"}},
		"NoVersion": {reason: "We should not take an answer without a version for the past.", answers: []string{"7", "0", "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{reader: &versions{t: t, answers: tc.answers}}
				handler := h.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
				require.NoError(t, h.ready(nil), "We should be ready before we have looked.")
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				err := h.Start(ctx)
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
				if !tc.void {
					require.NoError(t, err, tc.reason)
					require.NoError(t, h.ready(nil), tc.reason)
					assert.Equal(t, http.StatusTeapot, answer.Code, tc.reason)
					return
				}
				require.ErrorIs(t, err, errHistory, tc.reason)
				require.NoError(t, ctx.Err(), tc.reason)
				require.ErrorIs(t, h.ready(nil), errHistory, "We should not be ready with what is void.")
				assert.Equal(t, http.StatusServiceUnavailable, answer.Code, "We should not decide on what is void.")
				assert.Contains(t, answer.Body.String(), "restored from a backup", "We should say why.")
			})
		})
	}
	assert.False(t, (&history{}).NeedLeaderElection(), "We should look on every replica.")
}

// TestLeadershipGoesOn runs terms that fail at once, because a file is missing.
func TestLeadershipGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		ctx, stop := context.WithCancel(logf.IntoContext(t.Context(), log))
		opened := make(chan struct{})
		s := &server{cluster: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "absent"}}, options: &options{}}
		l := &leadership{server: s, opened: opened}
		assert.False(t, l.NeedLeaderElection(), "We should run for the leadership on every replica.")
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(time.Minute)
		require.Empty(t, lines, "We should not run for the leadership before we know all classes.")
		close(opened)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, ended, "We should go on: this replica must keep answering.")
		require.Len(t, lines, 3, "We should run for the leadership again once a second.")
		assert.Contains(t, lines[2], "cannot connect to the cluster", "We should say what ended the term.")

		stop()
		synctest.Wait()
		require.NoError(t, <-ended, "We should end with the context.")
		assert.Len(t, lines, 3, "We should not complain of our own end.")
	})
}

func TestStopped(t *testing.T) {
	busy, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	_, err = net.Listen("tcp", busy.Addr().String())
	require.Error(t, err)
	got := stopped("cannot connect to the cluster", fmt.Errorf("error listening: %w", err))
	require.ErrorContains(t, got, "cannot listen: ", "We should not blame the cluster for a busy port.")
	assert.Contains(t, got.Error(), busy.Addr().String(), "We should name the address.")
	assert.Contains(t, got.Error(), "choose another address with --webhook-bind-address, --health-probe-bind-address", "We should say how to mend it.")
	assert.NotContains(t, got.Error(), "cluster")

	_, err = net.Dial("tcp", "localhost:1")
	require.Error(t, err)
	require.ErrorContains(
		t, stopped("cannot connect to the cluster", err), "cannot connect to the cluster: ",
		"We should not blame a port of ours for the cluster's.",
	)
}

func TestBuildInfo(t *testing.T) {
	before, registry := metrics.Registry, prometheus.NewRegistry()
	metrics.Registry = registry
	t.Cleanup(func() { metrics.Registry = before })
	b := Build{"v0.1.0", "fedcba"}
	require.NoError(t, b.RegisterMetrics())
	assert.Equal(t, map[string]float64{"build_info goversion=" + runtime.Version() + " revision=fedcba version=v0.1.0": 1}, controllertest.Scraped(t, registry),
		"We should show Prometheus which version each replica has, with a value that a query can multiply by.")
	require.Error(t, b.RegisterMetrics(), "We should not hide that a metric is registered twice.")
}
