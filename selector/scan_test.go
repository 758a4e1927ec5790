package selector

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	f.Fuzz(func(t *testing.T, raw []byte) {
		whole := scan{json: raw}
		value := whole.value()
		part := scan{json: raw}
		got := walk(&part)
		_, _ = NewClaimKind(postgres()).DecodeValid(raw) // It does not panic.

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

// A field that a claim repeats is made once.
func TestRepetitionsAreMadeOnce(t *testing.T) {
	for name, one := range map[string]string{
		"Objects":   `"spec":{"classRef":{"name":1}},"spec":1`,
		"Selectors": `"spec":{"classSelector":{"matchExpressions":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}`,
		"Names":     `"\u0061":0`,
	} {
		raw := []byte(`{` + one + string(bytes.Repeat([]byte(","+one), 10_000)) + `}`)
		kind := NewClaimKind(postgres())
		_, err := kind.DecodeValid(raw)
		require.NoError(t, err)
		allocs := testing.AllocsPerRun(1, func() { _, _ = kind.DecodeValid(raw) })
		assert.Less(t, allocs, 100.0, "We should allocate little for %s.", name)
	}
}
