package setdefault

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// storedClass is a class as the API server stores it.
type storedClass struct {
	*selector.Class
	object *unstructured.Unstructured
}

func newStoredClass(kind *selector.ClassKind, object *unstructured.Unstructured) *storedClass {
	return &storedClass{Class: kind.NewClass(object, object.Object), object: object}
}

// String returns RESOURCE/NAME, as kubectl takes it, or RESOURCE/NAMESPACE/NAME. It
// distinguishes kinds with one name in several groups; Class does not.
func (c *storedClass) String() string {
	return className{kind: c.Kind.Name, namespace: c.Namespace, name: c.Name}.String()
}

func (c *storedClass) serves(claimKind string) bool {
	return slices.Contains(c.Kind.ClaimKinds, claimKind)
}

// claimKinds returns the claim kinds that the class serves, sorted.
func (c *storedClass) claimKinds() []string { return slices.Sorted(slices.Values(c.Kind.ClaimKinds)) }

// markPath is the path of the default mark.
func (c *storedClass) markPath() []string {
	return v1alpha1.Place{Path: c.Kind.DefaultMark.Path, Annotation: c.Kind.DefaultMark.Annotation}.Names()
}

// markValue is the value of the mark of a default class.
func (c *storedClass) markValue() any {
	if c.Kind.DefaultMark.Path != "" {
		return true
	}
	return "true"
}

// mark returns the present mark of the class, nil if it has none.
func (c *storedClass) mark() any {
	value, _, _ := unstructured.NestedFieldCopy(c.object.Object, c.markPath()...)
	return value
}

// markPatch returns a merge patch that sets the mark of the class, at the version
// that was read; nil removes it.
func (c *storedClass) markPatch(mark any) ([]byte, error) {
	patch := map[string]any{}
	err := errors.Join(unstructured.SetNestedField(patch, mark, c.markPath()...),
		unstructured.SetNestedField(patch, c.object.GetResourceVersion(), "metadata", "resourceVersion"))
	if err != nil {
		return nil, fmt.Errorf("cannot make a patch of %s: %w", c, err)
	}
	return json.Marshal(patch)
}

// markCommand is the kubectl command that marks the class as default.
func (c *storedClass) markCommand() string {
	patch := map[string]any{}
	_ = unstructured.SetNestedField(patch, c.markValue(), c.markPath()...) // It cannot fail on an empty map.
	text, _ := json.Marshal(patch)
	return fmt.Sprintf("kubectl patch %s --type merge --patch '%s'", c.Arguments(), text)
}
