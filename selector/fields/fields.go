package fields

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ErrNotObject is for a value that is no object.
var ErrNotObject = errors.New("must be an object")

// DecodeValid reads an object from valid JSON as far as the plan asks for it. Of several fields of one name, which no API server sends,
// the first counts: so a thousand of them cost no more memory than one. For invalid JSON, its result means nothing.
func (r *Plan) DecodeValid(raw []byte) (map[string]any, error) {
	s := scan{json: raw}
	object, ok := s.read(r).(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	return object, nil
}

// Raw returns the value at a path, as it stands in valid JSON; nil if it is not there.
func (p Path) Raw(json []byte) jsontext.Value {
	s := scan{json: json}
	for _, name := range p {
		if s.next() != '{' || !s.find(name) {
			return nil
		}
	}
	return s.value()
}

// ReadWhole reads a whole value from valid JSON, down to a depth.
func ReadWhole(json []byte, depth int) any {
	s := scan{json: json}
	return s.readAll(1, depth)
}

// read a value as util/json does, as far as the plan asks for it.
func (s *scan) read(r *Plan) any {
	kind := s.next()
	switch {
	case r.as == AsWhole:
		whole := s.value()
		if int64(len(whole)) > r.maxBytes {
			return Unread{Length: len(whole)}
		}
		return ReadWhole(whole, cmp.Or(r.depth, MaxSelectorDepth))
	case kind == '{' && r.fields != nil:
		return s.readObject(r)
	case kind == '{', kind == '[', r.as < AsScalar && kind != 'n':
		return Unread{Length: len(s.value())}
	}
	return readScalar(s.value(), r.maxBytes)
}

func (s *scan) readObject(r *Plan) map[string]any {
	object := map[string]any{}
	for more := s.begin(); more; more = s.more() {
		field := r.field(s.plainName())
		if field == nil {
			s.value()
			if r.MarksOthers {
				object[OtherFields] = Unread{}
			}
			continue
		}
		if _, isRead := object[field.name]; isRead {
			s.value()
		} else {
			object[field.name] = s.read(field)
		}
	}
	return object
}

// EachName visits the names of an object's fields, each valid until the next, in valid JSON. Of anything else, there are none.
func EachName(json []byte, visit func(name []byte)) {
	s := scan{json: json}
	if s.next() != '{' {
		return
	}
	for more := s.begin(); more; more = s.more() {
		visit(s.plainName())
		s.value()
	}
}

// find the value of a field of an object, and report whether it is there.
func (s *scan) find(name string) bool {
	for more := s.begin(); more; more = s.more() {
		if string(s.plainName()) == name {
			return true
		}
		s.value()
	}
	return false
}

func lengthOf(n int) uint64 { return 1 << min(n, 63) }

// plainName reads a name and its colon, without quotes and escapes. It is valid until the next.
func (s *scan) plainName() []byte {
	name, isEscaped := s.fieldName()
	if !isEscaped {
		return name[1 : len(name)-1]
	}
	s.unescaped, _ = jsontext.AppendUnquote(s.unescaped[:0], name) // It is valid.
	return s.unescaped
}

// readScalar reads a scalar of at most maxBytes.
func readScalar(value jsontext.Value, maxBytes int64) any {
	switch kind := value.Kind(); {
	case kind == jsontext.KindNull:
		return nil
	case int64(len(value)) > maxBytes && kind == jsontext.KindString:
		return LongText{Length: len(value)}
	case int64(len(value)) > maxBytes:
		return Unread{Length: len(value)}
	case kind == jsontext.KindString:
		return unquoted(value)
	case kind == jsontext.KindNumber:
		return readNumber(string(value))
	default:
		return kind == jsontext.KindTrue
	}
}

// unquoted is the text of a JSON string.
func unquoted(quoted jsontext.Value) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // It is valid.
	return string(text)
}

// readNumber as util/json does. A number that is too large for that is unread: it has no use.
func readNumber(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return Unread{Length: len(text)}
}

const (
	// MaxSelectorDepth is the level of a selector's values, in matchExpressions. A list or
	// an object below is wrong, and need not be read to say so.
	MaxSelectorDepth = 4
	// MaxExpressionDepth is that of a field that expressions look at.
	MaxExpressionDepth = 32
)

// readAll reads a whole value, which is at this level, down to a depth.
func (s *scan) readAll(level, depth int) any {
	switch kind := s.next(); {
	case kind == '{' && level < depth:
		object := map[string]any{}
		for more := s.begin(); more; more = s.more() {
			name, _ := s.fieldName()
			object[unquoted(name)] = s.readAll(level+1, depth)
		}
		return object
	case kind == '[' && level <= depth:
		array := []any{}
		for more := s.begin(); more; more = s.more() {
			array = append(array, s.readAll(level+1, depth))
		}
		return array
	case kind == '{', kind == '[':
		s.value()
		return Unread{}
	}
	return readScalar(s.value(), math.MaxInt64) // The whole is not too long.
}

// scan goes through valid JSON and reads little of it: it looks only for the end of a value. Package jsontext would prove again that
// all of it is valid, which takes several times as long. For invalid JSON, the results mean nothing, but scan ends.
type scan struct {
	json []byte
	at   int
	// unescaped is a buffer for a name.
	unescaped []byte
}

// next skips space, and returns the byte that follows, 0 at the end.
func (s *scan) next() byte {
	for ; s.at < len(s.json); s.at++ {
		switch c := s.json[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// begin an object or an array, and report whether it has anything in it.
func (s *scan) begin() bool {
	s.at++
	return s.notClosed()
}

// more reports whether an object or an array has another element, after one was read.
func (s *scan) more() bool {
	if s.next() == ',' {
		s.at++
		return true
	}
	return s.notClosed()
}

func (s *scan) notClosed() bool {
	switch s.next() {
	case '}', ']':
		s.at++
		return false
	case 0:
		return false
	}
	return true
}

// fieldName reads a name and its colon. The name has its quotes, and maybe escapes.
func (s *scan) fieldName() (quoted []byte, isEscaped bool) {
	s.next()
	begin := s.at
	isEscaped = s.text()
	quoted = s.json[begin:s.at]
	if s.next() == ':' {
		s.at++
	}
	if len(quoted) < 2 {
		return []byte(`""`), false
	}
	return quoted, isEscaped
}

// text skips a string.
func (s *scan) text() (isEscaped bool) {
	json, at := s.json, s.at+1
	for at < len(json) && json[at] != '"' {
		if json[at] == '\\' {
			isEscaped = true
			at++
		}
		at++
	}
	s.at = min(at+1, len(json))
	return isEscaped
}

// value skips a value, and returns it.
func (s *scan) value() []byte {
	kind := s.next()
	begin := s.at
	switch kind {
	case '"':
		s.text()
	case '{', '[':
		s.nested()
	default:
		s.literal()
	}
	return s.json[begin:s.at]
}

// nested skips an object or an array.
func (s *scan) nested() {
	for depth := 0; s.at < len(s.json); {
		switch s.json[s.at] {
		case '"':
			s.text()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return
		}
	}
}

// literal skips a number, true, false or null.
func (s *scan) literal() {
	for ; s.at < len(s.json); s.at++ {
		switch s.json[s.at] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
	}
}

// The forms in which a value may be read.
const (
	asParent As = iota // only fields of it
	AsSet              // only whether it is null
	AsScalar           // a text, a number or a boolean
	AsWhole            // all of it, unless it is too long
)

// Lookup returns the value at the path, nil if it is null or absent. It fails if something on the way is not an object.
func (p Path) Lookup(object map[string]any) (any, *field.Error) {
	for i, name := range p[:len(p)-1] {
		switch v := object[name].(type) {
		case map[string]any:
			object = v
		case nil:
			return nil, nil
		default:
			return nil, field.TypeInvalid(p[:i+1].Field(), field.OmitValueType{}, "must be an object")
		}
	}
	return object[p[len(p)-1]], nil
}

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

// Reads reports whether the plan asks for the value at a path.
func (r *Plan) Reads(p Path) bool {
	for _, name := range p {
		if r == nil || r.as == AsWhole {
			break
		}
		r = r.fields[name]
	}
	return r != nil
}

// field of that name, nil if it is not read. Most names are of a length that no field has, and need no look into the map.
func (r *Plan) field(name []byte) *Plan {
	if r.lengths&lengthOf(len(name)) == 0 {
		return nil
	}
	return r.fields[string(name)]
}
