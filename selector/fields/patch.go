package fields

import (
	"github.com/go-json-experiment/json/jsontext"
)

// AppendText appends a JSON string. It replaces invalid UTF-8, as encoding/json does.
func AppendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// Operation of a JSON Patch. The path is in RFC 6901 form, and consists of names of fields
// and of keys of labels and annotations, which need no escaping for JSON.
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
	return Operation{"test", path, AppendText(nil, value)}
}

// Add a value, or replace the one that is there.
func Add(path string, value jsontext.Value) Operation { return Operation{"add", path, value} }

// Remove a field.
func Remove(path string) Operation { return Operation{"remove", path, jsontext.Value("null")} }
