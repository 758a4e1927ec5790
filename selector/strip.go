package selector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// Strip removes from a class all that NewClass does not read, and cuts what is longer
// than it reads. NewClass then returns the same.
func (k *ClassKind) Strip(object metav1.Object) {
	annotations := map[string]string{}
	for _, key := range []string{k.isDefault.annotation, k.weight.annotation, v1alpha1.CordonedAnnotation} {
		if value, ok := object.GetAnnotations()[key]; ok {
			annotations[key] = cut(value)
		}
	}
	for key, value := range object.GetAnnotations() {
		if k.reads.Covers(expression.Path{"metadata", "annotations", key}) {
			annotations[key] = value
		}
	}
	labels := object.GetLabels()
	if len(labels) > v1alpha1.MaxClassLabels {
		few := map[string]string{}
		for key, value := range labels {
			if k.reads.Covers(expression.Path{"metadata", "labels", key}) {
				few[key] = value
			}
		}
		for key, value := range labels {
			if len(few) > v1alpha1.MaxClassLabels {
				break
			}
			few[key] = value
		}
		labels = few
	}
	if u, ok := object.(runtime.Unstructured); ok {
		k.stripContent(u)
	}
	object.SetAnnotations(annotations)
	object.SetLabels(labels)
	object.SetManagedFields(nil)
	object.SetOwnerReferences(nil)
	object.SetFinalizers(nil)
}

// stripContent keeps only the metadata and the fields at the paths of the kind.
func (k *ClassKind) stripContent(u runtime.Unstructured) {
	content := u.UnstructuredContent()
	stripped := map[string]any{}
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		if value, ok := content[key]; ok {
			stripped[key] = value
		}
	}
	paths := []path{k.isDefault.path, k.weight.path}
	// A path into another field comes after the path to that field.
	slices.SortFunc(paths, func(a, b path) int { return len(a) - len(b) })
	for _, p := range paths {
		if p == nil || p[0] == "metadata" {
			continue
		}
		if value, _ := p.lookup(content); value != nil {
			set(stripped, p, shallow(value))
		}
	}
	for _, p := range k.reads.Paths() {
		if p[0] == "metadata" || p[0] == "apiVersion" || p[0] == "kind" {
			continue
		}
		copyField(stripped, content, path(p))
	}
	u.SetUnstructuredContent(stripped)
}

// set the value at a path whose parents are objects or absent.
func set(object map[string]any, p path, value any) {
	for _, name := range p[:len(p)-1] {
		child, ok := object[name].(map[string]any)
		if !ok {
			child = map[string]any{}
			object[name] = child
		}
		object = child
	}
	object[p[len(p)-1]] = value
}

// shallow is a value without its contents: no weight or mark is an object or a list.
func shallow(value any) any {
	switch v := value.(type) {
	case string:
		return cut(v)
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	default:
		return v
	}
}

// cut a text that is too long to one that still is.
func cut(text string) string {
	return text[:min(len(text), v1alpha1.MaxShownBytes+1)]
}
