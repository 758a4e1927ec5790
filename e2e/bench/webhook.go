package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sizeTolerance is by how many bytes the answers of the two webhooks may differ.
const sizeTolerance = 4

// Webhook is what two webhooks took for the same reviews.
type Webhook struct {
	Classes    int `json:"classes"`
	ClassKinds int `json:"classKinds"`
	ClaimKinds int `json:"claimKinds"`
	Matches    int `json:"matches"`
	// ReviewBytes is the size of the first review, and the others those of its answer's bodies.
	ReviewBytes          int `json:"reviewBytes"`
	DoNothingAnswerBytes int `json:"doNothingAnswerBytes"`
	ClassbindAnswerBytes int `json:"classbindAnswerBytes"`

	DoNothing Served `json:"doNothing"`
	Classbind Served `json:"classbind"`
	// Ratios of classbind to the do-nothing webhook: medians of those of rounds
	// that were next to each other.
	ThroughputRatio float64 `json:"throughputRatio"`
	P50Ratio        float64 `json:"p50Ratio"`
	P99Ratio        float64 `json:"p99Ratio"`
	CPURatio        float64 `json:"cpuRatio"`
}

// Served is what a server took: medians of its rounds.
type Served struct {
	PerSecond float64 `json:"perSecond"`
	P50Millis float64 `json:"p50Millis"`
	P99Millis float64 `json:"p99Millis"`
	// CPUMicros are the server's for a request.
	CPUMicros float64 `json:"cpuMicros"`
	// RSSBytes after the last round.
	RSSBytes int64 `json:"rssBytes"`
}

// served are rounds of a process, in a report.
func served(p *process, rounds []round) (Served, error) {
	s := Served{
		PerSecond: medianOf(rounds, round.perSecond),
		P50Millis: medianOf(rounds, func(r round) float64 { return millis(r.P50) }),
		P99Millis: medianOf(rounds, func(r round) float64 { return millis(r.P99) }),
		CPUMicros: medianOf(rounds, round.cpuMicros),
	}
	var err error
	s.RSSBytes, _, err = p.memory()
	return s, err
}

// webhook drives classbind and a webhook that does nothing in turn.
func (m *many) webhook(ctx context.Context, doNothingCommand string) (_ *Webhook, err error) {
	d, err := m.startConstant(ctx, doNothingCommand)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	nothing, err := m.constant(d)
	if err != nil {
		return nil, err
	}
	bound := m.bound()
	w := &Webhook{
		Classes: m.settings.Classes, ClassKinds: m.settings.ClassKinds, ClaimKinds: m.settings.ClaimKinds, Matches: m.settings.Matches,
		ReviewBytes: len(m.reviews[0].body),
	}
	if w.DoNothingAnswerBytes, w.ClassbindAnswerBytes, err = sameAnswers(ctx, nothing, bound); err != nil {
		return nil, err
	}
	both, err := m.interleave(ctx, "webhook", []*target{nothing, bound}, []string{"do-nothing", "classbind"})
	if err != nil {
		return nil, err
	}
	if w.DoNothing, err = served(nothing.process, both[0]); err != nil {
		return nil, err
	}
	if w.Classbind, err = served(bound.process, both[1]); err != nil {
		return nil, err
	}
	w.ThroughputRatio = ratio(both[1], both[0], round.perSecond)
	w.P50Ratio = ratio(both[1], both[0], func(r round) float64 { return millis(r.P50) })
	w.P99Ratio = ratio(both[1], both[0], func(r round) float64 { return millis(r.P99) })
	w.CPURatio = ratio(both[1], both[0], round.cpuMicros)
	if m.settings.CPUProfile != "" {
		err = m.profileCPU(ctx, bound)
	}
	return w, err
}

// ratio of something of rounds to that of those beside them, the median.
func ratio(of, to []round, value func(round) float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = value(of[i]) / value(to[i])
	}
	return median(ratios)
}

// interleave rounds of targets, in turn one way and the other, and leave out the
// first of each, in which they warm up.
func (m *many) interleave(ctx context.Context, what string, targets []*target, names []string) ([][]round, error) {
	rounds := make([][]round, len(targets))
	for n := range m.settings.Rounds + 1 {
		for i := range targets {
			if n%2 == 1 {
				i = len(targets) - 1 - i
			}
			r, err := targets[i].drive(ctx, m.settings.Round, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			warm := ""
			if n > 0 {
				rounds[i] = append(rounds[i], r)
			} else {
				warm = " (warming up)"
			}
			_, _ = fmt.Fprintf(m.progress, "  %s: round %d of %d, %-10s %6.0f/s, p50 %.2f ms, p99 %.2f ms, worst %.0f ms, CPU %.0f µs%s\n",
				what, n, m.settings.Rounds, names[i], r.perSecond(), millis(r.P50), millis(r.P99), millis(r.Worst), r.cpuMicros(), warm)
		}
	}
	return rounds, nil
}

// startConstant starts a webhook that does nothing, with the answer of classbind.
func (m *many) startConstant(ctx context.Context, command string) (*doNothing, error) {
	c := newClient(m.replica.URL, m.trusted, 1)
	defer c.Close()
	answer, err := ask(ctx, c, bindPath(m.reviews[0].claimKind), m.reviews[0].body)
	if err != nil {
		return nil, err
	}
	if answer.AuditAnnotations, err = sameSize(answer); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(m.Dir, "donothing-")
	if err != nil {
		return nil, err
	}
	return startDoNothing(ctx, command, dir, answer)
}

// sameSize are annotations for a webhook of controller-runtime's, which adds a
// status to what classbind answers, with which its answers have the same size.
func sameSize(answer *admissionv1.AdmissionResponse) (map[string]string, error) {
	const filled = "reason"
	theirs := answer.DeepCopy()
	theirs.Result = &metav1.Status{Code: 200}
	theirs.AuditAnnotations = map[string]string{"class": answer.AuditAnnotations["class"], filled: ""}
	want, err := json.Marshal(admissionv1.AdmissionReview{Response: answer})
	if err != nil {
		return nil, err
	}
	got, err := json.Marshal(admissionv1.AdmissionReview{Response: theirs})
	if err != nil {
		return nil, err
	}
	missing := len(want) - len(got)
	if missing < 0 {
		return nil, fmt.Errorf("a do-nothing webhook cannot answer in as few bytes as classbind: %s", want)
	}
	theirs.AuditAnnotations[filled] = strings.Repeat("-", missing)
	return theirs.AuditAnnotations, nil
}

// constant is the do-nothing webhook as a target.
func (m *many) constant(d *doNothing) (*target, error) {
	config, err := trusting(d.ca)
	if err != nil {
		return nil, err
	}
	t := m.bound()
	t.url, t.path, t.tls, t.process = d.url, func(string) string { return constantPath + "?timeout=3s" }, config, &d.process
	return t, nil
}

// sameAnswers says how large the answers of two targets to the first review are,
// which are to be of about one size and to have patches of one size.
func sameAnswers(ctx context.Context, targets ...*target) (int, int, error) {
	var sizes, patches [2]int
	for i, t := range targets {
		c := newClient(t.url, t.tls, 1)
		defer c.Close()
		body, err := c.Post(ctx, t.path(t.reviews[0].claimKind), t.reviews[0].body)
		if err != nil {
			return 0, 0, err
		}
		answer := admissionv1.AdmissionReview{}
		if err := json.Unmarshal(body, &answer); err != nil {
			return 0, 0, err
		}
		sizes[i], patches[i] = len(body), len(answer.Response.Patch)
	}
	if d := sizes[0] - sizes[1]; max(d, -d) > sizeTolerance || patches[0] != patches[1] {
		return 0, 0, fmt.Errorf("the webhooks do not answer alike: %d and %d bytes, with patches of %d and %d",
			sizes[0], sizes[1], patches[0], patches[1])
	}
	return sizes[0], sizes[1], nil
}
