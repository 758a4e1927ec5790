package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// objectSchema is a part of an OpenAPI schema, as a CRD or the API server has it.
type objectSchema struct {
	node map[string]any
	// components are the schemas that others refer to by name; a CRD has none.
	components map[string]any
}

// maxReferences is how many references are followed to one schema: they may be a circle.
const maxReferences = 8

// resolve follows references. named says that there was one.
func (s objectSchema) resolve() (node map[string]any, named bool) {
	node = s.node
	for range maxReferences {
		if all, _ := node["allOf"].([]any); len(all) == 1 {
			// The API server wraps a reference to add a description or a default.
			if only, _ := all[0].(map[string]any); only["$ref"] != nil {
				node = only
			}
		}
		ref, ok := node["$ref"].(string)
		if !ok {
			break
		}
		node, _ = s.components[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		named = true
	}
	return node, named
}

// unknownFields returns the fields of an object that the API server would not store, at most a few.
func (s *objectSchema) unknownFields(object map[string]any) []FieldError {
	var unknown []FieldError
	s.walk(object, "", true, func(path string, properties map[string]any) {
		if len(unknown) < maxRows {
			unknown = append(unknown, FieldError{Field: path, Reason: "FieldUnknown", Message: noSuchField(path, properties)})
		}
	})
	return unknown
}

func noSuchField(path string, properties map[string]any) string {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i+1], path[i+1:]
	}
	if property := nearest(name, maps.Keys(properties)); property != "" {
		return fmt.Sprintf("the schema has no such field: did you mean %s%s?", parent, property)
	}
	return "the schema has no such field, and the API server does not store it: correct or remove it"
}

// walk calls unknown for each field that is in no schema, with those that are in the place of it.
// whole says that the value is an object with an apiVersion, a kind and metadata.
func (s objectSchema) walk(value any, path string, whole bool, unknown func(path string, properties map[string]any)) {
	node, named := s.resolve()
	child := func(of any) objectSchema {
		node, _ := of.(map[string]any)
		return objectSchema{node: node, components: s.components}
	}
	switch value := value.(type) {
	case map[string]any:
		properties, _ := node["properties"].(map[string]any)
		additional, open := node["additionalProperties"]
		// A named schema without properties, such as RawExtension, stands for any object.
		open = open || node["x-kubernetes-preserve-unknown-fields"] == true || named && properties == nil || node == nil
		whole = whole || node["x-kubernetes-embedded-resource"] == true
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			property, known := properties[name]
			switch {
			case whole && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name):
			case known:
				child(property).walk(value[name], at, false, unknown)
			case !open:
				unknown(at, properties)
			case additional != nil:
				child(additional).walk(value[name], at, false, unknown)
			}
		}
	case []any:
		for i, item := range value {
			child(node["items"]).walk(item, fmt.Sprintf("%s[%d]", path, i), false, unknown)
		}
	}
}
