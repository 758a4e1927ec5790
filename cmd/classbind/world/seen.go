package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
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

// relate has the view know the kinds of the objects that its claims name. The objects are read one by one.
func (k *Kind) relate(ctx context.Context) error {
	var objects []*inventory.Objects
	for _, kind := range k.View.Kind.RelatedKinds() {
		of, err := k.world.Resolve(ctx, kind.Resource, kind.Version, "list", "watch")
		if err != nil && !NotServed(err) {
			return fmt.Errorf("cannot find the kind of the related %s: %w", kind.Resource, err)
		}
		if err != nil && !errors.Is(err, lookup.ErrNotInstalled) { // The objects may be there.
			if kind.Version != "" && !errors.Is(err, lookup.ErrUnsuitable) {
				err = fmt.Errorf("version %q is not served: "+
					"set the version in spec.classes.related to one that is, or leave it out", kind.Version)
			}
			k.View.Fault = cmp.Or(k.View.Fault, &inventory.Fault{Reason: v1beta1.ReasonRelatedMissing, Text: fmt.Sprintf(
				"the objects of %q, at which expressions of claim kind %q look, cannot be known: %v", kind.Key(), k.View.Kind.Name, err)})
		}
		objects = append(objects, inventory.NewObjects(kind, of.Namespaced, nil))
	}
	k.View = k.View.WithRelated(objects)
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
	return kind.Fields.Project(content), nil
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
