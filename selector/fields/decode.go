package fields

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotObject is for a value that is no object.
var ErrNotObject = errors.New("must be an object")

// DecodeValid reads an object from valid JSON as far as the plan asks for it. Of several fields of one
// name the last counts. For invalid JSON, its result means nothing.
func (r *Plan) DecodeValid(raw []byte) (map[string]any, error) {
	d := fieldReader{scan: scan{json: raw}, objects: make([]map[string]any, r.size)}
	object, ok := d.read(r).(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	d.readPostponed()
	return object, nil
}

// Raw returns the value, as it stands in valid JSON, of the only field that the plan reads whole; nil if it is not
// there, or longer than the plan reads.
func (r *Plan) Raw(json []byte) jsontext.Value {
	d := fieldReader{scan: scan{json: json}, objects: make([]map[string]any, r.size)}
	d.read(r)
	if !d.whole.isPostponed() {
		return nil
	}
	return d.whole.raw
}

// ReadWhole reads a whole value from valid JSON, down to a depth.
func ReadWhole(json []byte, depth int) any {
	s := scan{json: json}
	return s.readAll(1, depth)
}

// fieldReader reads a value. A field that is there a thousand times costs no more memory
// than one: its object is made once, and of the values to read whole, only the last is
// read.
type fieldReader struct {
	scan

	// objects made so far, by the index of their plan.
	objects []map[string]any
	// whole is the last value to read whole of the first such plan, and others those of the
	// other plans.
	whole  wholeValue
	others []wholeValue
	// unescaped is a buffer for a name.
	unescaped []byte
}

// wholeValue is a value to read whole. It has this name in this parent.
type wholeValue struct {
	plan   *Plan
	parent map[string]any
	raw    []byte
}

// postponed stands for a value that is yet to be read whole.
type postponed struct{}

// read a value as util/json does, as far as the plan asks for it.
func (d *fieldReader) read(r *Plan) any {
	kind := d.next()
	switch {
	case kind == '{' && r.fields != nil:
		return d.readObject(r)
	case kind == '{', kind == '[', r.as < AsScalar && kind != 'n':
		return Unread{Length: len(d.value())}
	}
	return readScalar(d.value(), r.maxBytes)
}

func (d *fieldReader) readObject(r *Plan) map[string]any {
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
			if r.MarksOthers {
				object[OtherFields] = Unread{}
			}
		case field.as == AsWhole:
			object[field.name] = d.postpone(object, field)
		default:
			object[field.name] = d.read(field)
		}
	}
	return object
}

// field of that name, nil if it is not read.
func (r *Plan) field(name []byte) *Plan {
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
func (d *fieldReader) postpone(parent map[string]any, r *Plan) any {
	whole := d.value()
	if int64(len(whole)) > r.maxBytes {
		return Unread{Length: len(whole)}
	}
	value := wholeValue{r, parent, whole}
	if d.whole.plan == nil || d.whole.plan == r {
		d.whole = value
		return postponed{}
	}
	for i := range d.others {
		if d.others[i].plan == r {
			d.others[i] = value
			return postponed{}
		}
	}
	d.others = append(d.others, value)
	return postponed{}
}

// readPostponed reads the last postponed values, unless others have replaced them.
func (d *fieldReader) readPostponed() {
	d.whole.read()
	for i := range d.others {
		d.others[i].read()
	}
}

// isPostponed says that nothing has replaced the value.
func (v *wholeValue) isPostponed() bool {
	if v.plan == nil {
		return false
	}
	_, ok := v.parent[v.plan.name].(postponed)
	return ok
}

func (v *wholeValue) read() {
	if v.isPostponed() {
		whole := scan{json: v.raw}
		v.parent[v.plan.name] = whole.readAll(1, cmp.Or(v.plan.depth, MaxSelectorDepth))
	}
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
		return Unquoted(value)
	case kind == jsontext.KindNumber:
		return readNumber(string(value))
	default:
		return kind == jsontext.KindTrue
	}
}

// Unquoted is the text of a JSON string.
func Unquoted(quoted jsontext.Value) string {
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
			object[Unquoted(name)] = s.readAll(level+1, depth)
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

func lengthOf(n int) uint64 { return 1 << min(n, 63) }
