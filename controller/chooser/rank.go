package chooser

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"time"
	"weak"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// choose asks the chooser, unless its answer is in the cache or its circuit is open. The outcome is for the metric; empty, the answer has
// it. Candidates with too many fields are left out: they follow those that the answer names.
func (l *connection) choose(ctx context.Context, q *selector.Question) (answer selector.Answer, outcome string) {
	texts, candidates := make([]string, 0, len(q.Candidates)), make([]*inventory.Class, 0, len(q.Candidates))
	for _, c := range q.Candidates {
		if text := l.textOf(q.Kind.Rules.Shown, c); text != "" {
			texts, candidates = append(texts, text), append(candidates, c)
		}
	}
	if len(candidates) == 0 {
		return unavailable(v1beta1.ReasonTooLarge), ""
	}
	shorter := *q
	shorter.Candidates, q = candidates, &shorter
	epoch, sorted := *l.epoch.Load(), byClass(q.Candidates)
	key := keyOf(q, texts, sorted, epoch)
	if kept, ok := l.answers.Get(key); ok {
		return kept.(ranking).of(q, sorted), cached // It has nothing else.
	}
	if reason := l.circuit.refuses(q.Key); reason != "" {
		if q.Stored && q.Key == "" && reason == v1beta1.ReasonNamespaceCircuitOpen {
			reason = v1beta1.ReasonBusy // Their authors are not known, so one may keep others waiting. None is drawn for that.
		}
		answer = unavailable(reason)
		answer.Soon = reason == v1beta1.ReasonBusy
		answer.OwnDoing = reason == v1beta1.ReasonNamespaceCircuitOpen && !l.circuit.hangs(q.Key)
		return answer, ""
	}
	for _, limiter := range l.limiters[q.Stored] {
		done, err := limiter.Take(ctx, q.Key) // It never waits.
		if err != nil {
			answer = unavailable(v1beta1.ReasonBusy)
			answer.Soon = true
			answer.OwnDoing = errors.Is(err, fair.ErrKeyFull) && !l.circuit.hangs(q.Key)
			return answer, ""
		}
		defer done()
	}
	r, valid, reason := l.call(ctx, q, requestOf(q, texts, sorted, epoch))
	if reason != "" {
		return unavailable(reason), ""
	}
	if valid > 0 && r.outcome != selector.ChooserNone && *l.epoch.Load() == epoch {
		l.answers.Add(key, r, min(valid, v1beta1.MaxChooserAnswerAge))
	}
	return r.of(q, sorted), string(r.outcome)
}

// call the chooser within its timeout, and record what that says of it: a reason why there is no answer, or how long that is valid.
func (l *connection) call(
	ctx context.Context, q *selector.Question, request *chooserv1.RankRequest,
) (r ranking, valid time.Duration, reason string) {
	within, cancel := context.WithTimeout(ctx, q.Kind.External.Wait())
	defer cancel()
	began, reason := time.Now(), v1beta1.ReasonConnection
	if l.isConnected() {
		response, err := chooserv1.NewChooserClient(l.conn).Rank(within, request)
		if reason = reasonOf(err); err == nil {
			reason = l.confirm(within, response.GetEpoch())
		}
		if reason == "" {
			r, reason = l.read(response, len(q.Candidates))
		}
		valid = response.GetValidFor().AsDuration()
	}
	if !q.DryRun {
		l.choosers.seconds.WithLabelValues(l.claimKind).Observe(time.Since(began).Seconds())
	}
	if ctx.Err() == nil { // Else the claim did not wait for all of the timeout.
		l.circuit.called(q.Key, reason, l.now())
	}
	return r, valid, reason
}

// confirm that an answer has the epoch of Status, which is asked for again if it differs: the chooser may have got new data. The first
// call may be one that began before that.
func (l *connection) confirm(ctx context.Context, epoch string) (reason string) {
	for range 2 {
		if *l.epoch.Load() == epoch {
			return ""
		}
		l.poll(ctx)
	}
	switch {
	case *l.epoch.Load() == epoch:
		return ""
	case ctx.Err() != nil:
		return v1beta1.ReasonTimeout
	}
	return v1beta1.ReasonEpoch
}

// requestOf a question. The identifier of a candidate is its position among the sorted.
func requestOf(q *selector.Question, texts []string, sorted []int, epoch string) *chooserv1.RankRequest {
	r := &chooserv1.RankRequest{
		ClaimKind: q.Kind.Name, Revision: revisionOf(q.Kind), Epoch: epoch, Seed: q.Seed, DryRun: q.DryRun, Claim: q.Claim,
		Candidates: make([]*chooserv1.Candidate, len(texts)),
	}
	for id, i := range sorted {
		r.Candidates[i] = &chooserv1.Candidate{Id: strconv.Itoa(id), Fields: texts[i]}
	}
	return r
}

func revisionOf(k *selector.ClaimKind) string {
	return string(k.Revision.UID) + "/" + strconv.FormatInt(k.Revision.Generation, 10)
}

// ranking is an answer that does not keep the classes: order has their positions among the sorted candidates, at most 100.
type ranking struct {
	outcome   selector.ChoiceOutcome
	exclusive bool
	order     []uint8
	message   string
}

// read an answer, or return the reason Invalid. It counts unknown identifiers.
func (l *connection) read(response *chooserv1.RankResponse, candidates int) (r ranking, reason string) {
	switch of := response.GetAnswer().(type) {
	case *chooserv1.RankResponse_NoClass:
		return ranking{outcome: selector.ChooserNone, message: of.NoClass.GetMessage()}, ""
	case *chooserv1.RankResponse_NoOpinion:
		return ranking{outcome: selector.ChooserNoOpinion}, ""
	}
	r.outcome, r.exclusive = selector.ChooserOrdered, response.GetOrder().GetExclusive()
	order, unknown := Positions(response.GetOrder(), candidates)
	if unknown > 0 {
		l.choosers.unknown.WithLabelValues(l.claimKind).Add(float64(unknown))
	}
	if r.order = order; len(order) == 0 {
		return r, v1beta1.ReasonInvalid
	}
	return r, ""
}

// Positions of so many candidates in an order, each once, and how many of its identifiers are unknown. An order without a position is
// invalid.
func Positions(o *chooserv1.Order, candidates int) (order []uint8, unknown int) {
	named := make([]bool, candidates)
	for _, id := range o.GetIds() {
		i, err := strconv.ParseUint(id, 10, 8)
		switch {
		case err != nil || int(i) >= candidates || strconv.FormatUint(i, 10) != id:
			unknown++
		case !named[i]:
			named[i] = true
			order = append(order, uint8(i))
		}
	}
	return order, unknown
}

// of a question, with its candidates.
func (r ranking) of(q *selector.Question, sorted []int) selector.Answer {
	a := selector.Answer{Outcome: r.outcome, Exclusive: r.exclusive, Message: r.message, Order: make([]*inventory.Class, len(r.order))}
	for i, id := range r.order {
		a.Order[i] = q.Candidates[sorted[id]]
	}
	return a
}

// shownClass is a class as a chooser sees it. The cache does not keep one that was replaced.
type shownClass struct {
	fields weak.Pointer[rules.Shown]
	class  weak.Pointer[inventory.Class]
}

// textOf a class is what the chooser learns of it, empty if that is too long. It has no age: what changes is another class.
func (l *connection) textOf(fields *rules.Shown, c *inventory.Class) string {
	key := shownClass{weak.Make(fields), weak.Make(c)}
	if kept, ok := l.texts.Get(key); ok {
		return kept.(string) // It has nothing else.
	}
	text := fields.Class(c.Fields, v1beta1.MaxChooserClassBytes)
	l.texts.Add(key, text)
	return text
}

// keyOf a question is a hash of all that an answer may depend on, but for the seed and the order of the draw.
func keyOf(q *selector.Question, texts []string, sorted []int, epoch string) [sha256.Size]byte {
	var all []byte
	write := func(parts ...string) {
		for _, p := range parts {
			all = append(binary.AppendUvarint(all, uint64(len(p))), p...)
		}
	}
	write(revisionOf(q.Kind), epoch, strconv.FormatBool(q.DryRun), q.Claim)
	for _, i := range sorted {
		c := q.Candidates[i]
		write(c.Kind.Name, c.Namespace, c.Name, texts[i])
	}
	return sha256.Sum256(all)
}

// byClass are the positions of candidates in an order that does not depend on the draw.
func byClass(candidates []*inventory.Class) []int {
	sorted := make([]int, len(candidates))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return inventory.Compare(candidates[a], candidates[b]) })
	return sorted
}
