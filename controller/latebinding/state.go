package latebinding

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fair"
)

// claimState is what a watch knows of the claims of one kind. It holds only what is needed: of a waiting claim, what binding reads; of a
// bound claim, the counts that it is part of. It has no lock, because one goroutine owns it: see claimWatch.own.
type claimState struct {
	synced  bool
	bound   boundClaims
	waiting waitingClaims

	binder  *Binder // of the waiting claims, nil if there is none: the fields below are for it
	rounds  rounds
	swept   time.Time // No sweep begins before.
	refusal error     // why a claim could not be written: no other is tried until paused
	paused  time.Time
	// removed reports whether the last claim that was written, removedOf, lost its reference.
	// Others are tried: a policy may be for some claims alone.
	removed      error
	removedOf    types.UID
	refusedErr   error // why the last of the refused claims was
	unwritable   error // why claims can be watched but not written
	namespaceErr error // why namespaces cannot be checked
}

func (s *claimState) replace(all []*claimSeen) {
	there := make(map[types.UID]struct{}, len(all))
	for _, seen := range all {
		there[seen.uid] = struct{}{}
	}
	s.waiting.each(func(c *waitingClaim) {
		if _, ok := there[c.uid]; !ok {
			s.unwait(c.namespace, c.uid)
		}
	})
	s.waiting.left, s.waiting.partial = 0, false
	// Count the listed claims before the others are taken off, so that no concurrent choice sees an empty class.
	for _, seen := range all {
		s.put(seen)
	}
	for uid := range s.bound.counts {
		if _, ok := there[uid]; !ok {
			s.bound.remove(uid)
		}
	}
	s.synced = true
}

func (s *claimState) put(seen *claimSeen) {
	if seen.bound {
		s.bound.put(seen)
		s.unwait(seen.namespace, seen.uid)
		return
	}
	s.bound.remove(seen.uid)
	before := s.waiting.find(seen.namespace, seen.uid)
	if seen.waits && before != nil && before.version == seen.version {
		return
	}
	s.unwait(seen.namespace, seen.uid)
	if seen.waits {
		s.hold(seen, before)
	}
}

// hold a claim that was seen, if there is room. Whether its author was notified before is still true.
func (s *claimState) hold(seen *claimSeen, before *waitingClaim) {
	c := &waitingClaim{seenVersion: seen.seenVersion}
	if before != nil {
		c.notified, c.warned = before.notified, before.warned
	}
	if seen.unread || !s.waiting.hold(c) {
		s.waiting.miss(seen.namespace)
	} else if before != nil && before.unnotified {
		s.waiting.awaitNotice(c, time.Unix(0, before.since))
	}
}

func (s *claimState) unwait(namespace string, uid types.UID) {
	if c := s.waiting.find(namespace, uid); c != nil {
		if s.removedOf == uid {
			s.removed = nil
		}
		s.waiting.release(c)
	}
}

// useBinder sets the binder, or nil. A new binder starts with all claims, as the events of the one before are lost.
func (s *claimState) useBinder(b *Binder) {
	if s.binder == b {
		return
	}
	s.binder, s.refusal, s.removed, s.namespaceErr, s.paused = b, nil, nil, nil, time.Time{}
	s.rounds, s.swept = rounds{}, time.Time{}
	w := &s.waiting
	w.binds = b != nil
	w.due, w.unnotified = fair.Queue[*waitingClaim]{}, fair.Queue[*waitingClaim]{}
	w.each(func(c *waitingClaim) {
		w.setRefused(c, false)
		c.due, c.unnotified, c.matched, c.notified, c.warned = false, false, false, false, false
		w.offer(c)
	})
}

// waits returns what a write needs, whether the claim can be bound now, and for how long no claim may be.
func (w *claimWatch) waits(item waitingItem) (seen seenVersion, ok bool, paused time.Duration) {
	w.own(func(s *claimState) {
		paused = time.Until(s.paused)
		if c := s.waiting.find(item.namespace, item.uid); c != nil && c.matched && !c.written && c.of.selected {
			seen, ok = c.seenVersion, true
		}
	})
	return seen, ok, paused
}

func (s *claimState) wrote(a seenVersion) {
	if c := s.waiting.find(a.namespace, a.uid); c != nil && c.version == a.version {
		c.written = true
	}
	s.refusal, s.removed = nil, nil
}

// checkNamespaces checks which namespaces the ClaimKind selects: those not checked yet, or, with again or after an error, all whose labels
// matter. A namespace that cannot be read keeps its last result until the next round. admits reads a cache, which takes microseconds, and
// only admins create namespaces.
func (w *claimWatch) checkNamespaces(again bool, admits func(string) (bool, error)) {
	var names []string
	w.own(func(s *claimState) { names = s.waiting.unchecked(again || s.namespaceErr != nil) })
	selected := make(map[string]bool, len(names))
	var err error
	for _, name := range names {
		var is bool
		if is, err = admits(name); err != nil {
			break
		}
		selected[name] = is
	}
	news := false
	w.own(func(s *claimState) { news = s.recordNamespaces(selected, err) })
	if news {
		w.changed()
	}
}

// recordNamespaces records which namespaces are selected, and the error of the check.
// changed reports whether an error appeared or went away, or other claims count as waiting.
func (s *claimState) recordNamespaces(selected map[string]bool, err error) (changed bool) {
	before := s.waiting.selected
	changed = (err == nil) != (s.namespaceErr == nil)
	s.namespaceErr = err
	for name, is := range selected {
		n := s.waiting.namespaces[name]
		if n == nil {
			continue
		}
		joins := is && !n.selected
		if n.counts() != is {
			s.waiting.selected += map[bool]int{true: 1, false: -1}[is] * len(n.claims)
		}
		if n.selected, n.checked = is, true; joins {
			for _, c := range n.claims {
				c.matched = false
				s.waiting.offer(c)
			}
		}
	}
	return changed || s.waiting.selected != before
}

// boundClaims are the claims of one kind that have a class.
type boundClaims struct {
	kind     *selector.ClaimKind
	counts   map[types.UID]classCounts
	recounts recounts
}

// classCounts are the counts that a bound claim is part of, and how much of the capacity of its class it uses.
type classCounts struct {
	of    [2]*selector.Count
	usage *boundUsage
}

func (b *boundClaims) put(seen *claimSeen) {
	before, known := b.counts[seen.uid]
	counts := classCounts{usage: seen.usage.after(before.usage)}
	if seen.by != nil && b.recounts.by != nil && !b.recounts.by.SameRelated(seen.by) {
		b.recounts.by = nil
	}
	if tally := b.kind.Tally; tally != nil {
		share := b.kind.ShareOf(seen.namespace, counts.usage.of())
		counts.of = [...]*selector.Count{tally.Bind(seen.classes[0], share), tally.Bind(seen.classes[1], share)}
		if !known {
			defer tally.Seen(seen.namespace, seen.name, seen.generateName, seen.classes)
		}
	}
	b.unbind(before, before.of != counts.of || before.usage.of().Frees(counts.usage.of()))
	b.counts[seen.uid] = counts
}

func (b *boundClaims) remove(uid types.UID) {
	b.unbind(b.counts[uid], true)
	delete(b.counts, uid)
}

// unbind takes a claim off its counts. frees reports whether others may use some of what it used.
func (b *boundClaims) unbind(counts classCounts, frees bool) {
	for _, count := range counts.of {
		if count != nil {
			if b.kind.Tally.Unbind(count, counts.usage.of()); frees {
				b.kind.Tally.Free()
			}
		}
	}
}
