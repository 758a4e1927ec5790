package latebinding

import (
	"time"
)

// checkNamespaces checks which namespaces the ClaimKind selects: those not checked yet,
// or, with again or after an error, all whose labels matter. A namespace that cannot be read keeps its
// last result until the next round. admits reads a cache, which takes microseconds, and
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
