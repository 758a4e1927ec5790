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

	"github.com/classbind/classbind/e2e/load"
)

// sizeTolerance is by how many bytes the answers of the two webhooks may differ.
const sizeTolerance = 4

// Webhook is what two webhooks took for the same reviews.
type Webhook struct {
	// ReviewBytes is the size of the first review, and AnswerBytes that of its answer's body.
	ReviewBytes, AnswerBytes int

	DoNothing, Classbind Served
	// Ratios of classbind to the do-nothing webhook: medians of those of rounds that were next to each other.
	ThroughputRatio, P50Ratio, P99Ratio, CPURatio float64
}

// Served is what a server took: medians of its rounds.
type Served struct {
	PerSecond, P50Millis, P99Millis float64
	// CPUMicros are the server's for a request.
	CPUMicros float64
	// RSSBytes after the last round.
	RSSBytes int64
}

// served are rounds of a process, in a report.
func served(p *process, rounds []round) (Served, error) {
	s := Served{
		PerSecond: load.MedianOf(rounds, round.perSecond),
		P50Millis: load.MedianOf(rounds, func(r round) float64 { return millis(r.P50) }),
		P99Millis: load.MedianOf(rounds, round.p99Millis),
		CPUMicros: load.MedianOf(rounds, round.cpuMicros),
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
	both, names := []*target{m.constant(d), m.bound()}, []string{"do-nothing", "classbind"}
	w := &Webhook{ReviewBytes: len(m.reviews[0].body)}
	if w.AnswerBytes, err = sameAnswers(ctx, both[0], both[1]); err != nil {
		return nil, err
	}
	var rounds [2][]round
	err = m.rounds(len(both), func(i, n int) error {
		r, err := both[i].drive(ctx, m.settings.Round, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", names[i], err)
		}
		if n > 0 {
			rounds[i] = append(rounds[i], r)
		}
		m.settings.say("  webhook: round %d of %d, %-10s %6.0f/s, p50 %.2f ms, p99 %.2f ms, worst %.0f ms, CPU %.0f µs\n",
			n, m.settings.Rounds, names[i], r.perSecond(), millis(r.P50), millis(r.P99), millis(r.Worst), r.cpuMicros())
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, to := range []*Served{&w.DoNothing, &w.Classbind} {
		if *to, err = served(both[i].process, rounds[i]); err != nil {
			return nil, err
		}
	}
	w.ThroughputRatio = load.Ratio(rounds[1], rounds[0], round.perSecond)
	w.P50Ratio = load.Ratio(rounds[1], rounds[0], func(r round) float64 { return millis(r.P50) })
	w.P99Ratio = load.Ratio(rounds[1], rounds[0], round.p99Millis)
	w.CPURatio = load.Ratio(rounds[1], rounds[0], round.cpuMicros)
	return w, nil
}

// startConstant starts a webhook that does nothing, with the answer of classbind.
func (m *many) startConstant(ctx context.Context, command string) (*doNothing, error) {
	answer, _, err := m.bound().ask(ctx, 0)
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
func (m *many) constant(d *doNothing) *target {
	t := m.bound()
	t.url, t.tls, t.process = d.url, d.tls, &d.process
	return t
}

// sameAnswers returns how large the answers of two targets to the first review are. They are to be of
// about one size and to have patches of one size.
func sameAnswers(ctx context.Context, one, other *target) (int, error) {
	a, size, err := one.ask(ctx, 0)
	if err != nil {
		return 0, err
	}
	b, otherSize, err := other.ask(ctx, 0)
	if err != nil {
		return 0, err
	}
	if d := size - otherSize; max(d, -d) > sizeTolerance || len(a.Patch) != len(b.Patch) {
		return 0, fmt.Errorf("the webhooks do not answer alike: %d and %d bytes, with patches of %d and %d",
			size, otherSize, len(a.Patch), len(b.Patch))
	}
	return otherSize, nil
}
