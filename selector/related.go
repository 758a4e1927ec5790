package selector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/hamt"
	"github.com/classbind/classbind/selector/rules"
)

// RelatedKinds are those whose objects the expressions of a claim kind look at, sorted.
func (k *ClaimKind) RelatedKinds() []*rules.Kind { return UnionRelated(k) }

// UnionRelated returns the RelatedKinds of several claim kinds, each once, sorted.
func UnionRelated(kinds ...*ClaimKind) []*rules.Kind {
	looks := map[rules.Key][]fields.Path{}
	for _, k := range kinds {
		if k.Namespaces != nil {
			looks[k.Namespaces.Key()] = append(looks[k.Namespaces.Key()], k.Namespaces.Fields.Paths()...)
		}
		for _, r := range k.Related {
			looks[r.Kind.Key()] = append(looks[r.Kind.Key()], r.Kind.Fields.Paths()...)
		}
	}
	union := make([]*rules.Kind, 0, len(looks))
	for key, paths := range looks {
		union = append(union, &rules.Kind{Resource: key.Resource, Version: key.Version, Fields: expression.NewFields(paths...)})
	}
	slices.SortFunc(union, func(a, b *rules.Kind) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Version, b.Version))
	})
	return union
}

// Objects are all objects of a RelatedKind. They are immutable, as Classes are.
type Objects struct {
	Kind *rules.Kind
	// Namespaced objects are in the namespace of the claim, unless the ClaimKind says so.
	Namespaced bool

	byName hamt.Map[className, *expression.Object]
}

// NewObjects of a kind.
func NewObjects(kind *rules.Kind, namespaced bool, objects map[types.NamespacedName]*expression.Object) *Objects {
	byName := make([]hamt.Entry[className, *expression.Object], 0, len(objects))
	for name, o := range objects {
		byName = append(byName, hamt.Entry[className, *expression.Object]{Key: nameOf(name.Namespace, name.Name), Value: o})
	}
	return &Objects{kind, namespaced, hamt.New(byName)}
}

// nameOf an object. The objects of a namespace share its name.
func nameOf(namespace, name string) className { return className{unique.Make(namespace).Value(), name} }

// With returns the objects with one of this name, which replaces the one that there is. It
// returns o itself if nothing has changed.
func (o *Objects) With(namespace, name string, object *expression.Object) *Objects {
	if old := o.Find(namespace, name); old != nil && old.Same(object) {
		return o
	}
	return &Objects{o.Kind, o.Namespaced, o.byName.With(nameOf(namespace, name), object)}
}

// Without returns the objects without the one of this name.
func (o *Objects) Without(namespace, name string) *Objects {
	if o.Find(namespace, name) == nil {
		return o
	}
	return &Objects{o.Kind, o.Namespaced, o.byName.Without(className{namespace, name})}
}

// Find returns an object, nil if it is not known.
func (o *Objects) Find(namespace, name string) *expression.Object {
	if o == nil {
		return nil
	}
	n := className{namespace, name}
	found, _ := o.byName.Get(n.Hash(), n)
	return found
}

// Len is their number.
func (o *Objects) Len() int { return o.byName.Len() }

// Related returns the objects of a RelatedKind that the view's claim kind needs. It is nil if
// they are not known.
func (v *View) Related(resource, version string) *Objects {
	for i, k := range v.needs {
		if k.Resource == resource && k.Version == version && i < len(v.related) {
			return v.related[i]
		}
	}
	return nil
}

// needing reports whether the view's claim kind needs these objects.
func (v *View) needing(key rules.Key) bool {
	return slices.ContainsFunc(v.needs, func(k *rules.Kind) bool { return k.Key() == key })
}

// knownRelated is what an Inventory knows of a RelatedKind: its objects, nil before they are listed,
// and why these are not known as they are now.
type knownRelated struct {
	objects *Objects
	why     string
}

// SetRelated replaces all objects of a RelatedKind.
func (i *Inventory) SetRelated(o *Objects) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.related[o.Kind.Key()] = knownRelated{objects: o}
	i.relate(o.Kind.Key())
}

// SetRelatedMissing says why the objects of a RelatedKind are not known as they are now. The
// last known ones stay. Until the objects are known, no claim can be bound of those kinds whose
// expressions look at more of them than is held.
func (i *Inventory) SetRelatedMissing(key rules.Key, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.related[key]; old.why != why {
		i.related[key] = knownRelated{old.objects, why}
		i.relate(key)
	}
}

// DeleteRelated forgets a RelatedKind that no claim kind needs any more.
func (i *Inventory) DeleteRelated(key rules.Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.related[key]; known {
		delete(i.related, key)
		i.relate(key)
	}
}

// relate makes new views for the claim kinds that need these objects. They share all else with
// the old ones, unless their faults differ.
func (i *Inventory) relate(key rules.Key) {
	views := maps.Clone(i.views)
	var others []string
	for name, old := range i.views {
		if !old.needing(key) {
			continue
		}
		v := *old
		if fault := i.related.give(&v); fault != nil || old.RelatedMissing != nil {
			others = append(others, name)
		} else {
			views[name] = &v
		}
	}
	i.views = views
	i.update(others...)
}

// relatedObjects are what an Inventory knows, by their kind.
type relatedObjects map[rules.Key]knownRelated

// give a view the related objects that it needs. It returns the fault that some
// are not known, nil if all are.
func (all relatedObjects) give(v *View) *Fault {
	v.related = make([]*Objects, len(v.needs))
	for n, k := range v.needs {
		known := all[k.Key()]
		if known.objects == nil || !known.objects.Kind.Fields.Covers(k.Fields.Paths()...) {
			return &Fault{v1beta1.ReasonRelatedMissing, fmt.Sprintf(
				"the objects of %q, at which expressions of claim kind %q look, are not known yet: %s",
				k.Key(), v.Kind.Name, cmp.Or(known.why, "the API server has not listed them yet"))}
		}
		v.related[n] = known.objects
	}
	return nil
}
