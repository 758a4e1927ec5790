package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// waitingAttempt is what is written by.
type waitingAttempt struct {
	uid             types.UID
	namespace, name string
	// version that is written, and the one that the watch had shown before the claim
	// was read again, the same where it was not.
	version, shown string
	parents        int
	ask            selector.Ask
	// unread says that there is none: the claim has to be read again.
	unread bool
}

func (c *waitingClaim) attempt() waitingAttempt {
	return waitingAttempt{
		uid: c.uid, namespace: c.namespace.name, name: c.name, version: c.version, shown: c.version, parents: int(c.parents),
		ask: c.group.ask, unread: c.group == c.namespace.beyond,
	}
}

// waits says whether a claim can be bound, and by what.
func (w *claimWatch) waits(uid types.UID) (waitingAttempt, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[uid]
	if c == nil || c.written || !c.namespace.bound || c.group.ask.Problem() != "" || w.stopped.Err() != nil {
		return waitingAttempt{}, false
	}
	return c.attempt(), true
}

// wrote the claim as it was: the next version of it is another matter.
func (w *claimWatch) wrote(a waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[a.uid]; c != nil && (c.version == a.shown || c.version == a.version) {
		c.written = true
	}
	w.refusal = nil
}

// missed says that there is no class any more, or that it is not known. A claim
// that was read for this gets its selector held, if there is room by now.
func (w *claimWatch) missed(a waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[a.uid]
	if c == nil {
		return
	}
	n := c.namespace
	if c.group == n.beyond {
		if !a.unread || c.version != a.version || n.groups[a.ask] == nil && !w.room.spare(n, groupCost(a.ask)) {
			return
		}
		w.join(c, w.room.group(n, a.ask))
	}
	c.group.matched, c.group.view, w.again = false, nil, true
	if !c.told { // It may have left the line while it had a class.
		c.wait(time.Now())
	}
}

func (w *claimWatch) refuse(err error, until time.Time) {
	w.mu.Lock()
	w.refusal, w.paused = err, until
	w.mu.Unlock()
	w.changed()
}

// pause for which no claim is to be written.
func (w *claimWatch) pause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused.Sub(now)
}

// dismiss the binder, if it still is the one that is served.
func (w *claimWatch) dismiss(b *LateBinder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder == b {
		w.appoint(nil, time.Time{})
	}
}

// serve a binder, from the beginning if it is another.
func (w *claimWatch) serve(b *LateBinder, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder != b {
		w.appoint(b, now)
	}
}

func (w *claimWatch) appoint(b *LateBinder, now time.Time) {
	w.binder, w.refusal, w.blind, w.paused = b, nil, nil, time.Time{}
	w.unmatch()
	for _, n := range w.room.namespaces {
		n.clear(lineUntold)
		if b == nil {
			continue
		}
		n.each(func(c *waitingClaim) { // Events that were ahead have gone with who had them.
			c.told = false
			c.wait(now)
		})
	}
}

// startOver with all claims, when there are classes to ask again.
func (w *claimWatch) startOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unmatch()
}

func (w *claimWatch) unmatch() {
	w.view = nil
	for _, n := range w.room.namespaces {
		n.clear(lineFresh)
		n.clear(lineUnread)
		n.beyond.view = nil
		for _, g := range n.groups {
			g.matched, g.view = false, nil
		}
	}
}

// askNamespaces whether their claims are bound: those that have not been asked,
// or again all those whose labels matter. What is not answered stays as it was
// known, and is asked in the next round. A cache answers, in microseconds, and
// only admins make namespaces.
func (w *claimWatch) askNamespaces(again bool, admits func(string) (bool, error)) {
	w.mu.Lock()
	again = again || w.blind != nil
	var names []string
	for name, n := range w.room.namespaces {
		if _, known := w.namespaces.Known(name); !known && (again || !n.asked) {
			names = append(names, name)
		}
	}
	w.mu.Unlock()
	bound := make(map[string]bool, len(names))
	var err error
	for _, name := range names {
		var is bool
		if is, err = admits(name); err != nil {
			break
		}
		bound[name] = is
	}
	if w.answerNamespaces(bound, err) {
		w.changed()
	}
}

// answerNamespaces whether their claims are bound, and why that is not known of
// all, and say whether that is news.
func (w *claimWatch) answerNamespaces(bound map[string]bool, err error) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = (err == nil) != (w.blind == nil)
	w.blind = err
	for name, is := range bound {
		n := w.room.namespaces[name]
		if n == nil {
			continue
		}
		joined := is && n.asked && !n.bound
		w.again = w.again || !n.asked || joined
		n.bound, n.asked = is, true
		if !is {
			w.room.shrink(n, 0)
		}
		if joined {
			n.each(func(c *waitingClaim) {
				w.offer(c)
				c.wait(time.Now())
			})
		}
	}
	return changed
}

// due are the claims for which there is a class now and was none before, and some
// of those that have to be read to know. Each group of claims is asked once for
// each view; of one that was matched before, all claims have been given out.
// Groups that are left when the context ends are asked the next time. Namespaces
// take turns.
func (w *claimWatch) due(ctx context.Context, view *selector.View) []waitingItem {
	asked, news := w.unasked(view)
	if !news {
		return nil
	}
	left := false
	for i := range asked {
		asked[i].put(view)
		if ctx.Err() != nil {
			asked, left = asked[:i+1], i+1 < len(asked)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = w.again || left
	for _, q := range asked {
		w.answer(q, view)
	}
	return append(w.dueFresh(view), w.dueUnread()...)
}

// question whether a group has a class.
type question struct {
	group           *group
	ask             selector.Ask
	namespace       string
	matched, failed bool
}

// put the question to a view. A selector that makes us panic matches nothing.
func (q *question) put(view *selector.View) {
	q.failed = recovered(func() error {
		claim, err := q.ask.Claim(q.namespace, "")
		if err == nil {
			q.matched = view.Choose(claim, 0).Class != nil
		}
		return err
	}) != nil
}

// unasked are the groups that the view has not been asked about: one of each
// namespace, then another of each. It is false where nothing has changed.
func (w *claimWatch) unasked(view *selector.View) (questions []question, news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view == view && !w.again {
		return nil, false
	}
	w.view, w.again = view, false
	var left [][]question
	for name, n := range w.room.namespaces {
		if n.asked && !n.bound {
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

func (w *claimWatch) answer(q question, view *selector.View) {
	g := q.group
	if q.failed {
		g.failed = true
		if b := w.binder; b != nil && b.Claims != nil {
			b.Claims.Metrics.tried(w.kind.Name, latePanicked)
		}
	}
	if !g.held {
		return
	}
	for c := range g.claims {
		switch {
		case q.matched == g.matched:
		case q.matched: // It may be that its namespace is not known yet.
			g.namespace.enqueue(lineFresh, c)
		case !c.told:
			c.wait(time.Now())
		}
	}
	g.view, g.matched = view, q.matched
}

// dueFresh are the claims of groups that are matched.
func (w *claimWatch) dueFresh(view *selector.View) (due []waitingItem) {
	for _, n := range w.room.namespaces {
		for range n.lines[lineFresh] {
			c := n.dequeue(lineFresh)
			switch {
			case c == nil:
			case c.group == n.beyond, c.group.failed, c.group.ask.Problem() != "", n.asked && !n.bound:
			case c.group.view != view, !n.asked: // There was no time to ask.
				n.enqueue(lineFresh, c)
				w.again = true
			case c.group.matched:
				due = append(due, c.item())
			}
		}
	}
	return due
}

// dueUnread are some of the claims that have to be read, one of each namespace and
// then another of each. Under another view, all of them have to be.
func (w *claimWatch) dueUnread() (due []waitingItem) {
	for _, n := range w.room.namespaces {
		if n.beyond.view != w.view {
			n.beyond.view = w.view
			for c := range n.beyond.claims {
				n.enqueue(lineUnread, c)
			}
		}
	}
	for found := true; found; {
		found = false
		for _, n := range w.room.namespaces {
			if len(due) == v1alpha1.LateReads {
				w.again = true // There may be more.
				return due
			}
			if !n.asked || !n.bound {
				continue
			}
			c := n.dequeue(lineUnread)
			for c != nil && c.group != n.beyond { // It was read meanwhile.
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
