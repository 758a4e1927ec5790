package latebinding

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
)

// claimState is what a watch knows of the claims of one kind. It holds only what is needed: of a waiting claim, what binding reads; of a
// bound claim, the counts that it is part of. It has no lock, because one goroutine owns it: see claimWatch.own.
type claimState struct {
	synced   bool
	bound    boundClaims
	waiting  map[types.UID]*waitingClaim
	room     room
	selected int // how many claims wait, without those of namespaces that are not selected

	binder  *Binder // of the waiting claims, nil if there is none: the fields below are for it
	view    *selector.View
	dirty   bool  // Claims may be due though the view is the same.
	refusal error // why a claim could not be written: no other is tried until paused
	paused  time.Time
	// removed says that the last claim that was written, removedOf, lost its reference.
	// Others are tried: a policy may be for some claims alone.
	removed      error
	removedOf    types.UID
	refused      int   // how many waiting claims are refused by the API server
	refusedErr   error // why the last of them was
	unwritable   error // why claims can be watched but not written
	namespaceErr error // why namespaces cannot be checked
}

func (s *claimState) replace(all []*claimSeen) {
	there := make(map[types.UID]struct{}, len(all))
	// Count the listed claims before the others are taken off, so that no concurrent choice sees an empty class.
	for _, seen := range all {
		there[seen.uid] = struct{}{}
		s.put(seen)
	}
	for uid := range s.bound.counts {
		if _, ok := there[uid]; !ok {
			s.bound.remove(uid)
		}
	}
	for uid := range s.waiting {
		if _, ok := there[uid]; !ok {
			s.unwait(uid)
		}
	}
	for _, n := range s.room.namespaces { // Groups of claims that changed before the list ended.
		for _, g := range n.groups {
			s.room.disband(g)
		}
		s.room.vacate(n)
	}
	// The listed claims may have taken the room of others.
	s.synced, s.dirty = true, true
}

func (s *claimState) put(seen *claimSeen) {
	if seen.bound {
		s.bound.put(seen)
		s.unwait(seen.uid)
		return
	}
	s.bound.remove(seen.uid)
	if seen.group == nil {
		s.unwait(seen.uid)
		return
	}
	c := s.waiting[seen.uid]
	if c != nil && c.version == seen.version {
		return
	}
	n := s.room.namespaceOf(seen.namespace)
	if c == nil {
		c = &waitingClaim{namespace: n}
		s.count(n, 1)
		s.waiting[seen.uid] = c
		if s.binder != nil {
			c.awaitNotice(time.Now())
		}
	}
	s.join(c, s.groupOf(n, seen))
	c.seenVersion, c.written = seen.seenVersion, false
	s.setRefused(c, false)
	s.offer(c)
}

func (s *claimState) remove(uid types.UID) {
	s.bound.remove(uid)
	s.unwait(uid)
}

// groupOf returns the group for a claim that was read. Its own may have been forgotten since.
func (s *claimState) groupOf(n *namespace, seen *claimSeen) *group {
	switch g := seen.group; {
	case g.dropped || g == g.namespace.overflow:
		return n.overflow
	case !g.held:
		return s.room.group(n, g.ask)
	default:
		return g
	}
}

func (s *claimState) join(c *waitingClaim, g *group) {
	if c.group != nil {
		delete(c.group.claims, c)
		if c.group != g {
			s.room.disband(c.group)
		}
	}
	c.group = g
	g.claims[c] = struct{}{}
}

func (s *claimState) offer(c *waitingClaim) {
	if s.binder == nil {
		return
	}
	l := lineFresh
	if c.group == c.namespace.overflow {
		l = lineUnread
	}
	c.namespace.enqueue(l, c)
	s.dirty = true
}

func (s *claimState) unwait(uid types.UID) {
	c := s.waiting[uid]
	if c == nil {
		return
	}
	if s.removedOf == uid {
		s.removed = nil
	}
	c.gone = true
	s.setRefused(c, false)
	delete(s.waiting, uid)
	delete(c.group.claims, c)
	s.count(c.namespace, -1)
	s.room.disband(c.group)
	s.room.vacate(c.namespace)
}

// setRefused records whether the API server refuses to bind a claim.
func (s *claimState) setRefused(c *waitingClaim, is bool) {
	if c.refused != is {
		c.refused = is
		s.refused += map[bool]int{true: 1, false: -1}[is]
	}
}

func (s *claimState) count(n *namespace, more int) {
	n.waiting += more
	if n.selected || !n.checked {
		s.selected += more
	}
}

func (s *claimState) resize(bytes int64) {
	s.room.resize(bytes)
	s.dirty = true
}

// boundClaims are the claims of one kind that have a class.
type boundClaims struct {
	kind   *selector.ClaimKind
	counts map[types.UID]classCounts
}

// classCounts are the counts that a bound claim is part of, and how much of the capacity of its class it uses.
type classCounts struct {
	of    [2]*selector.Count
	usage int64
}

func (b boundClaims) put(seen *claimSeen) {
	before, known := b.counts[seen.uid]
	counts := classCounts{usage: seen.usage}
	if tally := b.kind.Tally; tally != nil {
		share := b.kind.ShareOf(seen.namespace, seen.usage)
		counts.of = [...]*selector.Count{tally.Bind(seen.classes[0], share), tally.Bind(seen.classes[1], share)}
		if !known {
			defer tally.Seen(seen.namespace, seen.name, seen.generateName, seen.classes)
		}
	}
	b.unbind(before, before.of != counts.of || before.usage > counts.usage)
	b.counts[seen.uid] = counts
}

func (b boundClaims) remove(uid types.UID) {
	b.unbind(b.counts[uid], true)
	delete(b.counts, uid)
}

// unbind takes a claim off its counts. frees says that others may use some of what it used.
func (b boundClaims) unbind(counts classCounts, frees bool) {
	for _, count := range counts.of {
		if count != nil {
			if b.kind.Tally.Unbind(count, counts.usage); frees {
				b.kind.Tally.Free()
			}
		}
	}
}

// checkNamespaces checks which namespaces the ClaimKind selects: those not checked yet, or, with again or after an error, all whose labels
// matter. A namespace that cannot be read keeps its last result until the next round. admits reads a cache, which takes microseconds, and
// only admins create namespaces.
func (w *claimWatch) checkNamespaces(again bool, admits func(string) (bool, error)) {
	var names []string
	w.own(func(s *claimState) { names = s.room.unchecked(again || s.namespaceErr != nil) })
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
	before := s.selected
	changed = (err == nil) != (s.namespaceErr == nil)
	s.namespaceErr = err
	for name, is := range selected {
		n := s.room.namespaces[name]
		if n == nil {
			continue
		}
		joined := is && n.checked && !n.selected
		s.dirty = s.dirty || !n.checked || joined
		waiting := n.waiting
		s.count(n, -waiting)
		n.selected, n.checked = is, true
		s.count(n, waiting)
		if !is {
			s.room.shrink(n, 0)
		}
		if joined {
			n.each(func(c *waitingClaim) {
				s.offer(c)
				c.awaitNotice(time.Now())
			})
		}
	}
	return changed || s.selected != before
}
