package selector

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Snapshot is what is registered and known at one moment, by claim kind.
type Snapshot map[string]*View

// Inventory keeps the current snapshot. Readers never wait. Writers wait for each other, and replace the snapshot.
type Inventory struct {
	// Waits are those of claims for newer views.
	Waits *Waits
	// now is the clock by which related objects expire.
	now func() time.Time

	current atomic.Pointer[Snapshot]

	mu         sync.Mutex // guards all below
	open       bool
	views      Snapshot
	claimKinds map[string]*ClaimKind
	classes    map[string]*inventory.Classes
	unknown    map[string]unknownKind
	related    map[rules.Key]knownRelated
	// derivations of classes is what follows from related.
	derivations derivations
}

// unknownKind is a class kind whose classes are not known: to these claim kinds, and why.
type unknownKind struct {
	is         unknown
	claimKinds []string
	why        string
}

// unknown is what is to be said of classes that are not known.
type unknown int8

const (
	_        unknown = iota
	unread           // They have never been known, so claims are bound without them.
	missing          // They were offered before.
	withheld         // The same, whatever Opening finds.
	ignored          // An admin has claims bound without them.
)

// NewInventory is empty and closed.
func NewInventory() *Inventory {
	i := &Inventory{
		now: time.Now, views: Snapshot{}, claimKinds: map[string]*ClaimKind{}, classes: map[string]*inventory.Classes{},
		unknown: map[string]unknownKind{}, related: map[rules.Key]knownRelated{}, derivations: newDerivations(),
	}
	i.Waits = newWaits(i.Snapshot)
	return i
}

// Snapshot is nil until the inventory is opened: until then, some classes may not be known yet.
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

// SetClaimKind registers a new or changed claim kind.
func (i *Inventory) SetClaimKind(k *ClaimKind) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.claimKinds[k.Name]
	i.claimKinds[k.Name] = k
	i.update(append(rivals(i.claimKinds, before), rivals(i.claimKinds, k)...)...)
}

// rivals are the names of those among all claim kinds that have the same resource and reference as this one, nil for nil.
func rivals(all map[string]*ClaimKind, k *ClaimKind) (names []string) {
	for name, other := range all {
		if k != nil && other.reserved == k.reserved {
			names = append(names, name)
		}
	}
	return names
}

// ClaimKind returns a claim kind, nil if it is not registered.
func (i *Inventory) ClaimKind(name string) *ClaimKind {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.claimKinds[name]
}

// DeleteClaimKind forgets a claim kind.
func (i *Inventory) DeleteClaimKind(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if k := i.claimKinds[name]; k != nil {
		delete(i.claimKinds, name)
		i.update(append(rivals(i.claimKinds, k), name)...)
	}
}

// SetClasses replaces all classes of one kind.
func (i *Inventory) SetClasses(s *inventory.Classes) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setClasses(s.Kind.Name, s, unknownKind{})
}

// setClasses of a kind, or why they are not known. Neither forgets them.
func (i *Inventory) setClasses(classKind string, s *inventory.Classes, kind unknownKind) {
	touched := slices.Concat(i.unknown[classKind].claimKinds, kind.claimKinds)
	if old := i.classes[classKind]; old != nil {
		touched = append(touched, old.Kind.ClaimKinds...)
	}
	delete(i.unknown, classKind)
	delete(i.classes, classKind)
	i.forgetDerived(classKind)
	if s != nil {
		i.classes[classKind] = i.deriveAll(s)
		touched = append(touched, s.Kind.ClaimKinds...)
	}
	if kind.is != 0 {
		i.unknown[classKind] = kind
	}
	if len(touched) > 0 {
		i.update(touched...)
	}
}

// ChangeClass does the same where only the class of this name differs from what was set before.
func (i *Inventory) ChangeClass(s *inventory.Classes, namespace, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.classes[s.Kind.Name]
	if old == nil || old.Kind != s.Kind {
		i.setClasses(s.Kind.Name, s, unknownKind{})
		return
	}
	if s.Kind.Derives() {
		i.deriveOne(classID{s.Kind.Name, namespace, name}, s.Find(namespace, name))
	} else {
		i.classes[s.Kind.Name] = s
		i.changeViews(old, s, namespace, name)
	}
	i.publish()
}

// changeViews where only the class of this name differs.
func (i *Inventory) changeViews(old, s *inventory.Classes, namespace, name string) {
	i.views = maps.Clone(i.views)
	for _, claimKind := range s.Kind.ClaimKinds {
		if known := i.views[claimKind]; known != nil {
			if v := *known; v.Change(old, s, namespace, name) {
				i.views[claimKind] = &v
			}
		}
	}
}

// DeleteClasses forgets the classes of one kind.
func (i *Inventory) DeleteClasses(classKind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setClasses(classKind, nil, unknownKind{})
}

// SetMissing records that the classes of a kind were offered to these claim kinds before and are not known now, and why. Until they are, no
// claim of these kinds can be bound: the view would be incomplete. It does nothing if the classes are known, withheld or ignored.
func (i *Inventory) SetMissing(classKind string, claimKinds []string, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.classes[classKind] == nil && i.unknown[classKind].is < withheld {
		setUnknown(i, classKind, unknownKind{missing, claimKinds, why})
	}
}

// setUnknown says of a class kind what is not known. The caller holds mu of the inventory.
func setUnknown(i *Inventory, classKind string, kind unknownKind) {
	old := i.unknown[classKind]
	if old.is == kind.is && old.why == kind.why && slices.Equal(old.claimKinds, kind.claimKinds) {
		return
	}
	i.unknown[classKind] = kind
	i.update(slices.Concat(old.claimKinds, kind.claimKinds)...)
}

// SetUnread records that a class kind serves these claim kinds, that its classes have never been known, and why, in a word. Claims are
// decided on without them, with a warning. It leaves the claim kinds out for which the classes are known, and does nothing if they are
// missing. It ends that they are ignored.
func (i *Inventory) SetUnread(classKind string, claimKinds []string, reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.classes[classKind]; s != nil {
		claimKinds = slices.DeleteFunc(slices.Clone(claimKinds), func(name string) bool { return slices.Contains(s.Kind.ClaimKinds, name) })
	}
	if is := i.unknown[classKind].is; (is <= unread || is == ignored) && len(claimKinds) > 0 {
		setUnknown(i, classKind, unknownKind{unread, claimKinds, reason})
	}
}

// Withhold forgets the classes of a kind and records that they are missing, both at once: between
// the two, claims would be bound without them. Only SetClasses and DeleteClasses end it.
func (i *Inventory) Withhold(classKind string, claimKinds []string, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setClasses(classKind, nil, unknownKind{withheld, claimKinds, why})
}

// Ignore forgets the classes of a kind, and has claims of these kinds decided on without them, with a warning.
func (i *Inventory) Ignore(classKind string, claimKinds []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setClasses(classKind, nil, unknownKind{ignored, claimKinds, v1beta1.ReasonIgnored})
}

// ClearMissing records that no claim waits for the classes of a kind any longer, unless they are withheld.
func (i *Inventory) ClearMissing(classKind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.unknown[classKind]; old.is == missing {
		delete(i.unknown, classKind)
		i.update(old.claimKinds...)
	}
}

// update rebuilds the views of some claim kinds; the others are shared with the previous snapshot.
func (i *Inventory) update(claimKinds ...string) {
	i.views = maps.Clone(i.views)
	for _, name := range claimKinds {
		kind := i.claimKinds[name]
		if kind == nil {
			delete(i.views, name)
			continue
		}
		var classes []*inventory.Classes
		for _, s := range i.classes {
			if slices.Contains(s.Kind.ClaimKinds, name) {
				classes = append(classes, s)
			}
		}
		before := i.views[name]
		if before != nil && before.Kind != kind {
			before = nil
		}
		v := viewAfter(kind, classes, before)
		for _, classKind := range slices.Sorted(maps.Keys(i.unknown)) {
			switch u := i.unknown[classKind]; {
			case !slices.Contains(u.claimKinds, name):
			case u.is == unread, u.is == ignored:
				v.Unread = append(v.Unread, UnreadKind{classKind, u.why})
			case v.Missing == nil:
				v.Missing = inventory.Faultf(v1beta1.ReasonClassKindMissing,
					"the classes of %q, which were offered to claims of %q before, are not known yet "+
						"(to go on without them, run: %s): %s", // The cause is last, because an answer may be cut off.
					classKind, name, v1beta1.IgnoreCommand(classKind), u.why)
			}
		}
		v.needs = kind.RelatedKinds()
		for _, s := range v.All {
			v.needs = append(v.needs, s.Kind.RelatedKinds()...)
		}
		v.needs = rules.Union(v.needs...)
		v.RelatedMissing = v.relateTo(i.related)
		v.Fault = cmp.Or(v.Fault, v.Missing, v.RelatedMissing)
		v.Conflict = kind.reserved.conflict(name, slices.Min(rivals(i.claimKinds, kind)))
		i.views[name] = v
	}
	i.publish()
}

// publish the views, and end the waits for those that are newer.
func (i *Inventory) publish() {
	if !i.open {
		return
	}
	before, views := i.Snapshot(), i.views
	for name, v := range views {
		if before[name] != v {
			v.replaced = make(chan struct{})
		}
	}
	i.current.Store(&views)
	for name, v := range before {
		if views[name] != v {
			close(v.replaced)
		}
	}
}

// knownRelated has the objects of a related kind, nil before they are listed, and why these are not known as they are now.
type knownRelated struct {
	objects *inventory.Objects
	why     string
	// hasExpired reports whether some have expired of which no round has reported yet.
	hasExpired bool
}

// SetRelated replaces all objects of a related kind.
func (i *Inventory) SetRelated(o *inventory.Objects) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setRelated(o, i.namedOf(o.Kind.Key()))
}

// ChangeRelated does the same where only the object of this name differs from what was set before.
func (i *Inventory) ChangeRelated(o *inventory.Objects, namespace, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setRelated(o, []objectID{{o.Kind.Key(), namespace, name}})
}

// setRelated objects. These may have changed, and others have expired since the last round, which must not be the last to know.
func (i *Inventory) setRelated(o *inventory.Objects, changed []objectID) {
	now, before := i.now(), i.related[o.Kind.Key()]
	_, expired := before.expire(o.Kind.Key(), now)
	i.related[o.Kind.Key()] = knownRelated{objects: o.AsOf(now), hasExpired: before.hasExpired || len(expired) > 0}
	i.deriveNamers(append(changed, expired...)...)
	i.relate(o.Kind.Key())
}

// SetRelatedMissing says why the objects of a related kind are not known as they are now. The last known ones stay. Until the objects are
// known, no claim can be bound of those kinds whose expressions look at more of them than is held.
func (i *Inventory) SetRelatedMissing(key rules.Key, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.related[key]; old.why != why {
		old.why = why
		i.related[key] = old
		i.relate(key)
	}
}

// DeleteRelated forgets a related kind that no claim kind needs any longer.
func (i *Inventory) DeleteRelated(key rules.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.related[key]; known {
		delete(i.related, key)
		i.relate(key)
	}
}

// relate makes new views for the claim kinds that need these objects. They share all else with the old ones, unless their faults differ.
func (i *Inventory) relate(key rules.Key) {
	views := maps.Clone(i.views)
	var others []string
	for name, old := range i.views {
		if _, needed := old.related[key]; !needed {
			continue
		}
		v := *old
		if fault := v.relateTo(i.related); fault != nil || old.RelatedMissing != nil {
			others = append(others, name)
		} else {
			views[name] = &v
		}
	}
	i.views = views
	i.update(others...)
}

// relateTo gives a view the related objects that it needs. It returns the fault that some are not known, nil if all are.
func (v *View) relateTo(all map[rules.Key]knownRelated) (fault *inventory.Fault) {
	v.related = make(map[rules.Key]*inventory.Objects, len(v.needs))
	for _, k := range v.needs {
		known := all[k.Key()]
		if fault == nil && (known.objects == nil || !known.objects.Kind.Covers(k)) {
			fault = inventory.Faultf(v1beta1.ReasonRelatedMissing,
				"the objects of %q, at which expressions for claims of %q look, are not known yet: %s",
				k.Key(), v.Kind.Name, cmp.Or(known.why, "the API server has not listed them yet"))
		}
		v.related[k.Key()] = known.objects
	}
	return fault
}
