package selector

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// fieldReader reads a value. A field that is there a thousand times costs no more memory
// than one: its object is made once, and of the values to read whole, only the last is
// read.
type fieldReader struct {
	scan

	// objects made so far, by the index of their plan.
	objects []map[string]any
	// whole is the last value to read whole; it has this name in this parent.
	whole  []byte
	parent map[string]any
	name   string
	// unescaped is a buffer for a name.
	unescaped []byte
}

// postponed stands for a value that is yet to be read whole.
type postponed struct{}

// read a value as util/json does, as far as the plan asks for it.
func (d *fieldReader) read(r *readPlan) any {
	kind := d.next()
	switch {
	case kind == '{' && r.fields != nil:
		return d.readObject(r)
	case kind == '{', kind == '[', r.as < asScalar && kind != 'n':
		return unread{int64(len(d.value()))}
	}
	return readScalar(d.value(), r.maxBytes)
}

func (d *fieldReader) readObject(r *readPlan) map[string]any {
	object := d.objects[r.index]
	if object == nil {
		object = map[string]any{}
		d.objects[r.index] = object
	} else {
		clear(object)
	}
	for more := d.begin(); more; more = d.more() {
		name, isEscaped := d.fieldName()
		switch field := r.field(d.plain(name, isEscaped)); {
		case field == nil:
			d.value()
		case field.as == asWhole:
			object[field.name] = d.postpone(object, field)
		default:
			object[field.name] = d.read(field)
		}
	}
	return object
}

// field of that name, nil if it is not read.
func (r *readPlan) field(name []byte) *readPlan {
	if r.lengths&lengthOf(len(name)) == 0 {
		return nil
	}
	return r.fields[string(name)]
}

// plain is a field name without its quotes and escapes.
func (d *fieldReader) plain(name []byte, isEscaped bool) []byte {
	if !isEscaped {
		return name[1 : len(name)-1]
	}
	d.unescaped, _ = jsontext.AppendUnquote(d.unescaped[:0], name) // It is valid.
	return d.unescaped
}

// postpone reading a value whole, unless it is too long.
func (d *fieldReader) postpone(parent map[string]any, r *readPlan) any {
	whole := d.value()
	if int64(len(whole)) > r.maxBytes {
		return unread{int64(len(whole))}
	}
	d.whole, d.parent, d.name = whole, parent, r.name
	return postponed{}
}

// readPostponed reads the last postponed value, unless another has replaced it.
func (d *fieldReader) readPostponed() {
	if _, ok := d.parent[d.name].(postponed); ok {
		whole := scan{json: d.whole}
		d.parent[d.name] = whole.readAll(1)
	}
}

// readScalar reads a scalar of at most maxBytes.
func readScalar(value jsontext.Value, maxBytes int64) any {
	switch kind := value.Kind(); {
	case kind == jsontext.KindNull:
		return nil
	case int64(len(value)) > maxBytes:
		return unread{int64(len(value))}
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

// readNumber as util/json does. A number that is too large for that is unread: nobody
// uses one.
func readNumber(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return unread{int64(len(text))}
}

// maxSelectorDepth is the level of a selector's values, in matchExpressions. A list or
// an object below is wrong, and need not be read to say so.
const maxSelectorDepth = 4

// readAll reads a whole value, which is at this level.
func (s *scan) readAll(level int) any {
	switch kind := s.next(); {
	case kind == '{' && level < maxSelectorDepth:
		object := map[string]any{}
		for more := s.begin(); more; more = s.more() {
			name, _ := s.fieldName()
			object[unquoted(name)] = s.readAll(level + 1)
		}
		return object
	case kind == '[' && level <= maxSelectorDepth:
		array := []any{}
		for more := s.begin(); more; more = s.more() {
			array = append(array, s.readAll(level+1))
		}
		return array
	case kind == '{', kind == '[':
		s.value()
		return unread{}
	}
	return readScalar(s.value(), v1alpha1.MaxSelectorBytes)
}
