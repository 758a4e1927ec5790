package selector

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Snapshot is what is registered and known at one moment, by claim kind.
type Snapshot map[string]*View

// Inventory keeps the current snapshot. Readers never wait: writers, which
// wait for each other, put a new snapshot in the place of the old one.
type Inventory struct {
	current atomic.Pointer[Snapshot]

	mu         sync.Mutex
	open       bool
	views      Snapshot
	claimKinds map[string]*ClaimKind
	classes    map[string]*Classes
}

// NewInventory is empty and closed.
func NewInventory() *Inventory {
	return &Inventory{views: Snapshot{}, claimKinds: map[string]*ClaimKind{}, classes: map[string]*Classes{}}
}

// Snapshot is nil until the inventory is opened: what is known until then may
// be only part of what there is.
func (i *Inventory) Snapshot() Snapshot {
	if s := i.current.Load(); s != nil {
		return *s
	}
	return nil
}

// Open lets readers see the inventory.
func (i *Inventory) Open() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open = true
	i.update(slices.Collect(maps.Keys(i.claimKinds))...)
}

// SetClaimKind registers a claim kind, anew or changed.
func (i *Inventory) SetClaimKind(k *ClaimKind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claimKinds[k.Name] = k
	i.update(k.Name)
}

// HasClaimKind says whether a claim kind is registered.
func (i *Inventory) HasClaimKind(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.claimKinds[name] != nil
}

// DeleteClaimKind forgets a claim kind.
func (i *Inventory) DeleteClaimKind(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.claimKinds[name]; ok {
		delete(i.claimKinds, name)
		i.update(name)
	}
}

// SetClasses puts all classes of one kind in the place of those before.
func (i *Inventory) SetClasses(s *Classes) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.classes[s.Kind.Name]
	i.classes[s.Kind.Name] = s
	switch {
	case old == nil:
		i.update(s.Kind.ClaimKinds...)
	case old.Kind != s.Kind:
		i.update(append(slices.Clone(s.Kind.ClaimKinds), old.Kind.ClaimKinds...)...)
	default:
		i.change(old, s)
	}
}

// DeleteClasses forgets the classes of one kind.
func (i *Inventory) DeleteClasses(classKind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.classes[classKind]; old != nil {
		delete(i.classes, classKind)
		i.update(old.Kind.ClaimKinds...)
	}
}

// change the classes of one kind, of which the registrations are as they were.
// Views that have an index in common have the same classes, and have the next of
// both in common, too.
func (i *Inventory) change(from, to *Classes) {
	i.views = maps.Clone(i.views)
	changed := map[*index]*View{}
	for _, name := range to.Kind.ClaimKinds {
		old := i.views[name]
		if old == nil {
			continue
		}
		v := &View{Kind: old.Kind, Fault: old.Fault}
		if like := changed[old.index]; like != nil {
			v.Classes, v.index = like.Classes, like.index
		} else {
			v.Classes = slices.Clone(old.Classes)
			v.Classes[slices.Index(v.Classes, from)] = to
			if old.index != nil {
				v.index = old.index.changed(from, to)
				changed[old.index] = v
			}
		}
		i.views[name] = v
	}
	i.publish()
}

// update makes the views of some claim kinds anew; the others are shared with
// the snapshot before.
func (i *Inventory) update(claimKinds ...string) {
	i.views = maps.Clone(i.views)
	for _, name := range claimKinds {
		kind := i.claimKinds[name]
		if kind == nil {
			delete(i.views, name)
			continue
		}
		var classes []*Classes
		for _, s := range i.classes {
			if slices.Contains(s.Kind.ClaimKinds, name) {
				classes = append(classes, s)
			}
		}
		v := NewView(kind, classes)
		if i.open { // Before, it would be made again for each kind that is listed.
			v.index = i.indexOf(v.Classes)
		}
		i.views[name] = v
	}
	i.publish()
}

// indexOf classes: that of another view which has the same, if there is one.
func (i *Inventory) indexOf(classes []*Classes) *index {
	for _, v := range i.views {
		if v.index != nil && slices.Equal(v.Classes, classes) {
			return v.index
		}
	}
	return newIndex(classes)
}

func (i *Inventory) publish() {
	if i.open {
		views := i.views
		i.current.Store(&views)
	}
}
