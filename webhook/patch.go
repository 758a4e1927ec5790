package webhook

import (
	"encoding/json"
	"strings"
)

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// addPatch is a JSON Patch (RFC 6902) of one operation, which adds the value
// at the path and whatever parents are missing. The names in the path are
// those of fields and need no escaping (RFC 6901).
func addPatch(object map[string]any, path []string, value any) ([]byte, error) {
	depth := 1
	for ; depth < len(path); depth++ {
		child, ok := object[path[depth-1]].(map[string]any)
		if !ok {
			break
		}
		object = child
	}
	for i := len(path) - 1; i >= depth; i-- {
		value = map[string]any{path[i]: value}
	}
	return json.Marshal([]operation{{Op: "add", Path: "/" + strings.Join(path[:depth], "/"), Value: value}})
}
