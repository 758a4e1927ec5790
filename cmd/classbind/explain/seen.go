package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/rules"
)

// namespaces are the resource of what expressions see as namespace.
var namespaces = resource{Resource: lookup.Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}}

// namespace is the content of a Namespace, with the label that the API server gives to every one. It is known if something else is.
func (w *World) namespace(ctx context.Context, name string) (content map[string]any, known bool, err error) {
	found, err := w.object(ctx, namespaces, "", name)
	if found, err = asSet(found, w.settings.namespace, err); err != nil {
		return nil, false, fmt.Errorf("cannot read the namespace %q, at which the claim kind looks: %w%s",
			name, err, w.settings.orSet("namespace.labels.KEY"))
	}
	all := map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{corev1.LabelMetadataName: name}}}
	return merged(found, all), found != nil, nil
}

// relate has the view know the kinds of the objects that its claims name. The objects are read one by one.
func (k *Kind) relate(ctx context.Context) error {
	var objects []*inventory.Objects
	for _, kind := range k.Kind.RelatedKinds() {
		of, err := k.world.resolve(ctx, kind.Resource, kind.Version, "list", "watch")
		if err != nil && !notServed(err) {
			return fmt.Errorf("cannot find the kind of the related %s: %w", kind.Resource, err)
		}
		if err != nil && !errors.Is(err, lookup.ErrNotInstalled) { // The objects may be there.
			if kind.Version != "" && !errors.Is(err, lookup.ErrUnsuitable) {
				err = fmt.Errorf("version %q is not served: "+
					"set the version in spec.classes.related to one that is, or leave it out", kind.Version)
			}
			k.Fault = cmp.Or(k.Fault, &inventory.Fault{Reason: v1beta1.ReasonRelatedMissing, Text: fmt.Sprintf(
				"the objects of %q, at which expressions of claim kind %q look, cannot be known: %v", kind.Key(), k.Kind.Name, err)})
		}
		objects = append(objects, inventory.NewObjects(kind, of.Namespaced, nil))
	}
	k.View = k.WithRelated(objects)
	return nil
}

// related reads what the expressions of a claim kind see besides the claim and the classes: the Namespace of the claim, and the objects
// that it names. What is not known is noted at an item.
func (w *World) related(ctx context.Context, item *Item, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
	if kind.Name == "" { // It is the Namespace.
		content, known, err := w.namespace(ctx, name)
		if err == nil && !known {
			item.note("nothing is known of the namespace %q%s", name, w.settings.orSet("namespace.labels.KEY"))
		}
		return kind.Fields.Project(content), err
	}
	of, err := w.resolve(ctx, kind.Resource, kind.Version, "list", "watch")
	var content map[string]any
	if err == nil {
		content, err = w.object(ctx, of, namespace, name)
	}
	if notServed(err) {
		err = nil
	}
	if content, err = asSet(content, w.settings.related[kind.Name], err); err != nil {
		return nil, fmt.Errorf("%w%s", err, w.settings.orSet("related."+kind.Name+".PATH"))
	}
	if content == nil {
		return nil, nil
	}
	return kind.Fields.Project(content), nil
}

// orSet is the end of an error about an object that cannot be read.
func (s settings) orSet(path string) string {
	if s.related == nil { // The command has no such flag.
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

// settings are what --set says of what expressions look at besides the claim and the classes.
type settings struct {
	// namespace is the content of the claim's Namespace, request that of who asks, and related those of objects by their names in
	// expressions. What is not set is nil.
	namespace, request map[string]any
	related            map[string]map[string]any
}

// newSettings reads all --set, each PATH=VALUE, and returns all errors at once.
func newSettings(texts []string) (settings, error) {
	s := settings{related: map[string]map[string]any{}}
	var errs []error
	for _, text := range texts {
		if err := s.add(text); err != nil {
			errs = append(errs, fmt.Errorf("--set=%q: %w", text, err))
		}
	}
	return s, errors.Join(errs...)
}

func (s *settings) add(text string) error {
	const dot, user = "\x00", "userInfo" // A dot in a name is written \. No argument of a command has a null byte.
	path, value, _ := strings.Cut(text, "=")
	names := strings.Split(strings.ReplaceAll(path, `\.`, dot), ".")
	for n := range names {
		names[n] = strings.ReplaceAll(names[n], dot, ".")
	}
	malformed := errors.New("must be PATH=VALUE, where PATH is one of namespace.labels.KEY, namespace.annotations.KEY, " +
		"request.userInfo.username, uid, groups or extra.KEY, and related.NAME.FIELD, such as related.plan.spec.tier")
	if len(names) < 3 || slices.Contains(names, "") || len(text) == len(path) {
		return malformed
	}
	field, key := names[1], strings.Join(names[2:], ".") // A key may have dots.
	switch {
	case names[0] == expression.Namespace && (field == "labels" || field == "annotations"):
		return set(&s.namespace, value, "metadata", field, key)
	case names[0] == expression.Request && field == user && (key == "username" || key == "uid"):
		return set(&s.request, value, user, key)
	case names[0] == expression.Request && field == user && key == "groups":
		return appendTo(&s.request, value, user, key)
	case names[0] == expression.Request && field == user && names[2] == "extra" && len(names) > 3:
		return appendTo(&s.request, value, user, names[2], strings.Join(names[3:], "."))
	case names[0] == expression.Related:
		content := s.related[field]
		err := set(&content, typed(value), names[2:]...)
		s.related[field] = content
		return err
	}
	return malformed
}

// undeclared is an error for an object that no registration relates.
func (s *settings) undeclared(w *World) error {
	known := sets.New[string]()
	for i := range w.claimKinds {
		for _, related := range w.claimKinds[i].Spec.Classes.Related {
			known.Insert(related.Name)
		}
	}
	if unknown := sets.List(sets.KeySet(s.related).Difference(known)); len(unknown) > 0 {
		return fmt.Errorf("--set: no ClaimKind has a related object %q%s", unknown[0], near.Meant(unknown[0], sets.List(known)))
	}
	return nil
}

// set a field, which must not lie below a value.
func set(content *map[string]any, value any, path ...string) error {
	if *content == nil {
		*content = map[string]any{}
	}
	return unstructured.SetNestedField(*content, value, path...)
}

// appendTo a list.
func appendTo(content *map[string]any, item string, path ...string) error {
	all, _, _ := unstructured.NestedSlice(*content, path...) // Its path has lists alone.
	return set(content, append(all, any(item)), path...)
}

// typed is a value as JSON has it: a number, true, false, null, a text in quotation marks, or a list. Any other is a text.
func typed(value string) (decoded any) {
	if err := json.Unmarshal([]byte(value), &decoded); err != nil { // It decodes integers like the API server.
		return value
	}
	if _, object := decoded.(map[string]any); object {
		return value
	}
	return decoded
}
