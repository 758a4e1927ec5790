package chooser

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// choose asks the chooser, unless it is known what it answers, or that it does not. The outcome is for the metric; empty, the answer has it.
func (l *connection) choose(ctx context.Context, q *selector.Question) (answer selector.Answer, outcome string) {
	e := q.Kind.External
	if e.Service != nil && string(e.Service.Namespace) == q.Namespace {
		return unavailable(v1beta1.ReasonOwnNamespace), ""
	}
	texts := make([]string, len(q.Candidates))
	for i, c := range q.Candidates {
		texts[i] = l.textOf(q.Kind.Rules.Shown, c)
	}
	epoch, sorted := *l.epoch.Load(), byClass(q.Candidates)
	key := keyOf(q, texts, sorted, epoch)
	if kept, ok := l.answers.Get(key); ok {
		return kept.(keptAnswer).of(q, sorted), cached // Nor this.
	}
	if reason := l.circuit.refuses(q.Namespace); reason != "" {
		return unavailable(reason), ""
	}
	request := requestOf(q, texts, epoch)
	if proto.Size(request) > v1beta1.MaxChooserRequestBytes {
		return unavailable(v1beta1.ReasonTooLarge), ""
	}
	done, err := l.limiter.Take(ctx, q.Namespace) // It never waits.
	if err != nil {
		return unavailable(v1beta1.ReasonBusy), ""
	}
	defer done()
	answer, valid := l.call(ctx, q, request)
	if valid > 0 && *l.epoch.Load() == epoch {
		l.answers.Add(key, keep(q, sorted, &answer), min(valid, v1beta1.MaxChooserAnswerAge))
	}
	if answer.Outcome != selector.ChooserUnavailable {
		outcome = string(answer.Outcome)
	}
	return answer, outcome
}

// call the chooser within its timeout, and record what that says of it.
func (l *connection) call(ctx context.Context, q *selector.Question, request *chooserv1.RankRequest) (selector.Answer, time.Duration) {
	within, cancel := context.WithTimeout(ctx, q.Kind.External.Wait())
	defer cancel()
	began, reason := time.Now(), v1beta1.ReasonConnection
	var response *chooserv1.RankResponse
	if l.isConnected() {
		var err error
		if response, err = chooserv1.NewChooserClient(l.conn).Rank(within, request); err == nil {
			reason = l.confirm(within, response.GetEpoch())
		} else {
			reason = reasonOf(err)
		}
	}
	var answer selector.Answer
	if reason == "" {
		answer, reason = l.read(q, response)
	}
	if !q.DryRun {
		l.choosers.seconds.WithLabelValues(l.claimKind).Observe(time.Since(began).Seconds())
	}
	if ctx.Err() == nil { // Else the claim did not wait for all of the timeout.
		l.circuit.called(q.Namespace, reason, l.now())
	}
	if reason != "" {
		return unavailable(reason), 0
	}
	valid := response.GetValidFor().AsDuration()
	if answer.Outcome == selector.ChooserNone {
		valid = 0
	}
	return answer, valid
}

// confirm that an answer has the epoch of Status, which is asked for again if it differs: the chooser may have got new data.
func (l *connection) confirm(ctx context.Context, epoch string) (reason string) {
	if *l.epoch.Load() == epoch {
		return ""
	}
	l.poll(ctx)
	switch {
	case *l.epoch.Load() == epoch:
		return ""
	case ctx.Err() != nil:
		return v1beta1.ReasonTimeout
	}
	return v1beta1.ReasonEpoch
}

func requestOf(q *selector.Question, texts []string, epoch string) *chooserv1.RankRequest {
	r := &chooserv1.RankRequest{
		ClaimKind: q.Kind.Name, Revision: revisionOf(q.Kind), Epoch: epoch, Seed: q.Seed, DryRun: q.DryRun, Claim: q.Claim,
	}
	for i, text := range texts {
		r.Candidates = append(r.Candidates, &chooserv1.Candidate{Id: strconv.Itoa(i), Class: text})
	}
	return r
}

func revisionOf(k *selector.ClaimKind) string {
	return string(k.Revision.UID) + "/" + strconv.FormatInt(k.Revision.Generation, 10)
}

// read an answer, or return the reason Invalid.
func (l *connection) read(q *selector.Question, r *chooserv1.RankResponse) (a selector.Answer, reason string) {
	switch of := r.GetAnswer().(type) {
	case *chooserv1.RankResponse_None:
		return selector.Answer{Outcome: selector.ChooserNone, Message: of.None.GetMessage()}, ""
	case *chooserv1.RankResponse_NoOpinion:
		return selector.Answer{Outcome: selector.ChooserNoOpinion}, ""
	case *chooserv1.RankResponse_Order:
		a = selector.Answer{Outcome: selector.ChooserOrdered, Exclusive: of.Order.GetExclusive()}
		named := make([]bool, len(q.Candidates))
		unknown := 0
		for _, id := range of.Order.GetIds() {
			i, err := positionOf(id, len(q.Candidates))
			switch {
			case err != nil:
				unknown++
			case !named[i]:
				named[i] = true
				a.Order = append(a.Order, q.Candidates[i])
			}
		}
		if unknown > 0 {
			l.choosers.unknown.WithLabelValues(l.claimKind).Add(float64(unknown))
		}
		if len(a.Order) > 0 {
			return a, ""
		}
	}
	return a, v1beta1.ReasonInvalid
}

var errUnknown = errors.New("unknown")

// positionOf the candidate with an identifier.
func positionOf(id string, candidates int) (int, error) {
	i, err := strconv.Atoi(id)
	if err != nil || i < 0 || i >= candidates || strconv.Itoa(i) != id {
		return 0, errUnknown
	}
	return i, nil
}

// shownClass is a class as a chooser sees it.
type shownClass struct {
	fields *rules.Shown
	class  *inventory.Class
}

// maxKeptText limits the text of a class that is kept. It protects memory: all have at most 4 MiB.
const maxKeptText = 1 << 10

// textOf a class, which nearly always is what it was for the last claim.
func (l *connection) textOf(fields *rules.Shown, c *inventory.Class) string {
	if kept, ok := l.texts.Get(shownClass{fields, c}); ok {
		return kept.(string) // It has nothing else.
	}
	text := fields.Class(c.Fields)
	if len(text) <= maxKeptText {
		l.texts.Add(shownClass{fields, c}, text, v1beta1.MaxChooserAnswerAge)
	}
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

// keptAnswer names classes by their position among the sorted candidates: there are at most 100.
type keptAnswer struct {
	outcome   selector.ChoiceOutcome
	exclusive bool
	order     []uint8
}

func keep(q *selector.Question, sorted []int, a *selector.Answer) keptAnswer {
	k := keptAnswer{a.Outcome, a.Exclusive, make([]uint8, len(a.Order))}
	for i, c := range a.Order {
		at := slices.IndexFunc(sorted, func(j int) bool { return q.Candidates[j] == c })
		k.order[i] = uint8(at) //nolint:gosec // See above.
	}
	return k
}

func (k keptAnswer) of(q *selector.Question, sorted []int) selector.Answer {
	a := selector.Answer{Outcome: k.outcome, Exclusive: k.exclusive, Order: make([]*inventory.Class, len(k.order))}
	for i, at := range k.order {
		a.Order[i] = q.Candidates[sorted[at]]
	}
	return a
}
