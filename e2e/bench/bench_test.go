package bench

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func flags(t *testing.T, s *Settings, args ...string) {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(fs)
	require.NoError(t, fs.Parse(args))
}

// TestBench has settings with which the parts take seconds. What they find says nothing.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it.")
	}
	t.Parallel()
	s := Settings{Progress: io.Discard}
	flags(t, &s, "--rounds=1", "--round=100ms", "--connections=2")
	s.classes, s.classKinds, s.claimKinds, s.matches = 100, 3, 2, 5
	s.turns, s.changes, s.claims = 1, 20, 50
	var out bytes.Buffer
	err := Run(t.Context(), s, &out)
	if err != nil { // Nothing can be said of the bounds.
		require.ErrorContains(t, err, "classbind misses bounds: ")
	}
	for _, measure := range []string{"throughput", "p99", "create-1", "create-8", "policy-1", "policy-8", "reference-1", "storm"} {
		assert.Regexp(t, `\n +`+measure+` +-?\d+\.\d{3} +\d+\.\d{3} +(at least|at most|below) \S+ `, out.String(), "We should judge each measure.")
	}
}

func TestBounds(t *testing.T) {
	within := map[string]float64{
		"throughput": 1.3, "p99": .9, "create-1": .03, "create-8": .03, "policy-1": .5, "policy-8": .99, "reference-1": .15, "storm": 2,
	}
	for name, value := range map[string]float64{
		"": 0, "throughput": 1.299, "p99": .901, "create-1": .031, "create-8": .031, "policy-1": .501, "policy-8": 1, "reference-1": .151,
		"storm": math.NaN(),
	} {
		r := &run{out: io.Discard, measured: map[string]measure{name: {value: value}}}
		for other, met := range within {
			if other != name {
				r.measured[other] = measure{value: met}
			}
		}
		err := r.judge()
		if name == "" {
			require.NoError(t, err, "We should allow what is just within its bound.")
			continue
		}
		require.ErrorContains(t, err, name+" is ", "We should name the bound that is not met.")
		delete(r.measured, name)
		require.ErrorContains(t, r.judge(), name+" is ", "We should want each measure in a run of all parts.")
		r.Only = []string{"webhook"}
		require.NoError(t, r.judge(), "We should judge only what was measured.")
	}
}

// TestSpread measures a difference in rounds that noise moves by 0.1 either way.
func TestSpread(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		mean    float64
		rounds  int
		verdict string
	}{
		"Met":       {"We should allow what is within its bound.", .14, 16, "met"},
		"Noise":     {"We should not let noise miss a bound.", .16, 16, "within the spread"},
		"Missed":    {"We should find what is beyond its bound whatever the noise.", .25, 16, "MISSED"},
		"FewRounds": {"We should give rounds that are too few no spread.", .16, measuredBlocks - 1, "MISSED"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := &run{out: &out, measured: map[string]measure{}}
			r.Only = []string{"create"}
			r.measure("reference-1", tc.rounds, func(from, to int) float64 {
				if from == 0 && to == tc.rounds {
					return tc.mean
				}
				return tc.mean + .1*float64(1-2*(from*measuredBlocks/tc.rounds%2))
			})
			err := r.judge()
			assert.Contains(t, out.String(), tc.verdict, tc.reason)
			assert.Equal(t, tc.verdict == "MISSED", err != nil, tc.reason)
		})
	}
}

func TestDrive(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, answer string
		status         int
		want           string
	}{
		"Bound":       {"We should measure what is bound.", `{"response":{"allowed":true,"patch":"W10="}}`, 200, ""},
		"Denied":      {"We should count no refusal.", `{"response":{"allowed":false,"status":{"code":403}}}`, 200, "the claim is not bound: "},
		"NoPatch":     {"We should count no claim that is left alone.", `{"response":{"allowed":true}}`, 200, "the claim is not bound: "},
		"Unavailable": {"We should count no fault.", "not now", 503, "503 Service Unavailable: not now"},
	} {
		t.Run(name, func(t *testing.T) {
			var answered atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answered.Add(1)
				assert.Equal(t, "HTTP/1.1", r.Proto, "We should speak HTTP/1.1, even if HTTP/2 is offered.")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.answer)
			}))
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			target := &target{
				url: server.URL, tls: server.Client().Transport.(*http.Transport).TLSClientConfig, pid: os.Getpid(), inFlight: 3, reviews: make([]review, 4),
			}
			r, err := target.drive(t.Context(), 50*time.Millisecond, 200)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.EqualValues(t, 10+openInFlight, answered.Load(), "We should send as many as are due, however long they take, and one a connection before.")
			assert.LessOrEqual(t, r.p50Millis, r.p99Millis)
		})
	}
}
