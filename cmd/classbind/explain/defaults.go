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

// setDefaults fills in the defaults of a registration from its CRD, as the API server
// does, and refuses values that are not in an enum.
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

func setSchemaDefaults(jsonSchema map[string]any, value any, path string) error {
	if allowed, ok := jsonSchema["enum"].([]any); ok && !slices.Contains(allowed, value) {
		return fmt.Errorf("%s: %q: must be one of %q", strings.TrimPrefix(path, "."), value, allowed)
	}
	switch value := value.(type) {
	case map[string]any:
		properties, _ := jsonSchema["properties"].(map[string]any)
		for name, property := range properties {
			property, _ := property.(map[string]any)
			// A null counts as absent: no field is nullable.
			if def, ok := property["default"]; ok && value[name] == nil {
				value[name] = runtime.DeepCopyJSONValue(def)
			}
			if child, ok := value[name]; ok {
				if err := setSchemaDefaults(property, child, path+"."+name); err != nil {
					return err
				}
			}
		}
	case []any:
		items, _ := jsonSchema["items"].(map[string]any)
		for i, item := range value {
			if err := setSchemaDefaults(items, item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
