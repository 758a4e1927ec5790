package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// counted returns the scraped values that are not 0; for a histogram, the number of observations.
func counted(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	all := scraped(t, m)
	maps.DeleteFunc(all, func(_ string, n float64) bool { return n == 0 })
	return all
}

func scraped(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	return controllertest.Scraped(t, registry)
}

const (
	decided = "decisions_total claim_kind=" + claimKindName + " outcome=%s strategy=WeightedRandom"
	waited  = "waits_total claim_kind=" + claimKindName + " outcome=%s"
	chosen  = "choosing_duration_seconds claim_kind=" + claimKindName
	guarded = "guard_decisions_total class_kind=%s outcome=%s"
)

func TestHelpNamesEachOutcome(t *testing.T) {
	m := NewMetrics(nil)
	for vec, of := range map[*prometheus.CounterVec][]string{
		m.decisions: outcomes,
		m.guarded:   append(slices.Collect(maps.Values(guardOutcomes)), "untouched", "unavailable"),
		m.waits:     slices.Collect(maps.Values(waitOutcomes)),
	} {
		described := make(chan *prometheus.Desc, 1)
		vec.Describe(described)
		help := (<-described).String()
		for _, outcome := range of {
			assert.Contains(t, help, outcome, "We should name each outcome in the help.")
		}
	}
}

func TestMetricsOfClaims(t *testing.T) {
	deny := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.WhenUnmatched = v1beta1.Deny })
	later := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.WhenUnmatched = v1beta1.BindLater })
	faulty := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed.From = "Moon" })
	gold, silver := index(sqlClasses, "gold tier=gold"), index(sqlClasses, "silver tier=silver")
	unheardOf := func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "made-up-by-somebody" }
	as := func(outcome string) string { return fmt.Sprintf(decided, outcome) }
	const bare = "decisions_total claim_kind= outcome=%s strategy="
	for name, tc := range map[string]struct {
		reason  string
		kind    *selector.ClaimKind // newClaimKind() unless set; it has the class gold
		newer   *inventory.Classes  // what comes while a claim waits, where there was silver before; nil means that none waits
		change  func(*Binder)
		request *admissionv1.AdmissionRequest
		want    []string
	}{
		"Bound": {
			reason:  "We should count a claim that got a class, and observe how long that took.",
			request: newRequest(wantsGold),
			want:    []string{as("bound"), chosen},
		},
		"BoundAfterAWait": {
			reason:  "We should count what came of waiting.",
			newer:   gold,
			request: newRequest(wantsGold),
			want:    []string{as("bound"), fmt.Sprintf(waited, "found"), chosen},
		},
		"UnmatchedAdmitted": {
			reason:  "We should count a claim that is created without a class.",
			newer:   silver,
			request: newRequest(`{}`),
			want:    []string{as("unmatched_admitted"), fmt.Sprintf(waited, "none"), chosen},
		},
		"UnmatchedWaiting": {
			reason:  "We should count a claim that is bound later.",
			kind:    later,
			newer:   silver,
			request: newRequest(`{}`),
			want:    []string{as("unmatched_waiting"), fmt.Sprintf(waited, "none"), chosen},
		},
		"UnmatchedDenied": {
			reason:  "We should count a claim that is refused for want of a class.",
			kind:    deny,
			newer:   silver,
			request: newRequest(`{}`),
			want:    []string{as("unmatched_denied"), fmt.Sprintf(waited, "none"), chosen},
		},
		"Untouched": {
			reason:  "We should count a claim that has its class.",
			request: newRequest(`{"spec":{"classRef":{"name":"mine"}}}`),
			want:    []string{as("untouched")},
		},
		"Malformed": {
			reason:  "We should count a claim whose selector cannot be read.",
			request: newRequest(`{"spec":{` + mistyped + `}}`),
			want:    []string{as("malformed")},
		},
		"Broken": {
			reason: "We should count a claim that we cannot answer for.", newer: silver,
			change:  func(b *Binder) { b.Decider.Broken = func(string) error { return errors.New("refused") } },
			request: newRequest(wantsGold), want: []string{as("unavailable"), fmt.Sprintf(waited, "none"), chosen},
		},
		"Fault": {
			reason:  "We should name the kind whose registration is at fault.",
			kind:    faulty,
			request: newRequest(wantsGold),
			want:    []string{as("unavailable")},
		},
		"Closed": {
			reason:  "We should name no kind while we know none.",
			change:  func(b *Binder) { b.Snapshot = selector.NewInventory().Snapshot },
			request: newRequest(wantsGold),
			want:    []string{fmt.Sprintf(bare, "unavailable")},
		},
		"NotRegistered": {
			reason:  "We should name no kind that is not registered.",
			change:  func(b *Binder) { b.ClaimKind = asClaimKind(false, nil) },
			request: newRequest(wantsGold, unheardOf),
			want:    []string{fmt.Sprintf(bare, "untouched")},
		},
		"NoReview": {reason: "We should not count what no API server sends.", request: newRequest(`[]`)},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			var metrics *Metrics
			synctest.Test(t, func(t *testing.T) {
				kind, classes := cmp.Or(tc.kind, newClaimKind()), gold
				if tc.newer != nil {
					classes = silver
				}
				inv := newInventory(kind, classes)
				binder := newBinder(t, inv)
				metrics = NewMetrics(inv.Snapshot)
				binder.Metrics = metrics
				if tc.newer != nil {
					binder.Decider.Waits = inv.Waits
					time.AfterFunc(time.Millisecond, func() { inv.SetClasses(tc.newer) })
				}
				if tc.change != nil {
					tc.change(binder)
				}
				_, _ = byResource(binder)(t.Context(), request)
			})
			want := map[string]float64{}
			for _, key := range tc.want {
				if request.DryRun == nil {
					want[key] = 1
				}
			}
			assert.Equal(t, want, counted(t, metrics), tc.reason)
		})
	}
}

func TestMetricsOfClasses(t *testing.T) {
	rds := newGuardRequest(rdsClasses, "", object("bronze", markedInAWS, ""))
	for name, tc := range map[string]struct {
		reason  string
		there   func(*apiServer)
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"Admitted": {reason: "We should count a default.", request: rds, want: fmt.Sprintf(guarded, rdsClasses.Name, "admitted")},
		"Untouched": {
			reason:  "We should count a class that is not marked.",
			request: newGuardRequest(sqlClasses, "", silver),
			want:    fmt.Sprintf(guarded, sqlClasses.Name, "untouched"),
		},
		"NotRegistered": {
			reason:  "We should name no kind that is not registered.",
			request: newGuardRequest(sqlClasses, "", silver),
			there:   func(s *apiServer) { clear(s.kinds) },
			want:    fmt.Sprintf(guarded, "", "untouched"),
		},
		"MalformedMark": {
			reason:  "We should count a weight that is refused.",
			request: newGuardRequest(sqlClasses, "", object("silver", `,"annotations":{"weight":"much"}`, "")),
			want:    fmt.Sprintf(guarded, sqlClasses.Name, "malformed_weight"),
		},
		"Unavailable": {
			reason:  "We should count a class that we cannot answer for.",
			request: rds,
			there:   func(s *apiServer) { s.fail = func(string, string) error { return errors.New("refused") } },
			want:    fmt.Sprintf(guarded, rdsClasses.Name, "unavailable"),
		},
		"NoReview": {reason: "We should not count what no API server sends.", request: newGuardRequest(sqlClasses, "", `[]`)},
		"NoNamespace": {
			reason:  "We should count a class whose namespace is not there.",
			request: newGuardRequest(rdsClasses, "", object("gold", `,"namespace":"made-up"`+marked, "")),
			want:    fmt.Sprintf(guarded, rdsClasses.Name, "no_namespace"),
		},
		"SecondDefault": {
			reason:  "We should count a second default.",
			request: rds,
			there:   func(s *apiServer) { s.known("gold") },
			want:    fmt.Sprintf(guarded, rdsClasses.Name, "second_default"),
		},
		"DefaultsAtOnce": {
			reason:  "We should count a default that has to wait.",
			request: rds,
			there:   func(s *apiServer) { s.holds(claimKindName, "sqlclasses.example.org/silver", "silver-1", "") },
			want:    fmt.Sprintf(guarded, rdsClasses.Name, "in_flight"),
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			server := newAPIServer()
			if tc.there != nil {
				tc.there(server)
			}
			inv := newInventory(newClaimKind(), index(sqlClasses, "gold @default=true"), index(rdsClasses))
			if _, known := server.classes["sqlclasses.example.org//gold"]; !known {
				inv.SetClasses(index(sqlClasses))
			}
			guard := server.guard(inv)
			guard.Metrics = NewMetrics(inv.Snapshot)
			_, _ = guard.Review(t.Context(), request)
			want := map[string]float64{}
			if tc.want != "" && request.DryRun == nil {
				want[tc.want] = 1
			}
			assert.Equal(t, want, counted(t, guard.Metrics), tc.reason)
		})
	}
}

// known stores a default class that no guard has admitted.
func (s *apiServer) known(name string) {
	s.classes["sqlclasses.example.org//"+name] = object(name, marked, "")
}

// A rate needs counters that are there from the beginning.
func TestMetricsAreThereFromTheBeginning(t *testing.T) {
	inv := newInventory(newClaimKind(), index(sqlClasses, "gold"))
	m := NewMetrics(inv.Snapshot)
	seen := func() map[string]int {
		n := map[string]int{}
		for key := range scraped(t, m) {
			name, _, _ := strings.Cut(key, " ")
			n[name]++
		}
		return n
	}
	want := map[string]int{
		"decisions_total":           len(outcomes) + 2,
		"waits_total":               len(waitOutcomes),
		"choosing_duration_seconds": 1,
		"guard_decisions_total":     len(guardOutcomes) + 2,
	}
	assert.Equal(t, want, seen(), "We should have all outcomes of all kinds before there is any claim.")
	inv.SetClaimKind(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.Random }))
	want["decisions_total"] += len(outcomes)
	assert.Equal(t, want, seen(), "We should distinguish strategies.")
	inv.DeleteClaimKind(claimKindName)
	assert.Equal(t, want, seen(), "We should forget no counter: one that begins again is one that jumps.")
}

// BenchmarkReview is what make size follows, to know the files on the way of a claim. The log and the metrics come after the answer.
func BenchmarkReview(b *testing.B) {
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold", "other tier=gold", "silver tier=silver"))
	request, ctx := newRequest(wantsGold), at(logr.NewContext(b.Context(), logr.Discard()), claimKindName)
	b.Run("Counted", func(b *testing.B) {
		binder := &Binder{
			Snapshot: inventory.Snapshot, Decider: &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now}, Metrics: NewMetrics(inventory.Snapshot),
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := binder.Review(ctx, request); err != nil {
				b.Fatal(err)
			}
		}
	})
}
