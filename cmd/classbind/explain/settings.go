package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/near"
)

// newSettings reads all --set, each PATH=VALUE, and returns all errors at once.
func newSettings(texts []string) (world.Settings, error) {
	s := world.Settings{Related: map[string]map[string]any{}}
	var errs []error
	for _, text := range texts {
		if err := addSetting(&s, text); err != nil {
			errs = append(errs, fmt.Errorf("--set=%q: %w", text, err))
		}
	}
	return s, errors.Join(errs...)
}

func addSetting(s *world.Settings, text string) error {
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
	case names[0] == "namespace" && (field == "labels" || field == "annotations"):
		return set(&s.Namespace, value, "metadata", field, key)
	case names[0] == expression.Request && field == user && (key == "username" || key == "uid"):
		return set(&s.Request, value, user, key)
	case names[0] == expression.Request && field == user && key == "groups":
		return appendTo(&s.Request, value, user, key)
	case names[0] == expression.Request && field == user && names[2] == "extra" && len(names) > 3:
		return appendTo(&s.Request, value, user, names[2], strings.Join(names[3:], "."))
	case names[0] == expression.Related:
		content := s.Related[field]
		err := set(&content, typed(value), names[2:]...)
		s.Related[field] = content
		return err
	}
	return malformed
}

// undeclared is an error for an object that no registration relates.
func undeclared(s *world.Settings, w *world.World) error {
	known := sets.New[string]()
	for i := range w.ClaimKinds {
		for _, related := range w.ClaimKinds[i].Spec.Classes.Related {
			if related.Selector == nil { // A list is not one object.
				known.Insert(related.Name)
			}
		}
	}
	if unknown := sets.List(sets.KeySet(s.Related).Difference(known)); len(unknown) > 0 {
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
