package latebinding

import (
	"time"

	"github.com/classbind/classbind/selector"
)

// namespaceOf returns the namespace of a waiting claim.
func (s *claimState) namespaceOf(name string) *namespace {
	n := s.room.namespaces[name]
	if n == nil {
		n = &namespace{name: name, groups: map[selector.Ask]*group{}}
		n.overflow = &group{namespace: n, claims: map[*waitingClaim]struct{}{}}
		n.selected, n.checked = s.namespaces.Known(name)
		s.room.namespaces[name] = n
	}
	return n
}

// checkNamespaces checks which namespaces the ClaimKind selects: those not checked yet,
// or, with again, all whose labels matter. A namespace that cannot be read keeps its
// last result until the next round. admits reads a cache, which takes microseconds, and
// only admins create namespaces.
func (w *claimWatch) checkNamespaces(again bool, admits func(string) (bool, error)) {
	var names []string
	w.own(func(s *claimState) { names = s.unchecked(again) })
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

// unchecked returns the namespaces whose labels matter and are not checked yet, or, with
// again or after an error, all whose labels matter.
func (s *claimState) unchecked(again bool) (names []string) {
	again = again || s.namespaceErr != nil
	for name, n := range s.room.namespaces {
		if _, known := s.namespaces.Known(name); !known && (again || !n.checked) {
			names = append(names, name)
		}
	}
	return names
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
