package explain

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/deploy/crd"
)

// setDefaults of a registration as the API server does, from the CRD itself, and
// refuse the values that it would refuse because they are none of an enum's.
func setDefaults(gvk schema.GroupVersionKind, object map[string]any) error {
	plural := strings.ToLower(gvk.Kind) + "s"
	text, err := crd.Files.ReadFile(gvk.Group + "_" + plural + ".yaml")
	if err != nil {
		return fmt.Errorf("cannot find the CRD of %s: %w", gvk.GroupKind(), err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return fmt.Errorf("cannot read the CRD of %s: %w", gvk.GroupKind(), err)
	}
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	for _, v := range versions {
		if v, _ := v.(map[string]any); v["name"] == gvk.Version {
			spec, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
			return setSchemaDefaults(spec, object, "")
		}
	}
	return fmt.Errorf("apiVersion %q is not served", gvk.GroupVersion())
}

func setSchemaDefaults(of map[string]any, value any, at string) error {
	if allowed, ok := of["enum"].([]any); ok && !slices.Contains(allowed, value) {
		return fmt.Errorf("%s: %q: must be one of %q", strings.TrimPrefix(at, "."), value, allowed)
	}
	switch value := value.(type) {
	case map[string]any:
		properties, _ := of["properties"].(map[string]any)
		for name, property := range properties {
			property, _ := property.(map[string]any)
			// A null is as good as nothing: no field is nullable.
			if def, ok := property["default"]; ok && value[name] == nil {
				value[name] = runtime.DeepCopyJSONValue(def)
			}
			if child, ok := value[name]; ok {
				if err := setSchemaDefaults(property, child, at+"."+name); err != nil {
					return err
				}
			}
		}
	case []any:
		items, _ := of["items"].(map[string]any)
		for i, item := range value {
			if err := setSchemaDefaults(items, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
