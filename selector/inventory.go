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
	indexes    map[string]*Index
}

// NewInventory is empty and closed.
func NewInventory() *Inventory {
	return &Inventory{views: Snapshot{}, claimKinds: map[string]*ClaimKind{}, indexes: map[string]*Index{}}
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
	i.publish()
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
func (i *Inventory) SetClasses(x *Index) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.indexes[x.Kind.Name]
	i.indexes[x.Kind.Name] = x
	switch {
	case old == nil:
		i.update(x.Kind.ClaimKinds...)
	case old.Kind != x.Kind:
		i.update(append(slices.Clone(x.Kind.ClaimKinds), old.Kind.ClaimKinds...)...)
	default: // The registrations are as they were.
		i.views = maps.Clone(i.views)
		for _, name := range x.Kind.ClaimKinds {
			if v := i.views[name]; v != nil {
				i.views[name] = v.with(x)
			}
		}
		i.publish()
	}
}

// DeleteClasses forgets the classes of one kind.
func (i *Inventory) DeleteClasses(classKind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.indexes[classKind]; old != nil {
		delete(i.indexes, classKind)
		i.update(old.Kind.ClaimKinds...)
	}
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
		var classes []*Index
		for _, x := range i.indexes {
			if slices.Contains(x.Kind.ClaimKinds, name) {
				classes = append(classes, x)
			}
		}
		i.views[name] = NewView(kind, classes)
	}
	i.publish()
}

func (i *Inventory) publish() {
	if i.open {
		views := i.views
		i.current.Store(&views)
	}
}
