package selector

import (
	"maps"
	"slices"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// The fits and the score of a class look the objects up that the class names. Its weight and its capacity are held with the class instead:
// they are derived again when such an object changes. A few classes are derived with the change, so that claims see both at once. Of an
// object that many classes name, the rest is due: the next round derives it, however often the object changed meanwhile.

// objectID is an object of a related kind, whether there is one or not.
type objectID struct {
	key             rules.Key
	namespace, name string
}

// classID is a class of a kind.
type classID struct{ kind, namespace, name string }

const (
	// changeCost is what it costs to replace a class in the views, in units of an expression.
	changeCost = 1000
	// derivedAtOnce is what the classes may cost that are derived with a change of an object.
	derivedAtOnce = v1beta1.MaxClassExpressionCost
)

// derivations know which classes are to be derived when an object changes: only those whose kind derives something.
type derivations struct {
	classes map[objectID]map[classID]bool
	objects map[string]map[classID][]objectID // by class kind
	due     map[classID]bool
	// dueOf are objects whose classes are all due. So a storm of changes to an object costs the same, however many classes name it.
	dueOf map[objectID]bool
	// changed are the class kinds whose faulty classes changed, by name, until a round reports them.
	changed map[string]*inventory.ClassKind
}

func newDerivations() derivations {
	return derivations{
		classes: map[objectID]map[classID]bool{}, objects: map[string]map[classID][]objectID{},
		due: map[classID]bool{}, dueOf: map[objectID]bool{}, changed: map[string]*inventory.ClassKind{},
	}
}

// name the objects of a class, none if it is gone. It reports whether they differ from those before.
func (d *derivations) name(c classID, objects []objectID) (differ bool) {
	before := d.objects[c.kind][c]
	if slices.Equal(before, objects) {
		return false
	}
	for _, o := range before {
		if delete(d.classes[o], c); len(d.classes[o]) == 0 {
			delete(d.classes, o)
		}
	}
	if delete(d.objects[c.kind], c); len(objects) > 0 {
		if d.objects[c.kind] == nil {
			d.objects[c.kind] = map[classID][]objectID{}
		}
		d.objects[c.kind][c] = objects
	}
	for _, o := range objects {
		if d.classes[o] == nil {
			d.classes[o] = map[classID]bool{}
		}
		d.classes[o][c] = true
	}
	return true
}

// derived is a class as it follows from the objects that it names.
type derived struct {
	from, to *inventory.Class
	objects  []objectID
	cost     uint64
}

func derive(c *inventory.Class, related map[rules.Key]knownRelated) derived {
	d := derived{from: c}
	of := func(key rules.Key) *inventory.Objects { return related[key].objects }
	d.to, d.cost = c.Derived(of, func(r *rules.Relation, namespace, name string) {
		d.objects = append(d.objects, objectID{r.Kind.Key(), namespace, name})
	})
	return d
}

func idOf(c *inventory.Class) classID { return classID{c.Kind.Name, c.Namespace, c.Name} }

// deriveAll classes of a kind that are new, or may have changed.
func (i *Inventory) deriveAll(s *inventory.Classes) *inventory.Classes {
	if !s.Kind.Derives() {
		return s
	}
	all := make([]*inventory.Class, 0, s.Len())
	s.Each(func(c *inventory.Class) {
		d := derive(c, i.related)
		i.derivations.name(idOf(c), d.objects)
		all = append(all, d.to)
	})
	return inventory.NewClasses(s.Kind, all)
}

// forgetDerived forgets what the classes of a kind name.
func (i *Inventory) forgetDerived(classKind string) {
	for c := range i.derivations.objects[classKind] {
		i.derivations.name(c, nil)
	}
	maps.DeleteFunc(i.derivations.due, func(c classID, _ bool) bool { return c.kind == classKind })
}

// deriveOne class of a kind whose other classes are as they were: it is nil if it is gone. It returns what it costs.
func (i *Inventory) deriveOne(id classID, c *inventory.Class) (cost uint64) {
	before := i.classes[id.kind]
	next := before.Without(id.namespace, id.name)
	delete(i.derivations.due, id)
	if c == nil {
		i.derivations.name(id, nil)
	} else {
		d := derive(c, i.related)
		i.derivations.name(id, d.objects)
		next, cost = before.With(d.to), d.cost
	}
	if next == before {
		return cost
	}
	i.classes[id.kind] = next
	if !before.SameSummary(next) {
		i.derivations.changed[id.kind] = next.Kind
	}
	i.changeViews(before, next, id.namespace, id.name)
	return cost + changeCost
}

// deriveNamers of some objects which changed: a few now, and the rest in the next round.
func (i *Inventory) deriveNamers(objects ...objectID) {
	spent := uint64(0)
	for _, o := range objects {
		if i.derivations.dueOf[o] {
			continue
		}
		for id := range i.derivations.classes[o] {
			if spent >= derivedAtOnce {
				i.derivations.dueOf[o] = true
				break
			}
			if c := i.classes[id.kind].Find(id.namespace, id.name); c != nil {
				spent += i.deriveOne(id, c)
			}
		}
	}
}

// Expire related objects, and return the kinds of those that have expired.
func (i *Inventory) Expire() (keys []rules.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, known := range maps.Clone(i.related) {
		objects, expired := known.expire(key, i.now())
		if objects == known.objects && !known.hasExpired {
			continue
		}
		i.related[key] = knownRelated{objects: objects, why: known.why}
		if len(expired) == 0 && !known.hasExpired {
			continue
		}
		i.deriveNamers(expired...)
		i.relate(key)
		keys = append(keys, key)
	}
	return keys
}

// expire returns the objects as of a time, and those that have expired since.
func (k *knownRelated) expire(key rules.Key, now time.Time) (objects *inventory.Objects, expired []objectID) {
	objects, names := k.objects.Expire(now)
	for _, name := range names {
		expired = append(expired, objectID{key, name.Namespace, name.Name})
	}
	return objects, expired
}

// namedOf a related kind are the objects that classes name.
func (i *Inventory) namedOf(key rules.Key) (all []objectID) {
	for o := range i.derivations.classes {
		if o.key == key {
			all = append(all, o)
		}
	}
	return all
}

// Derive the classes that are due, and return the class kinds whose faulty classes changed. It evaluates without a lock, so other changes
// go on.
func (i *Inventory) Derive() (changed []*inventory.ClassKind) {
	i.mu.Lock()
	if len(i.derivations.due)+len(i.derivations.dueOf)+len(i.derivations.changed) == 0 {
		i.mu.Unlock()
		return nil
	}
	due, related := i.derivations.due, maps.Clone(i.related)
	for o := range i.derivations.dueOf {
		maps.Copy(due, i.derivations.classes[o])
	}
	i.derivations.due = map[classID]bool{}
	clear(i.derivations.dueOf)
	var from []*inventory.Class
	for id := range due {
		if c := i.classes[id.kind].Find(id.namespace, id.name); c != nil {
			from = append(from, c)
		}
	}
	i.mu.Unlock()

	byKind := map[string][]derived{}
	for _, c := range from {
		byKind[c.Kind.Name] = append(byKind[c.Kind.Name], derive(c, related))
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	var touched []string
	for name, all := range byKind {
		touched = append(touched, i.replaceDerived(name, all)...)
	}
	if len(touched) > 0 {
		i.update(touched...)
	}
	changed = slices.Collect(maps.Values(i.derivations.changed))
	clear(i.derivations.changed)
	return changed
}

// replaceDerived classes of a kind, and return the claim kinds whose views are to be updated. A class that has changed meanwhile was
// derived then. One that names other objects than before is due again: these may have changed meanwhile.
func (i *Inventory) replaceDerived(classKind string, all []derived) (claimKinds []string) {
	before := i.classes[classKind]
	var to []*inventory.Class
	for _, d := range all {
		if id := idOf(d.from); before.Find(id.namespace, id.name) == d.from {
			if i.derivations.name(id, d.objects) {
				i.derivations.due[id] = true
			}
			to = append(to, d.to)
		}
	}
	next := before.WithAll(to)
	if next == before {
		return nil
	}
	if i.classes[classKind] = next; !before.SameSummary(next) {
		i.derivations.changed[classKind] = next.Kind
	}
	return next.Kind.ClaimKinds
}

// Classes of a kind with the weights and capacities that follow from the objects that they name. Others stay as they are.
func (i *Inventory) Classes(s *inventory.Classes) *inventory.Classes {
	if s == nil || !s.Kind.Derives() {
		return s
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.classes[s.Kind.Name]; known != nil && known.Kind == s.Kind {
		return known
	}
	return s
}
