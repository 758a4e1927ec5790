package latebinding

import (
	"context"
	"time"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// lookTime is how long a round may look for classes. The rest is left for the next round.
	lookTime = 1250 * time.Millisecond
	// roundRest is how many times as long as a round took passes until the next begins: changes of classes, however many, cost a tenth of
	// a core, for each kind.
	roundRest = 10
	// quietTime is how long classes must not have changed for a change to be looked at at once, whatever the last round took, and for
	// quietLook.
	quietTime   = time.Minute
	quietLook   = 5 * time.Second
	lookBatch   = 100                    // how many claims are looked at before others may change what is known of them
	noticeDelay = 10 * time.Second       // how long a claim waits before an event reports that it has no class
	noticeTime  = 100 * time.Millisecond // how long a look may make such events. The rest is left for the next.
)

// rounds is what a state knows of the rounds of its binder.
type rounds struct {
	view    *selector.View // of the last round
	freed   uint64         // Registration.Freed then
	latest  *selector.View // that was seen, at changed for the first time
	changed time.Time
	next    time.Time // No round begins before.
}

// begin a round, if it is time, and return how long it may look. When classes have changed, all claims without one are due. When others
// gave some back, those for which classes had no room are.
func (s *claimState) begin(view *selector.View, freed uint64, now time.Time) (most time.Duration) {
	r := &s.rounds
	most = lookTime
	if r.latest != view {
		if now.Sub(r.changed) >= quietTime {
			r.next, most = now, quietLook
		}
		r.latest, r.changed = view, now
	}
	if now.Before(r.next) {
		return 0
	}
	if r.view != view || r.freed != freed {
		s.waiting.each(func(c *waitingClaim) {
			if (!c.matched || c.full) && (r.view != view || c.full) {
				s.waiting.offer(c)
			}
		})
		r.view, r.freed = view, freed
	}
	return most
}

// round looks at the claims that are due, and notifies the authors of those that have waited.
func (k *kindBinder) round(ctx context.Context) {
	view, ready, most := k.view(), false, time.Duration(0)
	freed := uint64(0)
	if view != nil {
		freed = k.binder.Claims.registration.Tallies.Freed(view)
	}
	k.watch.own(func(s *claimState) {
		s.useBinder(k.binder)
		if ready = view != nil && s.unwritable == nil; !ready {
			s.rounds.view = nil // All claims are due once they can be bound.
		}
	})
	if !ready {
		return
	}
	k.checkNamespaces(ctx)
	began := time.Now()
	if k.watch.own(func(s *claimState) { most = s.begin(view, freed, began) }); most > 0 {
		k.look(ctx, view, began, most)
	}
	k.notify(ctx, view, time.Now())
}

// look asks which of the due claims have a class, and hands these to the writers. Namespaces take turns.
func (k *kindBinder) look(ctx context.Context, view *selector.View, began time.Time, most time.Duration) {
	known := map[question]outlook{}
	for ctx.Err() == nil && time.Since(began) < most {
		var due []seenVersion
		k.watch.own(func(s *claimState) { due = s.waiting.takeDue(lookBatch) })
		if len(due) == 0 {
			break
		}
		answers := make([]outlook, len(due))
		for i, a := range due {
			q := question{a.namespace, a.ask}
			answer, asked := known[q]
			if !asked {
				answer = k.ask(ctx, view, a)
				known[q] = answer
			}
			answers[i] = answer
		}
		k.watch.own(func(s *claimState) {
			for i, a := range due {
				if s.record(a, answers[i]) {
					k.queue.Add(waitingItem{a.namespace, a.uid})
				}
			}
		})
	}
	next := began.Add(max(2*k.interval, roundRest*min(time.Since(began), lookTime)))
	k.watch.own(func(s *claimState) { s.rounds.next = next })
}

// question is what a round asks once: the claims of one namespace that have the same Ask have the same candidates.
type question struct {
	namespace string
	ask       claim.Ask
}

// outlook is the answer.
type outlook struct{ matched, notYet, full, failed bool }

func outlookOf(d *selector.Decision) outlook {
	return outlook{matched: d.Class != nil, notYet: d.Reason() == claim.NotYet, full: selector.IsFull(d)}
}

// ask whether a claim has a class. A selector that causes a panic matches nothing, and neither do expressions that cost too much.
func (k *kindBinder) ask(ctx context.Context, view *selector.View, a seenVersion) (answer outlook) {
	err := recovered.Do(func() error {
		if d, err := preview(ctx, view, a); err == nil {
			answer = outlookOf(&d)
		}
		return nil
	})
	if answer.failed = err != nil; answer.failed {
		k.binder.Claims.Metrics.tried(k.watch.kind.Name, latePanicked)
	}
	return answer
}

// preview decides on a claim from what is known, without any effect. It asks no gate: gates are asked about a claim that is to be written.
func preview(ctx context.Context, view *selector.View, a seenVersion) (selector.Decision, error) {
	c, err := a.ask.Claim(a.namespace, a.name)
	if err != nil {
		return selector.Decision{}, err
	}
	return new(selector.Decider).Decide(ctx, view, claim.Intake{Claim: c}, selector.Mode{Stored: true, DryRun: true})
}

// record what was found of a claim, and report whether it is to be written. What has changed meanwhile is due again already.
func (s *claimState) record(a seenVersion, is outlook) bool {
	c := s.waiting.find(a.namespace, a.uid)
	if c == nil || c.version != a.version || c.due {
		return false
	}
	c.matched, c.notYet, c.full, c.failed = is.matched, is.notYet, is.full, is.failed
	if !is.matched && !is.notYet {
		s.waiting.awaitNotice(c, time.Now())
	}
	return is.matched
}

// taken has a claim woken by room, if it missed its class for lack of it, and by other classes, if its chooser gave it none. It stays with
// the writers, which try it again later. It reports whether the claim need not be tried soon, as no round has seen other classes since.
func (s *claimState) taken(a seenVersion, d *selector.Decision) bool {
	if c := s.waiting.find(a.namespace, a.uid); c != nil && c.version == a.version {
		c.full = selector.IsFull(d) || d.Choice.Outcome == selector.ChooserNone
	}
	return d.View == s.rounds.view
}

// missed records that a claim that was to be written no longer has a class, or that the classes are not known.
func (s *claimState) missed(a seenVersion, d *selector.Decision) {
	c := s.waiting.find(a.namespace, a.uid)
	if c == nil || c.version != a.version {
		return
	}
	if c.matched = false; d.View == nil || d.View != s.rounds.view {
		s.waiting.offer(c)
		return
	}
	s.record(a, outlookOf(d))
}
