package latebinding

import (
	"time"

	"github.com/classbind/classbind/selector"
)

// namespaceOf returns the namespace of a waiting claim. The caller holds mu.
func (w *claimWatch) namespaceOf(name string) *namespace {
	n := w.room.namespaces[name]
	if n == nil {
		n = &namespace{name: name, groups: map[selector.Ask]*group{}}
		n.overflow = &group{namespace: n, claims: map[*waitingClaim]struct{}{}}
		n.selected, n.checked = w.namespaces.Known(name)
		w.room.namespaces[name] = n
	}
	return n
}

// checkNamespaces checks which namespaces the ClaimKind selects: those not checked yet,
// or, with again, all whose labels matter. A namespace that cannot be read keeps its
// last result until the next round. admits reads a cache, which takes microseconds, and
// only admins create namespaces.
func (w *claimWatch) checkNamespaces(again bool, admits func(string) (bool, error)) {
	w.mu.Lock()
	again = again || w.namespaceErr != nil
	var names []string
	for name, n := range w.room.namespaces {
		if _, known := w.namespaces.Known(name); !known && (again || !n.checked) {
			names = append(names, name)
		}
	}
	w.mu.Unlock()
	selected := make(map[string]bool, len(names))
	var err error
	for _, name := range names {
		var is bool
		if is, err = admits(name); err != nil {
			break
		}
		selected[name] = is
	}
	if w.recordNamespaces(selected, err) {
		w.changed()
	}
}

// recordNamespaces records which namespaces are selected, and the error of the check.
// changed says whether an error appeared or went away.
func (w *claimWatch) recordNamespaces(selected map[string]bool, err error) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = (err == nil) != (w.namespaceErr == nil)
	w.namespaceErr = err
	for name, is := range selected {
		n := w.room.namespaces[name]
		if n == nil {
			continue
		}
		joined := is && n.checked && !n.selected
		w.dirty = w.dirty || !n.checked || joined
		n.selected, n.checked = is, true
		if !is {
			w.room.shrink(n, 0)
		}
		if joined {
			n.each(func(c *waitingClaim) {
				w.offer(c)
				c.awaitNotice(time.Now())
			})
		}
	}
	return changed
}
