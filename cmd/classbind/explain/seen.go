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
	"k8s.io/apimachinery/pkg/util/validation"

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

// relatedOf returns a function that reads what the expressions of a claim kind see besides the claim and the classes: the Namespace of the
// claim, and the objects that it names.
func (r *registrations) relatedOf(item *Item) readRelated {
	return func(ctx context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		if kind.Name == "" { // It is the Namespace.
			content, known, err := r.namespace(ctx, name)
			if err == nil && !known && !r.settable {
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
	if !r.settable {
		return ""
	}
	return "; say what it has with --set " + path + "=VALUE"
}

// readRelated is that of a selector.Decider.
type readRelated func(ctx context.Context, claimNamespace string, kind *rules.Kind, namespace, name string) (*expression.Object, error)

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
	const dot = "\x00" // A dot in a name, which is written \. No argument of a command has it.
	path, value, ok := strings.Cut(text, "=")
	names := strings.Split(strings.ReplaceAll(path, `\.`, dot), ".")
	for n := range names {
		names[n] = strings.ReplaceAll(names[n], dot, ".")
	}
	roots := []string{expression.Namespace, expression.Request, expression.Related}
	switch {
	case !ok:
		return errors.New("must be PATH=VALUE, such as namespace.labels.tenant=a")
	case slices.Contains(names, ""):
		return errors.New("the path has an empty name: write one dot between names, and \\. in a name")
	case names[0] == expression.Namespace:
		return s.addNamespace(names[1:], value)
	case names[0] == expression.Request:
		return s.addRequest(names[1:], value)
	case names[0] == expression.Related && len(names) < 3:
		return errors.New("must name a field of the object, such as related.plan.spec.tier=gold")
	case names[0] == expression.Related:
		content := s.related[names[1]]
		if err := set(&content, typed(value), names[2:]...); err != nil {
			return err
		}
		s.related[names[1]] = content
		return nil
	case names[0] == expression.Claim:
		return errors.New("a claim is as its file says: change that")
	case names[0] == expression.Class:
		return errors.New("a class is as its file says: put another on top of the cluster's with --with")
	}
	return fmt.Errorf("must begin with one of %s%s", strings.Join(roots, ", "), near.Meant(names[0], roots))
}

// addNamespace sets a label or an annotation. All that follows is the key, which may have dots.
func (s *settings) addNamespace(names []string, value string) error {
	if len(names) > 0 && names[0] == "metadata" {
		names = names[1:]
	}
	if len(names) < 2 || names[0] != "labels" && names[0] != "annotations" {
		return errors.New("must name a label or an annotation, such as namespace.labels.tenant=a")
	}
	key := strings.Join(names[1:], ".")
	errs := validation.IsQualifiedName(key)
	if names[0] == "labels" {
		errs = append(errs, validation.IsValidLabelValue(value)...)
	}
	if len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	return set(&s.namespace, value, "metadata", names[0], key)
}

func (s *settings) addRequest(names []string, value string) error {
	const user = "userInfo"
	field := ""
	if len(names) > 1 && names[0] == user {
		field = names[1]
	}
	switch {
	case len(names) == 2 && (field == "username" || field == "uid"):
		return set(&s.request, value, user, field)
	case len(names) == 2 && field == "groups":
		return appendTo(&s.request, value, user, field)
	case len(names) > 2 && field == "extra":
		return appendTo(&s.request, value, user, field, strings.Join(names[2:], "."))
	}
	return errors.New("must be request.userInfo.username, uid, groups or extra.KEY, such as request.userInfo.groups=a" +
		near.Meant(field, []string{"username", "uid", "groups", "extra"}))
}

// undeclared is an error for an object that no registration relates.
func (s *settings) undeclared(r *registrations) error {
	known := sets.New[string]()
	for i := range r.claimKinds {
		for _, related := range r.claimKinds[i].Spec.Classes.Related {
			known.Insert(related.Name)
		}
	}
	unknown := sets.List(sets.KeySet(s.related).Difference(known))
	if len(unknown) == 0 {
		return nil
	}
	err := fmt.Errorf("--set: no ClaimKind has a related object %q", unknown[0])
	if all := sets.List(known); len(all) > 0 {
		err = fmt.Errorf("%w, but %s%s", err, strings.Join(all, ", "), near.Meant(unknown[0], all))
	}
	return err
}

// set a field, which must not be set yet, nor lie below another one.
func set(content *map[string]any, value any, path ...string) error {
	if *content == nil {
		*content = map[string]any{}
	}
	if _, found, err := unstructured.NestedFieldNoCopy(*content, path...); found || err != nil {
		return errors.New("the field, or one above or below it, is set already")
	}
	return unstructured.SetNestedField(*content, value, path...)
}

// appendTo a list.
func appendTo(content *map[string]any, item string, path ...string) error {
	all, found, err := unstructured.NestedSlice(*content, path...)
	if !found && err == nil {
		return set(content, []any{item}, path...)
	}
	return errors.Join(err, unstructured.SetNestedSlice(*content, append(all, item), path...))
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
