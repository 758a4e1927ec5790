package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/selector"
)

// schemaOfOpenAPI returns the schema of a kind from an OpenAPI v3 document. That of a CRD is there as the
// CRD has it, its rules included, but refers to the schema of metadata. That of any other kind refers
// to others, too; only the fields count there, because its values are checked in Go.
func schemaOfOpenAPI(document []byte, kind schema.GroupVersionKind) (*objectSchema, error) {
	paths, err := selector.SchemaOfOpenAPI(document, kind)
	if err != nil {
		return nil, err
	}
	in := &inliner{shared: paths.Shared, left: maxInlined}
	text, err := json.Marshal(in.inline(paths.Root(), nil))
	if err != nil {
		return nil, fmt.Errorf("cannot write the schema: %w", err)
	}
	root := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal(text, root); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	s, err := newObjectSchema(root)
	if err != nil {
		return nil, err
	}
	s.paths = paths
	if in.refers {
		s.values, s.rules = nil, nil
	}
	return s, nil
}

// maxInlined limits the fields of schemas that are put in the place of references, which may double with
// each level. Beyond it, nothing is known of a field.
const maxInlined = 20_000

// objectMetaRef is the reference of every CRD's schema.
const objectMetaRef = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// inliner puts schemas in the place of references to them.
type inliner struct {
	shared func(ref string) json.RawMessage
	left   int
	// refers says that there was a reference that no CRD has.
	refers bool
}

// anything is the schema of a value of which nothing is known.
func anything() map[string]any { return map[string]any{"x-kubernetes-preserve-unknown-fields": true} }

// inline a schema. within are the references that led to it: they may be a circle.
func (n *inliner) inline(raw json.RawMessage, within []string) map[string]any {
	var node map[string]any
	if utiljson.Unmarshal(raw, &node) != nil { // It keeps integers.
		return anything()
	}
	return n.inlineNode(node, within)
}

func (n *inliner) inlineNode(node map[string]any, within []string) map[string]any {
	if len(within) > 0 {
		n.left--
	}
	if all, _ := node["allOf"].([]any); len(all) == 1 { // The API server wraps a reference to add a description or a default.
		if only, _ := all[0].(map[string]any); only["$ref"] != nil {
			node = only
		}
	}
	ref, refers := node["$ref"].(string)
	properties, _ := node["properties"].(map[string]any)
	items, _ := node["items"].(map[string]any)
	additional, _ := node["additionalProperties"].(map[string]any)
	switch {
	case n.left < 0, ref == objectMetaRef:
		return anything()
	case refers:
		n.refers = true
		shared := n.shared(ref)
		if shared == nil || slices.Contains(within, ref) {
			return anything()
		}
		return n.inline(shared, append(slices.Clip(within), ref))
	case len(within) > 0 && properties == nil && items == nil && additional == nil:
		return anything() // Such as RawExtension, which stands for any object.
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) { // The limit is the same each time.
		property, _ := properties[name].(map[string]any)
		properties[name] = n.inlineNode(property, within)
	}
	if items != nil {
		node["items"] = n.inlineNode(items, within)
	}
	if additional != nil {
		node["additionalProperties"] = n.inlineNode(additional, within)
	}
	return node
}
