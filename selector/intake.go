package selector

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Reasons to leave a claim alone.
const (
	BeingDeleted = "BeingDeleted"
	Settled      = "Settled"
	ParentAbsent = "ParentAbsent"
	NoSelector   = "NoSelector"
)

// Intake is a claim as it was read, once, for whoever decides on it or explains it.
type Intake struct {
	Claim
	// LeftAlone is the reason why the claim is not ours to bind; empty, it is.
	LeftAlone string
	// SettledBy is the place that is set, for the reason Settled.
	SettledBy string
	// Problems make the claim invalid. They are for its author: MaxErrors at most,
	// each of them short.
	Problems field.ErrorList
	// Parents is how many of the fields that lead to the class reference the claim has. The
	// reference itself counts, too, if it is an object without a name.
	Parents int
	// Converted says that the API server converted the claim from another version, whose
	// schema says what the claim must have.
	Converted bool
}

// Decode reads a claim of this kind from JSON: only the fields that Read and BoundTo ask
// for. Of a value that is too long, it keeps the length. It fails if the claim is not an
// object. Of several fields of one name the last counts, as it does for the API server,
// which never sends them.
func (k *ClaimKind) Decode(raw []byte) (map[string]any, error) {
	return k.plan.decode(raw)
}

// DecodeValid does the same for JSON that is known to be valid, such as the object of
// a decoded review. For invalid JSON, its result means nothing.
func (k *ClaimKind) DecodeValid(raw []byte) (map[string]any, error) {
	return k.plan.decodeValid(raw)
}

func (r *readPlan) decode(raw []byte) (map[string]any, error) {
	var v validator
	if err := json.Unmarshal(raw, &v, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("cannot decode it as JSON: %w", err)
	}
	return r.decodeValid(raw)
}

// validator only proves that a value is valid, with a decoder that package json keeps
// for the next.
type validator struct{}

// UnmarshalJSONFrom is called by package json.
func (*validator) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}

var errNotObject = errors.New("must be an object")

func (r *readPlan) decodeValid(raw []byte) (map[string]any, error) {
	d := fieldReader{scan: scan{json: raw}, objects: make([]map[string]any, r.size)}
	object, ok := d.read(r).(map[string]any)
	if !ok {
		return nil, errNotObject
	}
	d.readPostponed()
	return object, nil
}

// Read a claim of this kind from an object that any decoder may have made. A claim
// that is left alone is read no further.
func (k *ClaimKind) Read(namespace, name string, object map[string]any) Intake {
	in := Intake{Claim: Claim{Namespace: namespace, Name: name}}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata["deletionTimestamp"] != nil {
		in.LeftAlone = BeingDeleted
		return in
	}
	for i, p := range k.settledBy {
		value, err := p.lookup(object)
		if i == 0 {
			value, err = k.reference(value, err)
			if k.decides && err == nil { // See bindsNow.
				value = nil
			}
		}
		if value != nil {
			in.LeftAlone, in.SettledBy, in.Problems = Settled, p.String(), nil
			return in
		}
		if err != nil && len(in.Problems) == 0 {
			in.Problems = field.ErrorList{err}
		}
	}
	if in.LeftAlone = k.without(object); in.LeftAlone != "" {
		in.Problems = nil
		return in
	}
	if len(in.Problems) > 0 {
		return in
	}
	if k.hasFacts && !k.readFacts(object, &in) {
		return in
	}
	in.GenerateName, _ = metadata["generateName"].(string)
	if in.Given, in.Problems = k.given(object); len(in.Problems) > 0 {
		return in
	}
	in.Selector, in.Problems = k.classSelector(object)
	in.Parents = k.parents(object)
	return in
}

// readFacts reads what expressions look at, and evaluates bindWhen if it looks at nothing
// else. It is false if that says all there is to say.
func (k *ClaimKind) readFacts(object map[string]any, in *Intake) bool {
	for _, p := range k.looksAt.Paths() {
		at := path(p)
		if value, _ := at.lookup(object); !isRead(value) {
			in.Problems = append(in.Problems, &field.Error{
				Type: field.ErrorTypeTooLong, Field: at.field().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes or nested %d levels deep, because an expression of claim kind %q looks at it",
					v1alpha1.MaxExpressionValueBytes, maxExpressionDepth, k.Name),
			})
			return false
		}
	}
	in.Facts = newFacts(object)
	bindWhen := k.rules.bindWhen
	if bindWhen == nil || !readsClaimAlone(bindWhen) {
		return true
	}
	in.Facts.begin()
	ok, err := in.Facts.bool(bindWhen)
	switch {
	case err != nil:
		in.Problems = append(in.Problems, failure(k, "spec.bindWhen", bindWhen, err))
	case !ok:
		in.LeftAlone = NotYet
	}
	return ok && err == nil
}

// isRead says whether Decode read all of a value.
func isRead(value any) bool {
	isUnread := func(value any) bool { return !isRead(value) }
	switch v := value.(type) {
	case unread, longText:
		return false
	case []any:
		return !slices.ContainsFunc(v, isUnread)
	case map[string]any:
		for _, child := range v {
			if isUnread(child) {
				return false
			}
		}
	}
	return true
}

// without says why a claim is left alone for what it does not have; empty, it is not. A
// field in something that is not an object is absent.
func (k *ClaimKind) without(object map[string]any) (why string) {
	if k.needsParent {
		if parent, _ := k.classRef[:len(k.classRef)-1].lookup(object); parent == nil {
			return ParentAbsent
		}
	}
	if k.whenNoSelector == v1alpha1.NoSelectorLeaveAlone && k.rules.selectorFrom == nil {
		value, _ := k.selector.lookup(object)
		text, _ := k.annotation.lookup(object)
		if value == nil && text == nil {
			return NoSelector
		}
	}
	return ""
}

func (k *ClaimKind) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := k.selector.lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := k.annotation.lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		detail := "give either the annotation or the field " + k.selector.String() + ", not both"
		return nil, field.ErrorList{field.Forbidden(k.annotationField, detail)}
	case value != nil:
		return parseSelector(value, k.selectorField)
	case text != nil:
		return parseSelectorText(text, k.annotationField)
	}
	return nil, nil
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
	plan   *readPlan
	parent map[string]any
	raw    []byte
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
		v.parent[v.plan.name] = whole.readAll(1, cmp.Or(v.plan.depth, maxSelectorDepth))
	}
}

// readScalar reads a scalar of at most maxBytes.
func readScalar(value jsontext.Value, maxBytes int64) any {
	switch kind := value.Kind(); {
	case kind == jsontext.KindNull:
		return nil
	case int64(len(value)) > maxBytes && kind == jsontext.KindString:
		return longText{int64(len(value))}
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
// an object below is wrong, and need not be read to say so. maxExpressionDepth is that of a
// field that expressions look at.
const (
	maxSelectorDepth   = 4
	maxExpressionDepth = 32
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
		return unread{}
	}
	return readScalar(s.value(), math.MaxInt64) // The whole is not too long.
}
