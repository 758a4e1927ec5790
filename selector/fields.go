package selector

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
)

// readPlan says what is read of a value. Nothing else of it is kept, however long it is.
type readPlan struct {
	// fields to read, by name.
	fields map[string]*readPlan
	// as is the form in which the value itself is read.
	as form
	// maxBytes of its JSON; a longer value stays unread.
	maxBytes int64

	// name of the value in its parent, and index of the plan among all.
	name  string
	index int
	// lengths of the names of its fields, a bit each; those from 63 on share one.
	lengths uint64
	// size is the number of plans in it, with itself.
	size int
}

// form in which a value is read. The greater of two reads more.
type form int8

const (
	asParent form = iota // only fields of it
	asSet                // only whether it is null
	asScalar             // a text, a number or a boolean
	asWhole
)

// unread stands for a value of which only the length is known.
type unread struct{ length int64 }

// escapeFactor is how many bytes JSON takes at most for one byte of a text: \u0000.
const escapeFactor = 6

// What is read of every claim, beside the paths of its kind.
var (
	deletionTimestamp = path{"metadata", "deletionTimestamp"}
	generateName      = path{"metadata", "generateName"}
)

func (r *readPlan) add(p path, as form, maxBytes int64) {
	if len(p) == 0 {
		r.as, r.maxBytes = max(r.as, as), max(r.maxBytes, maxBytes)
		return
	}
	if r.fields == nil {
		r.fields = map[string]*readPlan{}
	}
	if r.fields[p[0]] == nil {
		r.fields[p[0]] = &readPlan{}
	}
	r.fields[p[0]].add(p[1:], as, maxBytes)
}

// compiled numbers a plan and all below it, from this index on.
func (r *readPlan) compiled(index int) *readPlan {
	r.index = index
	r.size = 1
	for name, field := range r.fields {
		field.compiled(index + r.size).name = name
		r.size += field.size
		r.lengths |= lengthOf(len(name))
	}
	return r
}

func lengthOf(n int) uint64 { return 1 << min(n, 63) }

// newReadPlan for the claims of a kind.
func (k *ClaimKind) newReadPlan() *readPlan {
	r := &readPlan{}
	for _, p := range append(slices.Clone(k.settledBy), deletionTimestamp) {
		r.add(p, asSet, 0)
	}
	r.add(k.selector, asWhole, v1alpha1.MaxSelectorBytes)
	r.add(selectorAnnotation, asScalar, escapeFactor*v1alpha1.MaxSelectorBytes+2)
	const maxNameBytes = escapeFactor*v1alpha1.MaxNameBytes + 2
	r.add(generateName, asScalar, maxNameBytes)
	r.add(k.classRef, asScalar, maxNameBytes) // The form Name.
	for _, f := range referenceFields {
		r.add(append(slices.Clone(k.classRef), f), asScalar, maxNameBytes)
	}
	return r.compiled(0)
}

// Decode reads a claim of this kind from JSON: only the fields that Read and
// BoundTo ask for. Of a
// value that is too long, it keeps the length. It fails if the claim is not an object.
// Of several fields of one name the last counts, as it does for the API server, which
// never sends them.
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
func (*validator) UnmarshalJSONFrom(from *jsontext.Decoder) error { return skip(from) }

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

// EachField calls read for each field of the object that comes next, to read or skip
// its value. It fails if something else comes.
func EachField(from *jsontext.Decoder, read func(name []byte) error) error {
	first, err := from.ReadToken()
	if err != nil {
		return err
	}
	if first.Kind() != jsontext.KindBeginObject {
		return errNotObject
	}
	var unescaped []byte // a buffer for a name
	for from.PeekKind() != jsontext.KindEndObject {
		quoted, err := from.ReadValue()
		if err != nil {
			return err
		}
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			if unescaped, err = jsontext.AppendUnquote(unescaped[:0], quoted); err != nil {
				return err
			}
			name = unescaped
		}
		if err := read(name); err != nil {
			return err
		}
	}
	_, err = from.ReadToken()
	return err
}

// skip a value. All of it is in memory, so this is faster than token by token.
func skip(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}
