package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// namespaces are the resource of what expressions see as namespace.
var namespaces = Resource{Resource: lookup.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}}

// namespace is the content of a Namespace, with the label that the API server gives to every one. It is known if something else is.
func (w *World) namespace(ctx context.Context, name string) (content map[string]any, known bool, err error) {
	found, err := w.object(ctx, namespaces, "", name)
	if found, err = asSet(found, w.Settings.Namespace, err); err != nil {
		return nil, false, fmt.Errorf("cannot read the namespace %q, at which the claim kind looks: %w%s",
			name, err, w.Settings.orSet("namespace.labels.KEY"))
	}
	all := map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{corev1.LabelMetadataName: name}}}
	return merged(found, all), found != nil, nil
}

// relate returns the related objects of a claim kind, and of its classes. Those that claims name are read one by one, when a claim names
// them. The fault is that they cannot be known, nil if they can.
func (k *Kind) relate(ctx context.Context, kind *selector.ClaimKind) (objects []*inventory.Objects, fault *inventory.Fault, err error) {
	kinds := kind.RelatedKinds()
	for _, s := range k.Serving {
		kinds = append(kinds, s.Kind.RelatedKinds()...)
	}
	for _, of := range rules.Union(kinds...) {
		found, err := k.world.Resolve(ctx, of.Resource, of.Version, "list", "watch")
		if err != nil && !NotServed(err) {
			return nil, nil, fmt.Errorf("cannot find the kind of the related %s: %w", of.Resource, err)
		}
		if err != nil && !errors.Is(err, lookup.ErrNotInstalled) { // The objects may be there.
			if of.Version != "" && !errors.Is(err, lookup.ErrUnsuitable) {
				err = fmt.Errorf("version %q is not served: set the version of the related object "+
					"to one that is, or leave it out", of.Version)
			}
			fault = cmp.Or(fault, &inventory.Fault{Reason: v1beta1.ReasonRelatedMissing, Text: fmt.Sprintf(
				"the objects of %q, at which expressions for claims of %q look, cannot be known: %v", of.Key(), kind.Name, err)})
		}
		objects = append(objects, inventory.NewObjects(of, found.Namespaced, nil).AsOf(time.Now()))
	}
	return objects, fault, k.relateClasses(ctx, objects)
}

// relateClasses reads the objects that classes name, and derives the classes. One may be named by another before it.
func (k *Kind) relateClasses(ctx context.Context, objects []*inventory.Objects) error {
	type object struct {
		key             rules.Key
		namespace, name string
	}
	of := func(key rules.Key) *inventory.Objects {
		return objects[slices.IndexFunc(objects, func(o *inventory.Objects) bool { return o.Kind.Key() == key })]
	}
	read := map[object]bool{}
	for before := -1; len(read) > before; {
		before = len(read)
		var named []object
		for _, s := range k.Serving {
			s.Each(func(c *inventory.Class) {
				budget := expression.Budget{Left: v1beta1.MaxClassExpressionCost} // The server looks no object up beyond it, either.
				_, _ = c.Related(of, &budget, func(r *rules.Relation, namespace, name string) {
					if o := (object{r.Kind.Key(), namespace, name}); !read[o] {
						read[o], named = true, append(named, o)
					}
				})
			})
		}
		for _, o := range named {
			known := of(o.key)
			found, err := k.world.related(ctx, nil, &rules.Kind{
				Name: expression.ClassRelated + ".", Resource: o.key.Resource, Version: o.key.Version, Fields: known.Kind.Fields,
			}, o.namespace, o.name)
			if err != nil {
				return fmt.Errorf("cannot read %s %q, which a class names: %w", o.key, o.name, err)
			}
			if found != nil {
				objects[slices.Index(objects, known)] = known.With(o.namespace, o.name, found)
			}
		}
	}
	for i, s := range k.Serving {
		var derived []*inventory.Class
		s.Each(func(c *inventory.Class) {
			d, _ := c.Derived(of, nil)
			derived = append(derived, d)
		})
		k.Serving[i] = s.WithAll(derived)
	}
	return nil
}

// related reads what the expressions of a claim kind see besides the claim and the classes: the Namespace of the claim, and the objects
// that it names. What is not known is noted, unless note is nil.
func (w *World) related(
	ctx context.Context, note func(string, ...any), kind *rules.Kind, namespace, name string,
) (*expression.Object, error) {
	if kind.Name == "" { // It is the Namespace.
		content, known, err := w.namespace(ctx, name)
		if err == nil && !known && note != nil {
			note("nothing is known of the namespace %q%s", name, w.Settings.orSet("namespace.labels.KEY"))
		}
		return kind.Fields.Project(content), err
	}
	of, err := w.Resolve(ctx, kind.Resource, kind.Version, "list", "watch")
	var content map[string]any
	if err == nil {
		content, err = w.object(ctx, of, namespace, name)
	}
	if NotServed(err) {
		err = nil
	}
	if content, err = asSet(content, w.Settings.Related[kind.Name], err); err != nil {
		return nil, fmt.Errorf("%w%s", err, w.Settings.orSet("related."+kind.Name+".PATH"))
	}
	if content == nil {
		return nil, nil
	}
	o := kind.Valid(kind.Fields.Project(content), time.Now())
	if o == nil && note != nil {
		note("the %s %q is expired, by validUntil of the related object %q", kind.Resource, name, kind.Name)
	}
	return o, nil
}

// relatedList reads the objects of a namespace that a selector selects. There are none where their resource is not served.
func (w *World) relatedList(ctx context.Context, kind *rules.Kind, namespace string) (*inventory.Objects, error) {
	of, err := w.Resolve(ctx, kind.Resource, kind.Version, "list", "watch")
	var found map[string]any
	if err == nil {
		if !of.Namespaced {
			namespace = ""
		}
		found, err = w.list(ctx, of, namespace, kind.Selectors[0])
	}
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("you need the right to list them: %w", err)
	case err != nil && !NotServed(err):
		return nil, err
	}
	all := make(map[types.NamespacedName]*expression.Object, len(found))
	for name, object := range found {
		content, _ := object.(map[string]any)
		all[types.NamespacedName{Namespace: namespace, Name: name}] = kind.Fields.Project(content)
	}
	return inventory.NewObjects(kind, of.Namespaced, all).AsOf(time.Now()), nil
}

// orSet is the end of an error about an object that cannot be read.
func (s Settings) orSet(path string) string {
	if s.Related == nil { // The command has no such flag.
		return ""
	}
	return "; say what it has with --set " + path + "=VALUE"
}

// asSet is an object with what --set says of it, which is all of one that may not be read.
func asSet(content, set map[string]any, err error) (map[string]any, error) {
	switch {
	case len(set) == 0:
		return content, err
	case err != nil && !apierrors.IsForbidden(err):
		return nil, err
	}
	return merged(content, set), nil
}

// merged is an object with the fields of another one, which go before its own.
func merged(content, over map[string]any) map[string]any {
	all := maps.Clone(content)
	if all == nil {
		all = map[string]any{}
	}
	for name, value := range over {
		if above, ok := value.(map[string]any); ok {
			below, _ := all[name].(map[string]any)
			value = merged(below, above)
		}
		all[name] = value
	}
	return all
}

// Settings are what --set says of what expressions look at besides the claim and the classes.
type Settings struct {
	// Namespace is the content of the claim's Namespace, Request that of who asks, and Related those of objects by their names in
	// expressions. What is not set is nil.
	Namespace, Request map[string]any
	Related            map[string]map[string]any
}
