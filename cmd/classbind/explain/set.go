package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/near"
)

// settings are what --set says of what expressions look at besides the claim and the classes.
type settings struct {
	// namespace is the content of the claim's Namespace, request that of who asks, and related
	// those of objects by their names in expressions. What is not set is nil.
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
	path, value, ok := strings.Cut(text, "=")
	names := fieldNames(path)
	switch {
	case !ok:
		return errors.New("must be PATH=VALUE, such as namespace.labels.tenant=a")
	case slices.Contains(names, ""):
		return errors.New("the path has an empty name: write one dot between names, and \\. in a name")
	}
	switch names[0] {
	case expression.Namespace:
		return s.addNamespace(names[1:], value)
	case expression.Request:
		return s.addRequest(names[1:], value)
	case expression.Related:
		return s.addRelated(names[1:], value)
	case expression.Claim:
		return errors.New("a claim is as its file says: change that")
	case expression.Class:
		return errors.New("a class is as its file says: put another on top of the cluster's with --with")
	}
	roots := []string{expression.Namespace, expression.Request, expression.Related}
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

func (s *settings) addRelated(names []string, value string) error {
	if len(names) < 2 {
		return errors.New("must name a field of the object, such as related.plan.spec.tier=gold")
	}
	content := s.related[names[0]]
	if err := set(&content, typed(value), names[1:]...); err != nil {
		return err
	}
	s.related[names[0]] = content
	return nil
}

// undeclared is an error for an object that no registration relates.
func (s *settings) undeclared(r *registrations) error {
	known := map[string]bool{}
	for i := range r.claimKinds {
		for _, related := range r.claimKinds[i].Spec.Classes.Related {
			known[related.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.related)) {
		if known[name] {
			continue
		}
		err := fmt.Errorf("--set: no ClaimKind has a related object %q", name)
		if len(known) > 0 {
			all := slices.Sorted(maps.Keys(known))
			err = fmt.Errorf("%w, but %s%s", err, strings.Join(all, ", "), near.Meant(name, all))
		}
		return err
	}
	return nil
}

// fieldNames of a path. A dot in a name is written \.
func fieldNames(path string) []string {
	const dot = "\x00" // No argument of a command has it.
	names := strings.Split(strings.ReplaceAll(path, `\.`, dot), ".")
	for n := range names {
		names[n] = strings.ReplaceAll(names[n], dot, ".")
	}
	return names
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

// typed is a value as JSON has it: a number, true, false, null, a text in quotation marks, or a list. Any other
// is a text.
func typed(value string) (decoded any) {
	if err := json.Unmarshal([]byte(value), &decoded); err != nil { // It decodes integers like the API server.
		return value
	}
	if _, object := decoded.(map[string]any); object {
		return value
	}
	return decoded
}
