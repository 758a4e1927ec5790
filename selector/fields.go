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

// reading is what is read of a value. Nothing else of it is kept, however long it is.
type reading struct {
	// fields of it that are read, by name.
	fields map[string]*reading
	// as is what it is read as itself.
	as form
	// most bytes of it that are read, as JSON.
	most int64

	// name that it has in its parent, and its place among all that are read.
	name  string
	place int
	// lengths that the names of its fields have, a bit each; those from 63 on share one.
	lengths uint64
	// places of it and of all below.
	places int
}

// form in which a value is read. Of two, the greater reads more.
type form int8

const (
	asParent form = iota // of fields that are read
	asSet                // or as null
	asScalar             // a text, a number or a boolean
	asWhole
)

// unread is a value that is set, of which no more is known than its length.
type unread struct{ length int64 }

// escaped is how long JSON makes one byte of a text, at most: \u0000.
const escaped = 6

// What is read of every claim, beside the paths of its kind.
var (
	deletionTimestamp = path{"metadata", "deletionTimestamp"}
	generateName      = path{"metadata", "generateName"}
)

func (r *reading) add(p path, as form, most int64) {
	if len(p) == 0 {
		r.as, r.most = max(r.as, as), max(r.most, most)
		return
	}
	if r.fields == nil {
		r.fields = map[string]*reading{}
	}
	if r.fields[p[0]] == nil {
		r.fields[p[0]] = &reading{}
	}
	r.fields[p[0]].add(p[1:], as, most)
}

// compiled gives a reading and all below their places, from that one on.
func (r *reading) compiled(place int) *reading {
	r.place = place
	r.places = 1
	for name, field := range r.fields {
		field.compiled(place + r.places).name = name
		r.places += field.places
		r.lengths |= lengthOf(len(name))
	}
	return r
}

func lengthOf(n int) uint64 { return 1 << min(n, 63) }

// newReading of the claims of a kind.
func (k *ClaimKind) newReading() *reading {
	r := &reading{}
	for _, p := range append(slices.Clone(k.settledBy), deletionTimestamp) {
		r.add(p, asSet, 0)
	}
	r.add(k.selector, asWhole, v1alpha1.MaxSelectorBytes)
	r.add(selectorAnnotation, asScalar, escaped*v1alpha1.MaxSelectorBytes+2)
	const name = escaped*v1alpha1.MaxNameBytes + 2
	r.add(generateName, asScalar, name)
	r.add(k.classRef, asScalar, name) // The form Name.
	for _, f := range referenceFields {
		r.add(append(slices.Clone(k.classRef), f), asScalar, name)
	}
	return r.compiled(0)
}

// Decode reads a claim of this kind from JSON, and of it only what Read
// and BoundTo ask for.
// Of what is long, it keeps that it is. It is an error that the claim is no object.
// Of several fields of one name the last counts, as it does for the API server,
// which never sends them.
func (k *ClaimKind) Decode(raw []byte) (map[string]any, error) {
	return k.reading.decode(raw)
}

// DecodeValid does so for what is known to be valid JSON, such as the object of a
// review that was decoded. Of anything else, it makes something or other.
func (k *ClaimKind) DecodeValid(raw []byte) (map[string]any, error) {
	return k.reading.decodeValid(raw)
}

func (r *reading) decode(raw []byte) (map[string]any, error) {
	var d decoding
	if err := json.Unmarshal(raw, &d, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("cannot decode it as JSON: %w", err)
	}
	return r.decodeValid(raw)
}

// decoding only proves that a value is valid, with a decoder that package json keeps
// for the next.
type decoding struct{}

// UnmarshalJSONFrom is called by package json.
func (*decoding) UnmarshalJSONFrom(from *jsontext.Decoder) error { return skip(from) }

var errNoObject = errors.New("must be an object")

func (r *reading) decodeValid(raw []byte) (map[string]any, error) {
	d := fieldReader{scan: scan{json: raw}, objects: make([]map[string]any, r.places)}
	object, ok := d.read(r).(map[string]any)
	if !ok {
		return nil, errNoObject
	}
	d.readPostponed()
	return object, nil
}

// EachField of the object that comes next has its value read, or skipped. It is an
// error that something else comes.
func EachField(from *jsontext.Decoder, read func(name []byte) error) error {
	first, err := from.ReadToken()
	if err != nil {
		return err
	}
	if first.Kind() != jsontext.KindBeginObject {
		return errNoObject
	}
	var unescaped []byte // is room for a name
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

// skip a value. It is all in memory, so that this is faster than by its tokens.
func skip(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}
