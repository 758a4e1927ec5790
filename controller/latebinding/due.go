package latebinding

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
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
	return waitingAttempt{c.seenVersion, c.namespace.name, c.version, c.group.ask, c.group == c.namespace.overflow}
}

// waits returns what a write needs, whether the claim can be bound now, and for how long no claim may be.
func (w *claimWatch) waits(uid types.UID) (attempt waitingAttempt, ok bool, paused time.Duration) {
	w.own(func(s *claimState) {
		paused = time.Until(s.paused)
		c := s.waiting[uid]
		// A group of which one was tried in vain is asked about again.
		if ok = c != nil && !c.written && c.namespace.selected && c.group.ask.Problem() == "" &&
			(c.group.matched || c.group == c.namespace.overflow); ok {
			attempt = c.attempt()
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
	n := c.namespace
	if c.group == n.overflow {
		bytes := groupCost(a.ask)
		fits := n.bytes+bytes <= s.room.limit/namespaceShare && s.room.used+bytes <= s.room.limit // It takes no room from others.
		if !a.unread || c.version != a.version || n.groups[a.ask] == nil && !fits {
			return
		}
		s.join(c, s.room.group(n, a.ask))
	}
	c.group.matched, c.group.view, s.dirty = false, nil, true
	if !c.notified { // It may have left the line while it had a class.
		c.awaitNotice(time.Now())
	}
}

// useBinder sets the binder, or nil. A new binder starts with all claims.
func (s *claimState) useBinder(b *Binder, now time.Time) {
	if s.binder == b {
		return
	}
	s.binder, s.refusal, s.removed, s.namespaceErr, s.paused = b, nil, nil, nil, time.Time{}
	s.unmatch()
	for _, n := range s.room.namespaces {
		n.clear(lineUnnotified)
		n.each(func(c *waitingClaim) { // The events of the binder before are lost.
			s.setRefused(c, false)
			if c.notified, c.told = false, false; b != nil {
				c.awaitNotice(now)
			}
		})
	}
}

// unmatch forgets the view, and which groups matched, so that the next round that has a view asks about all claims.
func (s *claimState) unmatch() {
	s.view = nil
	for _, n := range s.room.namespaces {
		n.clear(lineFresh)
		n.clear(lineUnread)
		n.overflow.view = nil
		for _, g := range n.groups {
			g.matched, g.view = false, nil
		}
	}
}

// due returns the claims that have a class now and had none before, and some of those that must be read to know. It asks about each group
// once per view; all claims of a group that matched before have been given out already. Groups that are left when the context ends wait for
// the next call. Namespaces take turns. The owner does not wait for the answers.
func (w *claimWatch) due(ctx context.Context, view *selector.View) (due []waitingItem) {
	var asked []question
	news := false
	w.own(func(s *claimState) { asked, news = s.unasked(view) })
	if !news {
		return nil
	}
	left := false
	for i := range asked {
		asked[i].put(ctx, view)
		if asked[i].failed && w.metrics != nil {
			w.metrics.tried(w.kind.Name, latePanicked)
		}
		if ctx.Err() != nil {
			asked, left = asked[:i+1], i+1 < len(asked)
			break
		}
	}
	w.own(func(s *claimState) {
		s.dirty = s.dirty || left
		for _, q := range asked {
			q.answer(view)
		}
		due = append(s.dueFresh(view), s.dueUnread()...)
	})
	return due
}

// askFull has the next round ask again about the claims that wait because classes are full, once others gave some back. It
// reports whether they did.
func (r *room) askFull(freed uint64) bool {
	if r.freed == freed {
		return false
	}
	r.freed = freed
	for _, n := range r.namespaces {
		n.overflow.view = nil
		for _, g := range n.groups {
			if g.full {
				g.view = nil
			}
		}
	}
	return true
}

// question asks whether a group has a class.
type question struct {
	group                         *group
	ask                           claim.Ask
	namespace                     string
	matched, notYet, full, failed bool
}

// put answers the question from a view. A selector that causes a panic matches nothing, and neither do expressions that cost too much.
func (q *question) put(ctx context.Context, view *selector.View) {
	q.failed = recovered.Do(func() error {
		c, err := q.ask.Claim(q.namespace, "")
		if err != nil {
			return err
		}
		if d, err := preview(ctx, view, c); err == nil {
			q.matched, q.notYet, q.full = d.Class != nil, d.Reason() == claim.NotYet, selector.IsFull(&d)
		}
		return nil
	}) != nil
}

// unasked returns the groups that this view has no answer for: one of each namespace,
// then a second of each, and so on. news is false if nothing has changed.
func (s *claimState) unasked(view *selector.View) (questions []question, news bool) {
	if s.view == view && !s.dirty {
		return nil, false
	}
	s.view, s.dirty = view, false
	var left [][]question
	for name, n := range s.room.namespaces {
		if n.checked && !n.selected {
			continue
		}
		var of []question
		for ask, g := range n.groups {
			if g.view != view && !g.failed && ask.Problem() == "" {
				of = append(of, question{group: g, ask: ask, namespace: name})
			}
		}
		if len(of) > 0 {
			left = append(left, of)
		}
	}
	for i := 0; len(left) > 0; i++ {
		left = slices.DeleteFunc(left, func(of []question) bool { return i == len(of) })
		for _, of := range left {
			questions = append(questions, of[i])
		}
	}
	return questions, true
}

func (q question) answer(view *selector.View) {
	g := q.group
	g.failed = g.failed || q.failed
	if !g.held {
		return
	}
	for c := range g.claims {
		switch {
		case q.matched == g.matched && q.notYet == g.notYet:
		case q.matched: // Its namespace may not be checked yet.
			g.namespace.enqueue(lineFresh, c)
		case !q.notYet && !c.notified:
			c.awaitNotice(time.Now())
		}
	}
	g.view, g.matched, g.notYet, g.full = view, q.matched, q.notYet, q.full
}

func (s *claimState) dueFresh(view *selector.View) (due []waitingItem) {
	for _, n := range s.room.namespaces {
		for range n.lines[lineFresh] {
			c := n.dequeue(lineFresh)
			switch {
			case c == nil:
			case c.group == n.overflow, c.group.failed, c.group.ask.Problem() != "", n.checked && !n.selected:
			case c.group.view != view, !n.checked: // There was no time to ask.
				n.enqueue(lineFresh, c)
				s.dirty = true
			case c.group.matched:
				due = append(due, c.item())
			}
		}
	}
	return due
}

// dueUnread returns some of the claims that must be read: one of each namespace, then a
// second of each, and so on. A new view makes all of them due.
func (s *claimState) dueUnread() (due []waitingItem) {
	for _, n := range s.room.namespaces {
		if n.overflow.view != s.view {
			n.overflow.view = s.view
			for c := range n.overflow.claims {
				n.enqueue(lineUnread, c)
			}
		}
	}
	for found := true; found; {
		found = false
		for _, n := range s.room.namespaces {
			if len(due) == v1beta1.LateReads {
				s.dirty = true // There may be more.
				return due
			}
			if !n.checked || !n.selected {
				continue
			}
			c := n.dequeue(lineUnread)
			for c != nil && c.group != n.overflow { // It was read meanwhile.
				c = n.dequeue(lineUnread)
			}
			if c != nil {
				due, found = append(due, c.item()), true
			}
		}
	}
	return due
}

func (c *waitingClaim) item() waitingItem { return waitingItem{c.namespace.name, c.uid} }
