package selector

import "strings"

// Operation of a JSON Patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Parents counts how many of the fields that lead to the reference a claim has.
func (k *ClaimKind) Parents(object map[string]any) int {
	for i, name := range k.classRef[:len(k.classRef)-1] {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(k.classRef) - 1
}

// AddReference to a class, and whatever parents of it are missing in a claim
// that has so many of them. The names in the path are those of fields and need
// no escaping (RFC 6901).
func (k *ClaimKind) AddReference(parents int, c *Class) Operation {
	value := k.Reference(c)
	for i := len(k.classRef) - 1; i > parents; i-- {
		value = map[string]any{k.classRef[i]: value}
	}
	return Operation{Op: "add", Path: "/" + strings.Join(k.classRef[:parents+1], "/"), Value: value}
}
