package selector

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Operation of a JSON Patch. The path consists of names of fields, which need no
// escaping, neither for JSON nor for RFC 6901.
type Operation struct {
	op, path string
	value    jsontext.Value
}

// Patch is a JSON Patch (RFC 6902).
func Patch(operations ...Operation) []byte {
	b := append(make([]byte, 0, 256), '[')
	for i, o := range operations {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"op":"`...)
		b = append(b, o.op...)
		b = append(b, `","path":"`...)
		b = append(b, o.path...)
		b = append(b, `","value":`...)
		b = append(b, o.value...)
		b = append(b, '}')
	}
	return append(b, ']')
}

// Test that a field still has this value.
func Test(path, value string) Operation {
	return Operation{op: "test", path: path, value: appendText(nil, value)}
}

// parents counts the fields on the path to the reference that a claim has.
func (k *ClaimKind) parents(object map[string]any) int {
	for i, name := range k.classRef[:len(k.classRef)-1] {
		child, ok := object[name].(map[string]any)
		if !ok {
			return i
		}
		object = child
	}
	return len(k.classRef) - 1
}

// AddReference adds a reference to a class, and its missing parents; parents is how
// many the claim has.
func (k *ClaimKind) AddReference(parents int, c *Class) Operation {
	value := k.Reference(c)
	for i := len(k.classRef) - 1; i > parents; i-- {
		value = fmt.Appendf(nil, `{"%s":%s}`, k.classRef[i], value)
	}
	return Operation{op: "add", path: "/" + strings.Join(k.classRef[:parents+1], "/"), value: value}
}
