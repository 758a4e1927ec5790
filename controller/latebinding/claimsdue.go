package latebinding

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector"
)

// waitingAttempt is what a write needs to know of a waiting claim.
type waitingAttempt struct {
	uid             types.UID
	namespace, name string
	// version is the one to write. shown is the last that the watch showed; they differ
	// only if the claim was read again.
	version, shown string
	parents        int
	ask            selector.Ask
	// unread says that no ask is held: the claim must be read again.
	unread bool
}

func (c *waitingClaim) attempt() waitingAttempt {
	return waitingAttempt{
		uid: c.uid, namespace: c.namespace.name, name: c.name, version: c.version, shown: c.version, parents: int(c.parents),
		ask: c.group.ask, unread: c.group == c.namespace.overflow,
	}
}

// waits returns what a write needs, and whether the claim can be bound now.
func (w *claimWatch) waits(uid types.UID) (waitingAttempt, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[uid]
	if c == nil || c.written || !c.namespace.selected || c.group.ask.Problem() != "" || w.stopped.Err() != nil {
		return waitingAttempt{}, false
	}
	return c.attempt(), true
}

// wrote records that this version of a claim was bound. A later version may be bound again.
func (w *claimWatch) wrote(a waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiting[a.uid]; c != nil && (c.version == a.shown || c.version == a.version) {
		c.written = true
	}
	w.refusal = nil
}

// missed records that a claim has no class any more, or that the classes are not known. If
// the claim was read again for the write, its selector is held from now on, if there is room.
func (w *claimWatch) missed(a waitingAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[a.uid]
	if c == nil {
		return
	}
	n := c.namespace
	if c.group == n.overflow {
		if !a.unread || c.version != a.version || n.groups[a.ask] == nil && !w.room.spare(n, groupCost(a.ask)) {
			return
		}
		w.join(c, w.room.group(n, a.ask))
	}
	c.group.matched, c.group.view, w.dirty = false, nil, true
	if !c.notified { // It may have left the line while it had a class.
		c.awaitNotice(time.Now())
	}
}

func (w *claimWatch) refuse(err error, until time.Time) {
	w.mu.Lock()
	w.refusal, w.paused = err, until
	w.mu.Unlock()
	w.changed()
}

// pause is how long no claim may be written from now on.
func (w *claimWatch) pause(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused.Sub(now)
}

// dismiss removes the binder, unless another has replaced it.
func (w *claimWatch) dismiss(b *Binder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder == b {
		w.setBinder(nil, time.Time{})
	}
}

// useBinder sets the binder. A new binder starts with all claims.
func (w *claimWatch) useBinder(b *Binder, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.binder != b {
		w.setBinder(b, now)
	}
}

// setBinder sets the binder, or nil, and starts over. The caller holds mu.
func (w *claimWatch) setBinder(b *Binder, now time.Time) {
	w.binder, w.refusal, w.namespaceErr, w.paused = b, nil, nil, time.Time{}
	w.unmatch()
	for _, n := range w.room.namespaces {
		n.clear(lineUnnotified)
		if b == nil {
			continue
		}
		n.each(func(c *waitingClaim) { // The events of the binder before are lost.
			c.notified = false
			c.awaitNotice(now)
		})
	}
}

// startOver makes the next round that has a view ask about all claims.
func (w *claimWatch) startOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unmatch()
}

// unmatch forgets the view, and which groups matched. The caller holds mu.
func (w *claimWatch) unmatch() {
	w.view = nil
	for _, n := range w.room.namespaces {
		n.clear(lineFresh)
		n.clear(lineUnread)
		n.overflow.view = nil
		for _, g := range n.groups {
			g.matched, g.view = false, nil
		}
	}
}

// due returns the claims that have a class now and had none before, and some of those
// that must be read to know. It asks about each group once per view; all claims of a
// group that matched before have been given out already. Groups that are left when the
// context ends wait for the next call. Namespaces take turns.
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
	w.dirty = w.dirty || left
	for _, q := range asked {
		w.answer(q, view)
	}
	return append(w.dueFresh(view), w.dueUnread()...)
}

// question asks whether a group has a class.
type question struct {
	group           *group
	ask             selector.Ask
	namespace       string
	matched, failed bool
}

// put answers the question from a view. A selector that causes a panic matches nothing.
func (q *question) put(view *selector.View) {
	q.failed = loop.Recovered(func() error {
		claim, err := q.ask.Claim(q.namespace, "")
		if err == nil {
			q.matched = view.Choose(claim, 0).Class != nil
		}
		return err
	}) != nil
}

// unasked returns the groups that this view has no answer for: one of each namespace,
// then a second of each, and so on. news is false if nothing has changed.
func (w *claimWatch) unasked(view *selector.View) (questions []question, news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view == view && !w.dirty {
		return nil, false
	}
	w.view, w.dirty = view, false
	var left [][]question
	for name, n := range w.room.namespaces {
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

// answer records the answer to a question. The caller holds mu.
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
		case q.matched: // Its namespace may not be checked yet.
			g.namespace.enqueue(lineFresh, c)
		case !c.notified:
			c.awaitNotice(time.Now())
		}
	}
	g.view, g.matched = view, q.matched
}

// dueFresh returns the claims of groups that match. The caller holds mu.
func (w *claimWatch) dueFresh(view *selector.View) (due []waitingItem) {
	for _, n := range w.room.namespaces {
		for range n.lines[lineFresh] {
			c := n.dequeue(lineFresh)
			switch {
			case c == nil:
			case c.group == n.overflow, c.group.failed, c.group.ask.Problem() != "", n.checked && !n.selected:
			case c.group.view != view, !n.checked: // There was no time to ask.
				n.enqueue(lineFresh, c)
				w.dirty = true
			case c.group.matched:
				due = append(due, c.item())
			}
		}
	}
	return due
}

// dueUnread returns some of the claims that must be read: one of each namespace, then a
// second of each, and so on. A new view makes all of them due. The caller holds mu.
func (w *claimWatch) dueUnread() (due []waitingItem) {
	for _, n := range w.room.namespaces {
		if n.overflow.view != w.view {
			n.overflow.view = w.view
			for c := range n.overflow.claims {
				n.enqueue(lineUnread, c)
			}
		}
	}
	for found := true; found; {
		found = false
		for _, n := range w.room.namespaces {
			if len(due) == v1alpha1.LateReads {
				w.dirty = true // There may be more.
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
