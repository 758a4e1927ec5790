package selector

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// fieldReader reads a value. A field that stands a thousand times costs no more memory than
// one: its objects are made once, and only the last value that is read whole is read.
type fieldReader struct {
	scan

	// objects that were made, by the place of their reading.
	objects []map[string]any
	// whole is the last value to be read whole, of that name in that parent.
	whole  []byte
	parent map[string]any
	name   string
	// unescaped is room for a name.
	unescaped []byte
}

// pending stands for the value that is to be read whole.
type pending struct{}

// read a value as util/json does, as far as it is asked for.
func (d *fieldReader) read(r *reading) any {
	kind := d.next()
	switch {
	case kind == '{' && r.fields != nil:
		return d.readObject(r)
	case kind == '{', kind == '[', r.as < asScalar && kind != 'n':
		return unread{int64(len(d.value()))}
	}
	return readScalar(d.value(), r.most)
}

func (d *fieldReader) readObject(r *reading) map[string]any {
	object := d.objects[r.place]
	if object == nil {
		object = map[string]any{}
		d.objects[r.place] = object
	} else {
		clear(object)
	}
	for more := d.begin(); more; more = d.more() {
		name, escaped := d.fieldName()
		switch field := r.field(d.plain(name, escaped)); {
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
func (r *reading) field(name []byte) *reading {
	if r.lengths&lengthOf(len(name)) == 0 {
		return nil
	}
	return r.fields[string(name)]
}

// plain is a name without its escapes.
func (d *fieldReader) plain(name []byte, isEscaped bool) []byte {
	if !isEscaped {
		return name[1 : len(name)-1]
	}
	d.unescaped, _ = jsontext.AppendUnquote(d.unescaped[:0], name) // It is valid.
	return d.unescaped
}

// postpone reading a value whole, unless it is too long.
func (d *fieldReader) postpone(parent map[string]any, r *reading) any {
	whole := d.value()
	if int64(len(whole)) > r.most {
		return unread{int64(len(whole))}
	}
	d.whole, d.parent, d.name = whole, parent, r.name
	return pending{}
}

// readPostponed reads what was, unless something else has taken its place.
func (d *fieldReader) readPostponed() {
	if _, ok := d.parent[d.name].(pending); ok {
		whole := scan{json: d.whole}
		d.parent[d.name] = whole.readAll(1)
	}
}

// readScalar unless it is longer than that.
func readScalar(value jsontext.Value, most int64) any {
	switch kind := value.Kind(); {
	case kind == jsontext.KindNull:
		return nil
	case int64(len(value)) > most:
		return unread{int64(len(value))}
	case kind == jsontext.KindString:
		return unquoted(value)
	case kind == jsontext.KindNumber:
		return readNumber(string(value))
	default:
		return kind == jsontext.KindTrue
	}
}

// unquoted is the text that a string in JSON stands for.
func unquoted(quoted jsontext.Value) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // It is valid.
	return string(text)
}

// readNumber as util/json does. One that is too large for it is a number nobody uses.
func readNumber(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	return unread{int64(len(text))}
}

// deepest is the level of a selector's values, in matchExpressions. What is a list
// or an object below is wrong, and need not be read to say so.
const deepest = 4

// readAll that is in a value, at a level.
func (s *scan) readAll(level int) any {
	switch kind := s.next(); {
	case kind == '{' && level < deepest:
		object := map[string]any{}
		for more := s.begin(); more; more = s.more() {
			name, _ := s.fieldName()
			object[unquoted(name)] = s.readAll(level + 1)
		}
		return object
	case kind == '[' && level <= deepest:
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
