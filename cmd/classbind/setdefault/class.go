package setdefault

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/selector"
)

// storedClass is a class as the API server has it.
type storedClass struct {
	*selector.Class
	object *unstructured.Unstructured
}

func newStoredClass(kind *selector.ClassKind, object *unstructured.Unstructured) *storedClass {
	return &storedClass{Class: kind.NewClass(object, object.Object), object: object}
}

// String is RESOURCE/NAME as kubectl takes it, or RESOURCE/NAMESPACE/NAME. It
// tells kinds of one name in several groups apart, which Class does not.
func (c *storedClass) String() string {
	return className{kind: c.Kind.Name, namespace: c.Namespace, name: c.Name}.String()
}

func (c *storedClass) serves(claimKind string) bool {
	return slices.Contains(c.Kind.ClaimKinds, claimKind)
}

// claimKinds that the class serves, in the order of their names.
func (c *storedClass) claimKinds() []string { return slices.Sorted(slices.Values(c.Kind.ClaimKinds)) }

// markPath is where a class has its mark.
func (c *storedClass) markPath() []string {
	if p := c.Kind.DefaultMark.Path; p != "" {
		return p.Names()
	}
	return []string{"metadata", "annotations", c.Kind.DefaultMark.Annotation}
}

// marked is the value that marks a class.
func (c *storedClass) marked() any {
	if c.Kind.DefaultMark.Path != "" {
		return true
	}
	return "true"
}

// mark that the class has, nil if none.
func (c *storedClass) mark() any {
	value, _, _ := unstructured.NestedFieldCopy(c.object.Object, c.markPath()...)
	return value
}

// markPatch is a merge patch that gives the class, at the version that was
// read, a mark; nil takes it away.
func (c *storedClass) markPatch(mark any) ([]byte, error) {
	patch := map[string]any{}
	if err := unstructured.SetNestedField(patch, mark, c.markPath()...); err != nil {
		return nil, fmt.Errorf("cannot make a patch of %s: %w", c, err)
	}
	if err := unstructured.SetNestedField(patch, c.object.GetResourceVersion(), "metadata", "resourceVersion"); err != nil {
		return nil, fmt.Errorf("cannot make a patch of %s: %w", c, err)
	}
	return json.Marshal(patch)
}

// annotateCommand is kubectl's for an annotation, such as key=value, or key- to take it away.
func (c *storedClass) annotateCommand(annotation string) string {
	return fmt.Sprintf("kubectl annotate %s %s", c.kubectlArgs(), annotation)
}

// markCommand is kubectl's to give the class its mark.
func (c *storedClass) markCommand() string {
	mark := c.Kind.DefaultMark
	if mark.Path == "" {
		return c.annotateCommand(mark.Annotation + "=true --overwrite")
	}
	patch := map[string]any{}
	_ = unstructured.SetNestedField(patch, c.marked(), c.markPath()...) // It is empty, so nothing is in the way.
	text, _ := json.Marshal(patch)
	return fmt.Sprintf("kubectl patch %s --type merge --patch '%s'", c.kubectlArgs(), text)
}

func (c *storedClass) kubectlArgs() string {
	if c.Namespace == "" {
		return c.Kind.Name + " " + c.Name
	}
	return c.Kind.Name + " " + c.Name + " --namespace " + c.Namespace
}
