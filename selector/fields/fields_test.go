package fields

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzScan proves that a scan finds what encoding/json finds, and always ends.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		``, ` `, `"`, `"\`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `[`, `[,`, `[[`, `]`, `{]`, `}`, `,`, `:`, `{a`, `[1 2`, `{"a" "b"}`, "\x00", "[\x00]",
		`null`, ` true `, `-1.5e+10`, `"a"`, `"\"\\"`, `"\u0022"`, `"[{"`, `[]`, `{}`, `[ ]`, `{ }`, `[{},[],"]",1 , null]`, `[[[[[1]]]],2]`,
		`{"a":{"b":["c",{"d\"":"}"}]},"a":2,"\u0061b" : [ 1,2 ] , "":{ } }`, "\t[\r\n1 ,\n2\t]\n",
	} {
		f.Add([]byte(text))
	}
	plan := &Plan{}
	plan.Add(Path{"a", "b"}, AsScalar, 100)
	plan.Add(Path{"a", "c"}, AsWhole, 100)
	plan.Add(Path{"d"}, AsSet, 0)
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole := scan{json: raw}
		value := whole.value()
		part := scan{json: raw}
		got := walk(&part)
		_, _ = plan.DecodeValid(raw) // It does not panic.

		from := json.NewDecoder(bytes.NewReader(raw))
		from.UseNumber()
		var want any
		if !json.Valid(raw) || from.Decode(&want) != nil {
			return
		}
		assert.Equal(t, string(bytes.Trim(raw, " \t\r\n")), string(value), "We should find the end of a value.")
		assert.Equal(t, whole.at, part.at, "We should find the end of a value by what is in it.")
		assert.Equal(t, want, got, "We should find what is in a value.")
	})
}

// walk through a value with all methods of a scan.
func walk(s *scan) any {
	switch s.next() {
	case '{':
		object := map[string]any{}
		for more := s.begin(); more; more = s.more() {
			quoted, isEscaped := s.fieldName()
			if !isEscaped && bytes.IndexByte(quoted, '\\') >= 0 {
				return "an escape that was not seen"
			}
			object[plainly(quoted)] = walk(s)
		}
		return object
	case '[':
		array := []any{}
		for more := s.begin(); more; more = s.more() {
			array = append(array, walk(s))
		}
		return array
	}
	value := s.value()
	if len(value) == 0 || value[0] == '"' {
		return plainly(value)
	}
	var scalar any
	from := json.NewDecoder(bytes.NewReader(value))
	from.UseNumber()
	_ = from.Decode(&scalar)
	return scalar
}

func plainly(quoted []byte) (text string) {
	_ = json.Unmarshal(quoted, &text)
	return text
}

func TestPointer(t *testing.T) {
	assert.Equal(t, "/a~1b/c~0d/~01", Path{"a/b", "c~d", "~1"}.Pointer(), "We should escape as RFC 6901 says.")
}
