package inventory

import (
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
)

// Objects are all objects of a related kind. They are immutable, as Classes are.
type Objects struct {
	Kind *rules.Kind
	// Namespaced objects are in the namespace of the claim, unless the ClaimKind says so.
	Namespaced bool

	objects list[object]
}

type object struct {
	className
	fields *expression.Object
}

func (o object) name() className { return o.className }

// NewObjects of a kind.
func NewObjects(kind *rules.Kind, namespaced bool, objects map[types.NamespacedName]*expression.Object) *Objects {
	all := make([]object, 0, len(objects))
	for name, o := range objects {
		all = append(all, object{nameOf(name.Namespace, name.Name), o})
	}
	return &Objects{kind, namespaced, newList(all)}
}

// nameOf an object. The objects of a namespace share its name.
func nameOf(namespace, name string) className { return className{unique.Make(namespace).Value(), name} }

// With returns the objects with one of this name, which replaces the one that there is. It returns o itself if nothing has changed.
func (o *Objects) With(namespace, name string, fields *expression.Object) *Objects {
	if old := o.Find(namespace, name); old != nil && old.Same(fields) {
		return o
	}
	of := nameOf(namespace, name)
	return &Objects{o.Kind, o.Namespaced, o.objects.with(of, object{of, fields})}
}

// Without returns the objects without the one of this name.
func (o *Objects) Without(namespace, name string) *Objects {
	if o.Find(namespace, name) == nil {
		return o
	}
	return &Objects{o.Kind, o.Namespaced, o.objects.with(className{namespace, name})}
}

// Find returns an object, nil if it is not known.
func (o *Objects) Find(namespace, name string) *expression.Object {
	if o == nil {
		return nil
	}
	found, _ := o.objects.find(className{namespace, name})
	return found.fields
}

// Len returns the number of objects.
func (o *Objects) Len() int { return o.objects.len() }
