package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
)

// chooserTimeout of the tests, and how much longer a claim may wait. Together, they are a bound of a bucket.
const (
	chooserTimeout = 150 * time.Millisecond
	chooserWait    = chooserTimeout + 50*time.Millisecond
)

// chooserAnswers is how many questions to the chooser of a group had an outcome.
func (w *world) chooserAnswers(t *testing.T, group, outcome string) int {
	return sharing.count(t, "classbind_chooser_answers_total", map[string]string{"claim_kind": "claims." + group, "outcome": outcome})
}

// TestChooserFails has a chooser that breaks the contract in every way. Each claim gets the class of the draw, and a warning that has the
// reason.
func TestChooserFails(t *testing.T) {
	notInPods(t, "Pods do not reach the chooser, which runs in this process.")
	behaves := func(rank string) func(*testing.T, *testChooser) {
		return func(t *testing.T, c *testChooser) { require.NoError(t, c.Behave(rank, "Good")) }
	}
	restarts := func(template x509.Certificate, by func(*testing.T, *testChooser) *certtest.Pair) func(*testing.T, *testChooser) {
		return func(t *testing.T, c *testChooser) {
			require.NoError(t, c.Stop())
			c.Certificate = *by(t, c).Sign(t, &template).TLS()
			require.NoError(t, c.Start(c.address))
		}
	}
	killed := func(t *testing.T, c *testChooser) { require.NoError(t, c.Stop()) }
	own := func(_ *testing.T, c *testChooser) *certtest.Pair { return c.ca }
	for name, tc := range map[string]struct {
		reason  string
		do      func(*testing.T, *testChooser)
		outcome string
	}{
		"Killed":        {"We should see that there is no connection.", killed, "Connection"},
		"Hangs":         {"We should wait for the timeout, and no longer.", behaves("Hang"), "Timeout"},
		"Garbage":       {"We should not take just any bytes for an answer.", behaves("Garbage"), "Invalid"},
		"Nothing":       {"We should not take nothing for an answer.", behaves("Nothing"), "Invalid"},
		"EmptyOrder":    {"We should not take an empty order for an answer.", behaves("EmptyOrder"), "Invalid"},
		"Unknown":       {"We should not take an order of unknown identifiers for an answer.", behaves("Unknown"), "Invalid"},
		"Many":          {"We should not read 100,000 identifiers.", behaves("Many"), "TooLarge"},
		"Large":         {"We should not read 5 MiB.", behaves("Large"), "TooLarge"},
		"OtherEpoch":    {"We should drop an answer of another epoch.", behaves("OtherEpoch"), "Epoch"},
		"LongEpoch":     {"We should drop an answer with a long epoch, which is another.", behaves("LongEpoch"), "Epoch"},
		"Unimplemented": {"We should say that it is no chooser.", behaves("Unimplemented"), "Unimplemented"},
		"Unavailable":   {"We should take its word that it is unavailable.", behaves("Unavailable"), "Connection"},
		"Expired": {
			"We should not take an expired certificate.",
			restarts(x509.Certificate{DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(-time.Minute)}, own), "Connection",
		},
		"OtherName": {
			"We should not take the certificate of another.", restarts(x509.Certificate{DNSNames: []string{"other.test"}}, own), "Connection",
		},
		"OtherCA": {
			"We should not take a certificate of another CA.", restarts(x509.Certificate{DNSNames: []string{"localhost"}},
				func(t *testing.T, _ *testChooser) *certtest.Pair { return certtest.NewCA(t) }), "Connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, group := sharedWorld(t), strings.ToLower(name)+".chooserfails.test"
			c := w.chooser(t)
			good, late, hangs := c.Certificate, lateness(t), tc.outcome == "Timeout"
			external := fmt.Sprintf(", timeout: %s", map[bool]time.Duration{true: chooserTimeout, false: time.Second}[hangs])
			works := func() {
				require.NoError(t, c.Stop())
				c.Certificate = good
				require.NoError(t, c.Behave("Good", "Good"))
				w.chooses(t, c, group, external, "")
			}
			works()
			named := func(i int) string { return claimWith(group, fmt.Sprint("claim-", i), "{cpus: 2}") }
			require.NoError(t, c.Behave("NoOpinion", "Good"))
			var drawn []string
			for i := range 3 {
				drawn = append(drawn, classOf(w.created(t, named(i), client.DryRunAll)))
			}
			tc.do(t, c)
			for i, want := range drawn {
				eventually(t, func(a *attempt) {
					claim, warnings, err := w.create(t, named(i))
					require.NoError(a, err)
					assert.Equal(t, want, classOf(claim), "We should bind a claim as the draw does.")
					text := strings.Join(warnings, "\n")
					busy := !hangs && strings.Contains(text, "(Timeout)") || strings.Contains(text, "(CircuitOpen)")
					if busy { // The machine: an answer came too late, or Status failed five times before this claim.
						w.remove(t, "claims."+group, claim.GetName())
						works()
						tc.do(t, c)
					}
					require.False(a, busy, text)
					assert.Contains(t, text, "is unavailable ("+tc.outcome+")", tc.reason)
				})
			}
			assert.GreaterOrEqual(t, w.chooserAnswers(t, group, tc.outcome), len(drawn), "We should count each under its reason.")
			if tc.outcome == "Invalid" {
				unknown := sharing.count(t, "classbind_chooser_unknown_ids_total", map[string]string{"claim_kind": "claims." + group})
				assert.Equal(t, name == "Unknown", unknown > 0, "We should count unknown identifiers.")
			}
			if woken := late(); hangs {
				w.awaitedInTime(t, group, woken)
			}

			require.NoError(t, w.patch(t, "claimkinds.classbind.io", "claims."+group, `{"spec":{"choice":{"external":{"whenUnavailable":"Fail"}}}}`))
			eventually(t, func(a *attempt) {
				_, _, err := w.create(t, claimWith(group, "fails", "{cpus: 2}"), client.DryRunAll)
				require.Error(a, err)
				// The API server answers 500 for a webhook that answers 503.
				refusedWith(a, err, http.StatusInternalServerError, "the chooser of claim kind", "is unavailable (")
			}, "We should answer 503 if the ClaimKind says so.")

			works()
			w.awaitBound(t, claimWith(group, "again", "{cpus: 2}"), "Class/small", "We should ask a chooser that works again.")
		})
	}
}

// awaitedInTime checks that no claim of a group waited longer for its chooser than chooserWait, as classbind measured it. It says nothing
// about a machine that was busy.
func (w *world) awaitedInTime(t *testing.T, group string, late time.Duration) {
	if late > (chooserWait-chooserTimeout)/2 {
		t.Logf("A goroutine was woken %s too late: the machine is too busy to measure.", late)
		return
	}
	all, soon := chooserWaits(t, must(sharing.replica.Metrics(t.Context()))(t), "claims."+group)
	assert.Positive(t, all)
	assert.Equal(t, all, soon, "No claim should wait longer than %s.", chooserWait)
}

// chooserWaits counts the claims of a kind that waited for their chooser, and those that waited for chooserWait at most.
func chooserWaits(t *testing.T, metrics []byte, claimKind string) (all, soon uint64) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families := must(parser.TextToMetricFamilies(bytes.NewReader(metrics)))(t)
	for _, m := range families["classbind_chooser_duration_seconds"].GetMetric() {
		if m.GetLabel()[0].GetValue() != claimKind {
			continue
		}
		all = m.GetHistogram().GetSampleCount()
		for _, bucket := range m.GetHistogram().GetBucket() {
			if bucket.GetUpperBound() == chooserWait.Seconds() {
				soon = bucket.GetCumulativeCount()
			}
		}
	}
	return all, soon
}

// TestChooserRestarts restarts a chooser again and again while 20 claims are created each second.
func TestChooserRestarts(t *testing.T) {
	long(t)
	const group, restarts = "restarts.chooser.test", 40
	w, r := servedWorld(t, controlplane.Options{})
	c := w.chooser(t)
	w.chooses(t, c, group, fmt.Sprintf(", timeout: %s", chooserTimeout), "")
	w.namespaces(t, "restarts")
	before, late := resourcesOf(t, r), lateness(t)
	claims := load.Start(t.Context(), load.Options{
		Client: w.Client, Kinds: []schema.GroupVersionKind{{Group: group, Version: "v1", Kind: "Claim"}}, Namespace: "restarts", PerSecond: 20,
		Spec: map[string]any{"cpus": int64(2)},
	})
	for i := range restarts {
		require.NoError(t, c.Stop())
		require.NoError(t, claims.Next(t.Context(), 1+i%40)) // Some restarts open the circuit.
		require.NoError(t, c.Start(c.address))
		require.NoError(t, claims.Next(t.Context(), 40))
	}
	report := must(claims.Stop(t.Context()))(t)
	woken := late()
	metrics := must(r.Metrics(t.Context()))(t)
	outcomes := map[string]int{}
	for _, outcome := range []string{"Order", "Connection", "CircuitOpen", "Timeout"} {
		outcomes[outcome] = must(sumOf(metrics, "classbind_chooser_answers_total", map[string]string{"outcome": outcome}))(t)
	}
	all, soon := chooserWaits(t, metrics, "claims."+group)
	t.Logf("%d restarts: %s; %v; %d of %d claims waited %s at most; a goroutine was woken %s too late at most",
		restarts, report, outcomes, soon, all, chooserWait, woken)
	assert.Zero(t, report.Failures+report.Unbound, "Each claim should get a class.")
	assert.Positive(t, outcomes["Order"])
	assert.Positive(t, outcomes["Connection"]+outcomes["CircuitOpen"])
	if woken <= chooserWait-chooserTimeout {
		assert.Equal(t, all, soon, "No claim should wait longer than %s.", chooserWait)
	}
	eventually(t, func(a *attempt) {
		require.Equal(a, 1, c.Connections(), "There should be one connection.")
		after := resourcesOf(a, r)
		for i, name := range []string{"goroutines", "files"} {
			require.LessOrEqual(a, after[i], before[i]+10, "There should be no more %s than before.", name)
		}
	})
	t.Logf("goroutines and files before %v, and after %v", before, resourcesOf(t, r))
}

// resourcesOf a replica are its goroutines and open files.
func resourcesOf(t require.TestingT, r *replica) (all [2]float64) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families := must(parser.TextToMetricFamilies(bytes.NewReader(must(r.Metrics(context.Background()))(t))))(t)
	for i, name := range []string{"go_goroutines", "process_open_fds"} {
		require.Len(t, families[name].GetMetric(), 1)
		all[i] = families[name].GetMetric()[0].GetGauge().GetValue()
	}
	return all
}
