package setdefault

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/selector/inventory"
)

// storedClass is a class as the API server stores it.
type storedClass struct {
	*inventory.Class
	object *unstructured.Unstructured
}

func newStoredClass(kind *inventory.ClassKind, object *unstructured.Unstructured) *storedClass {
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

// mark has a value for each place where a class may be marked as the default, nil for none. An empty one says that the class is not.
type mark []any

// defaultMark is the mark of a class that becomes the default.
func (c *storedClass) defaultMark() mark {
	if c.Kind.DefaultMark.Path != "" {
		return mark{true}
	}
	return mark{"true"}
}

// mark returns the present mark of the class.
func (c *storedClass) mark() (present mark) {
	for _, place := range c.Kind.DefaultMark.Places() {
		value, _, _ := unstructured.NestedFieldCopy(c.object.Object, place.Names()...)
		present = append(present, value)
	}
	return present
}

// set the mark in a merge patch. An empty mark removes what is in any place, and another leaves the places alone that it does not have.
func (c *storedClass) set(patch map[string]any, to mark) error {
	places := c.Kind.DefaultMark.Places()
	if len(to) == 0 {
		to = make(mark, len(places))
	}
	for i, value := range to {
		if err := unstructured.SetNestedField(patch, value, places[i].Names()...); err != nil {
			return fmt.Errorf("cannot make a patch of %s: %w", c, err)
		}
	}
	return nil
}

// markPatch returns a merge patch that sets the mark of the class, at the version that was read.
func (c *storedClass) markPatch(to mark) ([]byte, error) {
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": c.object.GetResourceVersion()}}
	if err := c.set(patch, to); err != nil {
		return nil, err
	}
	return json.Marshal(patch)
}

// markCommand is the kubectl command that marks the class as default.
func (c *storedClass) markCommand() string {
	patch := map[string]any{}
	_ = c.set(patch, c.defaultMark()) // It cannot fail on an empty map.
	text, _ := json.Marshal(patch)
	return fmt.Sprintf("kubectl patch %s --type merge --patch '%s'", c.Arguments(), text)
}
