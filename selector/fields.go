package selector

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fields are those that are read of an object, by name, and what is read of
// each: nil is all of it.
type fields map[string]fields

// claimFields are what is read of every claim, beside the paths of its kind.
var claimFields = []path{selectorAnnotation, {"metadata", "deletionTimestamp"}, {"metadata", "generateName"}}

// newFields are those that lead to the paths, and all that is there.
func newFields(paths ...path) fields {
	f := fields{}
	for _, p := range paths {
		f.add(p)
	}
	return f
}

func (f fields) add(p path) {
	inner, there := f[p[0]]
	switch {
	case len(p) == 1:
		f[p[0]] = nil
	case there && inner == nil: // All of it is read already.
	case inner == nil:
		f[p[0]] = newFields(p[1:])
	default:
		inner.add(p[1:])
	}
}

// Decode reads a claim of this kind from JSON, and of it only what NewClaim,
// Parents and BoundTo ask for, and in its metadata the deletionTimestamp and the
// generateName. It is an error that the claim is no object. Of several fields of
// one name the last counts, as it does for the API server, which never sends them.
func (k *ClaimKind) Decode(raw []byte) (map[string]any, error) {
	d := decoding{fields: k.fields}
	if err := json.Unmarshal(raw, &d, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("cannot decode the claim: %w", err)
	}
	object, ok := d.value.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	return object, nil
}

// decoding is a value in the making, in the form in which package json has it
// made, with a decoder that it keeps for the next.
type decoding struct {
	fields fields
	value  any
}

// UnmarshalJSONFrom is called by package json.
func (d *decoding) UnmarshalJSONFrom(from *jsontext.Decoder) (err error) {
	d.value, err = d.fields.decode(from)
	return err
}

// decode a value as util/json does, and skip what is not read. What stands where
// an object should is read whole, for the message that says so.
func (f fields) decode(from *jsontext.Decoder) (any, error) {
	if from.PeekKind() == jsontext.KindBeginObject {
		return f.decodeObject(from)
	}
	token, err := from.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case jsontext.KindBeginArray:
		return decodeArray(from)
	case jsontext.KindString:
		return token.String(), nil
	case jsontext.KindNumber:
		return decodeNumber(token.String())
	case jsontext.KindNull:
		return nil, nil
	default:
		return token.Bool(), nil
	}
}

func (f fields) decodeObject(from *jsontext.Decoder) (map[string]any, error) {
	object := map[string]any{}
	return object, EachField(from, func(name []byte) (err error) {
		inner, ok := f[string(name)]
		if !ok && f != nil {
			return from.SkipValue()
		}
		object[string(name)], err = inner.decode(from)
		return err
	})
}

// EachField of the object that comes next has its value read, or skipped.
func EachField(from *jsontext.Decoder, read func(name []byte) error) error {
	if _, err := from.ReadToken(); err != nil {
		return err
	}
	for from.PeekKind() != jsontext.KindEndObject {
		quoted, err := from.ReadValue()
		if err != nil {
			return err
		}
		name := quoted[1 : len(quoted)-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			if name, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return err
			}
		}
		if err := read(name); err != nil {
			return err
		}
	}
	_, err := from.ReadToken()
	return err
}

func decodeArray(from *jsontext.Decoder) ([]any, error) {
	array := []any{}
	for from.PeekKind() != jsontext.KindEndArray {
		element, err := fields(nil).decode(from)
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	_, err := from.ReadToken()
	return array, err
}

func decodeNumber(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(text, 64)
}
