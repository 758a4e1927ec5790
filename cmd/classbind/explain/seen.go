package explain

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
var namespaces = resource{Resource: lookup.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}}

// namespace is the content of a Namespace, with the label that the API server gives to every one. It is
// known if something else is.
func (r *registrations) namespace(ctx context.Context, name string) (content map[string]any, known bool, err error) {
	found, ok := r.namespaces[name]
	if !ok {
		found, err = r.object(ctx, namespaces, "", name)
		if found, err = asSet(found, r.settings.namespace, err); err != nil {
			return nil, false, fmt.Errorf("cannot read the namespace %q, at which the claim kind looks: %w%s",
				name, err, r.orSet("namespace.labels.KEY"))
		}
		r.namespaces[name] = found
	}
	all := map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{corev1.LabelMetadataName: name}}}
	return merged(found, all), found != nil, nil
}

// relate has a view know the kinds of the objects that its claims name. The objects are read one by one.
func (r *registrations) relate(ctx context.Context, v *view) error {
	var objects []*inventory.Objects
	for _, kind := range v.Kind.RelatedKinds() {
		of, err := r.resolve(ctx, kind.Resource, kind.Version, "list", "watch")
		if err != nil && !notServed(err) {
			return fmt.Errorf("cannot find the kind of the related %s: %w", kind.Resource, err)
		}
		if err != nil && !errors.Is(err, lookup.ErrNotInstalled) { // The objects may be there.
			if kind.Version != "" && !errors.Is(err, lookup.ErrUnsuitable) {
				err = fmt.Errorf("version %q is not served: "+
					"set the version in spec.classes.related to one that is, or leave it out", kind.Version)
			}
			v.Fault = cmp.Or(v.Fault, &inventory.Fault{Reason: v1beta1.ReasonRelatedMissing, Text: fmt.Sprintf(
				"the objects of %q, at which expressions of claim kind %q look, cannot be known: %v", kind.Key(), v.Kind.Name, err)})
		}
		objects = append(objects, inventory.NewObjects(kind, of.Namespaced, nil))
	}
	v.View = v.WithRelated(objects)
	return nil
}

// relatedOf returns a function that reads what the expressions of a claim kind see besides the claim and
// the classes: the Namespace of the claim, and the objects that it names.
func (r *registrations) relatedOf(item *Item) readRelated {
	return func(ctx context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		if kind.Name == "" { // It is the Namespace.
			content, known, err := r.namespace(ctx, name)
			if err == nil && !known && r.unsettable {
				item.note("there is no namespace %q", name)
			} else if err == nil && !known {
				item.note("nothing is known of the namespace %q: put its manifest among the files, "+
					"or say what it has with --set namespace.labels.KEY=VALUE", name)
			}
			return kind.Fields.Project(content), err
		}
		of, err := r.resolve(ctx, kind.Resource, kind.Version, "list", "watch")
		var content map[string]any
		if err == nil {
			content, err = r.object(ctx, of, namespace, name)
		}
		if notServed(err) {
			err = nil
		}
		if content, err = asSet(content, r.settings.related[kind.Name], err); err != nil {
			return nil, fmt.Errorf("%w%s", err, r.orSet("related."+kind.Name+".PATH"))
		}
		if content == nil {
			return nil, nil
		}
		return kind.Fields.Project(content), nil
	}
}

// orSet is the end of an error about an object that cannot be read.
func (r *registrations) orSet(path string) string {
	if r.unsettable {
		return ""
	}
	return "; say what it has with --set " + path + "=VALUE"
}

// readRelated is that of a selector.Decider.
type readRelated func(
	ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string,
) (*expression.Object, error)

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
