package webhook

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// outcomes of the reviews of claims.
var outcomes = []string{
	"bound", "unmatched_admitted", "unmatched_waiting", "unmatched_denied",
	"restored", "untouched", "malformed", "unavailable", "throttled",
}

var waitOutcomes = map[selector.WaitOutcome]string{
	selector.WaitFound: "found", selector.WaitNone: "none", selector.WaitRefused: "refused",
}

// guardOutcomes by the reason in the audit annotation. Every other reason means that the class is left alone.
var guardOutcomes = map[string]string{
	"OneDefault": "admitted", "SecondDefault": "second_default", "DefaultInFlight": "in_flight",
	"AlreadyExists": "already_exists", "Conflict": "conflict", "NoNamespace": "no_namespace", "MalformedWeight": "malformed_weight",
	"SeatUnknown": "seat_unknown",
}

// Metrics count what becomes of claims and of classes. They leave out dry runs, and requests that no API server sends. Authors of claims
// cannot make up values of labels: all kinds that are not registered are the kind "".
//
// They count after the answer has been sent, and their durations are of what came before it. So a claim may be stored a moment before it is
// counted.
//
// A nil *Metrics counts nothing.
type Metrics struct {
	snapshot func() selector.Snapshot

	decisions *prometheus.CounterVec
	choosing  *prometheus.HistogramVec
	waits     *prometheus.CounterVec
	uses      *prometheus.CounterVec
	guarded   *prometheus.CounterVec
	answers   *prometheus.CounterVec
}

// NewMetrics of the kinds in the snapshot, which is taken again for each scrape.
func NewMetrics(snapshot func() selector.Snapshot) *Metrics {
	return &Metrics{
		snapshot: snapshot,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_decisions_total",
			Help: "Decisions on claims, by claim kind, strategy and outcome: " +
				"bound, unmatched_admitted, unmatched_waiting (to be bound later), unmatched_denied, " +
				"restored (an update that removed the reference), untouched, malformed, unavailable or throttled.",
		}, []string{"claim_kind", "strategy", "outcome"}),
		choosing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "classbind_choosing_duration_seconds",
			Help:    "Time to choose a class for a claim among those that are known, without any wait.",
			Buckets: []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1},
		}, []string{"claim_kind"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_waits_total",
			Help: "Claims that no known class matched when they came, by claim kind and outcome of the wait for a newer class: " +
				"found, none, or refused, because too many claims waited.",
		}, []string{"claim_kind", "outcome"}),
		uses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_use_refusals_total",
			Help: "Claims that were not allowed to use the class that was drawn first, by claim kind and outcome: " +
				"walked, if they got another one, or refused.",
		}, []string{"claim_kind", "outcome"}),
		guarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_guard_decisions_total",
			Help: "Classes that were judged before they were stored, by class kind and outcome: " +
				"admitted, second_default, in_flight, already_exists, conflict, no_namespace, malformed_weight, " +
				"seat_unknown, untouched or unavailable.",
		}, []string{"class_kind", "outcome"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_reviews_total",
			Help: "Reviews by webhook (bind, check, guard, deletion or registration) and answer: allowed, refused or unavailable.",
		}, []string{"webhook", "answer"}),
	}
}

// Answers counts the answers of the webhook at a path, each from 0.
func (m *Metrics) Answers(path string) *prometheus.CounterVec {
	name, _, _ := strings.Cut(strings.Trim(path, "/"), "/")
	of := m.answers.MustCurryWith(prometheus.Labels{"webhook": name})
	for _, answer := range []string{"allowed", "refused", "unavailable"} {
		of.WithLabelValues(answer)
	}
	return of
}

// Register the metrics with those that controller-runtime serves.
func (m *Metrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect includes every counter of every registered kind: a counter that appears with the value 1 shows no increase.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, outcome := range []string{"untouched", "unavailable"} {
		m.decisions.WithLabelValues("", "", outcome)
	}
	for _, view := range m.snapshot() {
		for _, outcome := range outcomes {
			m.decisions.WithLabelValues(view.Kind.Name, string(view.Kind.Strategy.Name), outcome)
		}
		for _, outcome := range waitOutcomes {
			m.waits.WithLabelValues(view.Kind.Name, outcome)
		}
		m.choosing.WithLabelValues(view.Kind.Name)
		if view.Kind.Use != "" {
			m.uses.WithLabelValues(view.Kind.Name, "walked")
			m.uses.WithLabelValues(view.Kind.Name, "refused")
		}
		for _, x := range view.Classes {
			for _, outcome := range append(slices.Collect(maps.Values(guardOutcomes)), "untouched", "unavailable") {
				m.guarded.WithLabelValues(x.Kind.Name, outcome)
			}
		}
	}
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decisions, m.choosing, m.waits, m.guarded, m.uses, m.answers}
}

// reviewed counts the answer to a claim, and how it came about. The view is nil for an unknown kind, and the decision has no view if none
// was made.
func (m *Metrics) reviewed(view *selector.View, d *selector.Decision, outcome string) {
	if m == nil {
		return
	}
	if view == nil {
		m.decisions.WithLabelValues("", "", outcome).Inc()
		return
	}
	claimKind := view.Kind.Name
	m.decisions.WithLabelValues(claimKind, string(view.Kind.Strategy.Name), outcome).Inc()
	if d.Drawn() {
		m.choosing.WithLabelValues(claimKind).Observe(d.Took.Seconds())
	}
	if len(d.Refused) > 0 {
		walked := "refused"
		if d.Class != nil {
			walked = "walked"
		}
		m.uses.WithLabelValues(claimKind, walked).Inc()
	}
	if outcome := waitOutcomes[d.Waited]; outcome != "" {
		m.waits.WithLabelValues(claimKind, outcome).Inc()
	}
}

func outcomeOf(d *selector.Decision, response *admissionv1.AdmissionResponse, err error) string {
	switch {
	case err != nil:
		return "unavailable"
	case response.Result != nil && response.Result.Code == http.StatusTooManyRequests:
		return "throttled"
	case d.View == nil && response.Patch != nil:
		return "restored"
	case d.View == nil || d.Claim.LeftAlone != "":
		return "untouched"
	case len(d.Claim.Problems) > 0:
		return "malformed"
	case d.Class != nil:
		return "bound"
	case response.Allowed && d.View.Kind.BindLater:
		return "unmatched_waiting"
	case response.Allowed:
		return "unmatched_admitted"
	}
	return "unmatched_denied"
}

func isBadRequest(err error) bool {
	_, is := errors.AsType[*badRequest](err)
	return is
}

// judged counts the answer to a class; kind is nil if it is not registered.
func (m *Metrics) judged(kind *inventory.ClassKind, response *admissionv1.AdmissionResponse, err error) {
	if m == nil || isBadRequest(err) || response == nil && err == nil { // The last is a panic.
		return
	}
	name, outcome := "", "unavailable"
	if kind != nil {
		name = kind.Name
	}
	if err == nil {
		outcome = cmp.Or(guardOutcomes[response.AuditAnnotations["reason"]], "untouched")
	}
	m.guarded.WithLabelValues(name, outcome).Inc()
}
