package inventory

import (
	"slices"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// Objects are all objects of a related kind. They are immutable, as Classes are.
type Objects struct {
	Kind *rules.Kind
	// Namespaced objects are in the namespace of the claim or the class, unless the registration says so.
	Namespaced bool

	objects list[object]
	// selected are those of each of the selectors of the kind.
	selected []list[object]
	// at is the time by which objects are expired, and next the first at which one may expire, zero if none does.
	at, next time.Time
}

type object struct {
	className
	fields *expression.Object
	until  []time.Time // as Kind.Until has them
}

func (o object) name() className { return o.className }

// NewObjects of a kind.
func NewObjects(kind *rules.Kind, namespaced bool, objects map[types.NamespacedName]*expression.Object) *Objects {
	all := make([]object, 0, len(objects))
	for name, o := range objects {
		all = append(all, object{nameOf(name.Namespace, name.Name), o, kind.Until(o)})
	}
	o := &Objects{Kind: kind, Namespaced: namespaced, selected: make([]list[object], len(kind.Selectors))}
	for i := range kind.Selectors {
		isOther := func(one object) bool { return !kind.Selects(one.fields, i) }
		o.selected[i] = newList(slices.DeleteFunc(slices.Clone(all), isOther))
	}
	o.objects = newList(all)
	for _, one := range all {
		o.expect(one, time.Time{})
	}
	return o
}

// expect an object to expire after a time.
func (o *Objects) expect(one object, after time.Time) {
	for _, until := range one.until {
		if until.After(after) && (o.next.IsZero() || until.Before(o.next)) {
			o.next = until
		}
	}
}

// AsOf a time, other objects may be expired.
func (o *Objects) AsOf(now time.Time) *Objects {
	next := *o
	next.at = now
	return &next
}

// Expire returns the objects as of a time, with the names of those that have expired since. They are the same if none has.
func (o *Objects) Expire(now time.Time) (next *Objects, names []types.NamespacedName) {
	if o == nil || o.next.IsZero() || o.next.After(now) {
		return o, nil
	}
	next = o.AsOf(now)
	next.next = time.Time{}
	o.objects.each(func(one object) {
		next.expect(one, now)
		if slices.ContainsFunc(one.until, func(t time.Time) bool { return passed(t, now) && !passed(t, o.at) }) {
			names = append(names, types.NamespacedName{Namespace: one.namespace, Name: one.className.name})
		}
	})
	return next, names
}

func passed(until, at time.Time) bool { return !until.IsZero() && !until.After(at) }

// Expired is how many objects of a relation are expired.
func (o *Objects) Expired(of *rules.Kind) (n int) {
	if at := o.Kind.Expiry(of); at >= 0 {
		o.objects.each(func(one object) {
			if passed(one.until[at], o.at) {
				n++
			}
		})
	}
	return n
}

// nameOf an object. The objects of a namespace share its name.
func nameOf(namespace, name string) className { return className{unique.Make(namespace).Value(), name} }

// With returns the objects with one of this name, which replaces the one that there is. It returns o itself if nothing has changed.
func (o *Objects) With(namespace, name string, fields *expression.Object) *Objects {
	if old := o.Find(namespace, name); old != nil && old.Same(fields) {
		return o
	}
	of := nameOf(namespace, name)
	next, one := *o, object{of, fields, o.Kind.Until(fields)}
	next.objects = o.objects.with(of, one)
	next.selected = slices.Clone(o.selected)
	for i := range next.selected {
		if o.Kind.Selects(fields, i) {
			next.selected[i] = next.selected[i].with(of, one)
		} else {
			next.selected[i] = next.selected[i].without(of)
		}
	}
	next.expect(one, time.Time{})
	return &next
}

// Without returns the objects without the one of this name.
func (o *Objects) Without(namespace, name string) *Objects {
	if o.Find(namespace, name) == nil {
		return o
	}
	next, of := *o, className{namespace, name}
	next.objects = o.objects.without(of)
	next.selected = slices.Clone(o.selected)
	for i := range next.selected {
		next.selected[i] = next.selected[i].without(of)
	}
	return &next
}

// Find returns an object, nil if it is not known.
func (o *Objects) Find(namespace, name string) *expression.Object {
	if o == nil {
		return nil
	}
	found, _ := o.objects.find(className{namespace, name})
	return found.fields
}

// Valid returns an object of a relation, nil if it is not known or expired.
func (o *Objects) Valid(of *rules.Kind, namespace, name string) (valid *expression.Object, isExpired bool) {
	if o == nil {
		return nil, false
	}
	found, _ := o.objects.find(className{namespace, name})
	if at := o.Kind.Expiry(of); found.fields != nil && at >= 0 && passed(found.until[at], o.at) {
		return nil, true
	}
	return found.fields, false
}

// Selected returns the objects of a namespace that the selector of a relation selects, by name, without those that are expired. It is nil
// if they are more than a list may have, and n is then how many there are, expired ones included, as far as it looks.
func (o *Objects) Selected(of *rules.Kind, namespace string) (all []any, n int) {
	all = []any{}
	if o == nil || o.Namespaced && namespace == "" {
		return all, 0
	}
	at, expiry := o.Kind.Selector(of), o.Kind.Expiry(of)
	if at < 0 {
		return all, 0
	}
	isWhole := o.selected[at].in(namespace, func(one object) bool {
		if len(all) <= v1beta1.MaxRelatedListed && (expiry < 0 || !passed(one.until[expiry], o.at)) {
			all = append(all, one.fields)
		}
		n++
		return n <= v1beta1.MaxRelatedSelected
	})
	if !isWhole || len(all) > v1beta1.MaxRelatedListed {
		return nil, n
	}
	return all, n
}

// IsCrowded reports whether a selector of objects without a namespace selects too many for a list, if none of them is expired.
func (o *Objects) IsCrowded() bool {
	return !o.Namespaced && slices.ContainsFunc(o.selected, func(l list[object]) bool { return l.len() > v1beta1.MaxRelatedListed })
}

// IsExpired reports whether an object is expired at a time, by any of the expiries.
func (o *Objects) IsExpired(namespace, name string, now time.Time) bool {
	found, _ := o.objects.find(className{namespace, name})
	return slices.ContainsFunc(found.until, func(t time.Time) bool { return passed(t, now) })
}

// Len returns the number of objects.
func (o *Objects) Len() int { return o.objects.len() }
