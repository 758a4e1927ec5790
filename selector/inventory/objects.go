package inventory

import (
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// Objects are all objects of a RelatedKind. They are immutable, as Classes are.
type Objects struct {
	Kind *rules.Kind
	// Namespaced objects are in the namespace of the claim, unless the ClaimKind says so.
	Namespaced bool

	byName table[className, *expression.Object]
}

// NewObjects of a kind.
func NewObjects(kind *rules.Kind, namespaced bool, objects map[types.NamespacedName]*expression.Object) *Objects {
	byName := make([]entry[className, *expression.Object], 0, len(objects))
	for name, o := range objects {
		byName = append(byName, entry[className, *expression.Object]{Key: nameOf(name.Namespace, name.Name), Value: o})
	}
	return &Objects{kind, namespaced, newTable(byName)}
}

// nameOf an object. The objects of a namespace share its name.
func nameOf(namespace, name string) className { return className{unique.Make(namespace).Value(), name} }

// With returns the objects with one of this name, which replaces the one that there is. It returns o itself if nothing has changed.
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
	found, _ := o.byName.Get(className{namespace, name})
	return found
}

// Len is their number.
func (o *Objects) Len() int { return o.byName.Len() }
