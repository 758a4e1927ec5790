package latebinding

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
)

// waitingAttempt is what a write needs to know of a waiting claim.
type waitingAttempt struct {
	seenVersion        // the one to write
	namespace   string // of the claim
	shown       string // the last version that the watch showed: another one only if the claim was read again
	ask         claim.Ask
	unread      bool // No ask is held: the claim must be read again.
}

func (c *waitingClaim) attempt() waitingAttempt {
	a := waitingAttempt{seenVersion: c.seenVersion, namespace: c.namespace.name, shown: c.version, unread: c.group == nil}
	if c.group != nil {
		a.ask = c.group.ask
	}
	return a
}

// waits returns what a write needs, whether the claim can be bound now, and for how long no claim may be.
func (w *claimWatch) waits(uid types.UID) (attempt waitingAttempt, ok bool, paused time.Duration) {
	w.own(func(s *claimState) {
		paused = time.Until(s.paused)
		// A group of which one was tried in vain is asked about again.
		if c := s.waiting[uid]; c != nil && s.turnOf(c) > 0 {
			attempt, ok = c.attempt(), true
		}
	})
	return attempt, ok, paused
}

func (s *claimState) wrote(a waitingAttempt) {
	if c := s.waiting[a.uid]; c != nil && (c.version == a.shown || c.version == a.version) {
		c.written = true
	}
	s.refusal, s.removed = nil, nil
}

// missed records that a claim has no class any more, or that the classes are not known. If
// the claim was read again for the write, its selector is held from now on, if there is room.
func (s *claimState) missed(a waitingAttempt) {
	c := s.waiting[a.uid]
	if c == nil {
		return
	}
	if c.group == nil && a.unread && c.version == a.version {
		s.join(c, s.room.group(c.namespace, a.ask))
	}
	if c.group != nil {
		c.group.asked, c.group.matched = false, false
	}
}

// useBinder sets the binder, or nil. A new binder starts with all claims: the events of the one before are lost.
func (s *claimState) useBinder(b *Binder, now time.Time) {
	if s.binder == b {
		return
	}
	s.binder, s.refusal, s.removed, s.namespaceErr, s.paused = b, nil, nil, nil, time.Time{}
	s.unmatch()
	for _, c := range s.waiting {
		c.notified, c.since = false, now
	}
}

// unmatch forgets the view, and which groups matched, so that the next round that has a view asks about all claims.
func (s *claimState) unmatch() {
	s.view = nil
	s.room.eachGroup(func(g *group) { g.matched = false })
}

// look has all groups asked about that a view, or what was given back of the capacity of its classes, may have an answer for.
func (s *claimState) look(view *selector.View, freed uint64) {
	other, more := s.view != view, s.freed != freed
	s.view, s.freed = view, freed
	if !other && !more {
		return
	}
	s.turn++ // The claims without a group are read again.
	s.room.eachGroup(func(g *group) { g.asked = g.asked && !other && !g.full })
}

// unasked returns the groups that the view was not asked about: one of each namespace, then a second of each, and so on.
func (s *claimState) unasked() []*group {
	turns := &fair.Queue[*group]{}
	s.room.eachGroup(func(g *group) {
		if n := g.namespace; !g.asked && !g.failed && g.ask.Problem() == "" && (n.selected || !n.checked) {
			turns.Push(n.name, g)
		}
	})
	return inTurns(turns)
}

// inTurns empties a queue.
func inTurns[T comparable](q *fair.Queue[T]) (all []T) {
	for {
		_, item, ok := q.Pop(nil)
		if !ok {
			return all
		}
		all = append(all, item)
	}
}

// answerOf a view about a group. A selector that causes a panic matches nothing, and neither do expressions that cost too much.
func (g *group) answerOf(ctx context.Context, view *selector.View) (a answer) {
	a.failed = loop.Recovered(func() error {
		c, err := g.ask.Claim(g.namespace.name, "")
		if err != nil {
			return err
		}
		if d, err := preview(ctx, view, c); err == nil {
			a = answer{matched: d.Class != nil, notYet: d.Reason() == claim.NotYet, full: selector.IsFull(&d)}
		}
		return nil
	}) != nil
	return a
}

// answered records an answer. The claims of a group that matched before have been given out already.
func (g *group) answered(a answer) {
	if a.matched && !g.matched {
		g.turn++
	}
	g.answer, g.asked = a, true
}

// due returns the claims that have a class now and had none before, and some of those that must be read to know. It also returns the claims
// whose authors are to be told that they wait. It asks about each group once per view. Groups that are left when the context ends wait for
// the next call. Namespaces take turns. The owner does not wait for the answers.
func (w *claimWatch) due(ctx context.Context, view *selector.View, freed uint64) (due, unnotified []waitingItem) {
	var groups []*group
	w.own(func(s *claimState) {
		s.look(view, freed)
		groups = s.unasked()
	})
	answers := make([]answer, 0, len(groups))
	for _, g := range groups {
		a := g.answerOf(ctx, view)
		if a.failed && w.metrics != nil {
			w.metrics.tried(w.kind.Name, latePanicked)
		}
		if answers = append(answers, a); ctx.Err() != nil {
			break
		}
	}
	w.own(func(s *claimState) {
		if s.view == view {
			for i, a := range answers {
				groups[i].answered(a)
			}
			due, unnotified = s.due(time.Now())
		}
	})
	return due, unnotified
}

// turnOf a claim is the one in which it is given out to be bound, 0 if it is not. It depends on the group whether there is a class. A claim
// without one must be read to know.
func (s *claimState) turnOf(c *waitingClaim) int {
	switch {
	case c.written, !c.namespace.selected:
		return 0
	case c.group == nil:
		return s.turn
	case c.group.matched:
		return c.group.turn
	}
	return 0
}

func (s *claimState) due(now time.Time) (due, unnotified []waitingItem) {
	unread, silent := &fair.Queue[*waitingClaim]{}, &fair.Queue[waitingItem]{}
	for _, c := range s.waiting {
		n := c.namespace
		if c.awaitsNotice(now) {
			silent.Push(n.name, c.item())
		}
		switch turn := s.turnOf(c); {
		case turn == 0, turn == c.given:
		case c.group == nil:
			unread.Push(n.name, c)
		default:
			c.given = turn
			due = append(due, c.item())
		}
	}
	for range v1beta1.LateReads {
		if _, c, ok := unread.Pop(nil); ok {
			c.given = s.turn
			due = append(due, c.item())
		}
	}
	return due, inTurns(silent)
}

func (c *waitingClaim) item() waitingItem { return waitingItem{c.namespace.name, c.uid} }

// awaitsNotice reports whether the author is to be told that the claim waits. It is about to be bound if its group matched.
func (c *waitingClaim) awaitsNotice(now time.Time) bool {
	return !c.notified && !c.written && c.namespace.selected && now.Sub(c.since) >= noticeDelay &&
		(c.group == nil || !c.group.matched && !c.group.notYet)
}
