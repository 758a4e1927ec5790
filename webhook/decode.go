package webhook

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// escaped is how long JSON makes one byte of a text, at most: \u0000.
const escaped = 6

// reviewed is what is read of an AdmissionReview, field by field. What else is in
// it, such as who asks and with which options, is skipped.
type reviewed struct {
	body             []byte
	apiVersion, kind string
	request          *admissionv1.AdmissionRequest
}

// UnmarshalJSONFrom is called by package json.
func (r *reviewed) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	return readObject(from, func(name []byte) error {
		switch string(name) {
		case "apiVersion":
			return readText(from, &r.apiVersion)
		case "kind":
			return readText(from, &r.kind)
		case "request":
			return r.readRequest(from)
		}
		return skip(from)
	})
}

func (r *reviewed) readRequest(from *jsontext.Decoder) error {
	if from.PeekKind() == jsontext.KindBeginObject && r.request == nil {
		r.request = &admissionv1.AdmissionRequest{}
	}
	request := r.request
	return readObject(from, func(name []byte) error {
		switch string(name) {
		case "uid":
			return readText(from, &request.UID)
		case "kind":
			return readKind(from, "kind", &request.Kind.Group, &request.Kind.Version, &request.Kind.Kind)
		case "resource":
			return readKind(from, "resource", &request.Resource.Group, &request.Resource.Version, &request.Resource.Resource)
		case "subResource":
			return readText(from, &request.SubResource)
		case "name":
			return readText(from, &request.Name)
		case "namespace":
			return readText(from, &request.Namespace)
		case "operation":
			return readText(from, &request.Operation)
		case "dryRun":
			return readBool(from, &request.DryRun)
		case "object":
			return r.readRaw(from, &request.Object)
		case "oldObject":
			return r.readRaw(from, &request.OldObject)
		}
		return skip(from)
	})
}

// readKind reads a kind or a resource, whichever the last name says.
func readKind(from *jsontext.Decoder, last string, group, version, kind *string) error {
	return readObject(from, func(name []byte) error {
		switch string(name) {
		case "group":
			return readText(from, group)
		case "version":
			return readText(from, version)
		case last:
			return readText(from, kind)
		}
		return skip(from)
	})
}

// readObject field by field; null has none.
func readObject(from *jsontext.Decoder, read func(name []byte) error) error {
	switch from.PeekKind() {
	case jsontext.KindBeginObject:
		return selector.EachField(from, read)
	case jsontext.KindNull:
		return from.SkipValue()
	}
	return unlike(from, "an object")
}

// readText into a string, which null leaves as it is. What is longer than any name
// is refused before it is copied.
func readText[T ~string](from *jsontext.Decoder, to *T) error {
	switch from.PeekKind() {
	case jsontext.KindString:
		quoted, err := from.ReadValue()
		if err != nil {
			return err
		}
		text := []byte(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(text, '\\') >= 0 && len(text) <= escaped*v1alpha1.MaxNameBytes {
			if text, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return err
			}
		}
		if len(text) > v1alpha1.MaxNameBytes {
			return fmt.Errorf("within %q: must have at most %d bytes", from.StackPointer(), v1alpha1.MaxNameBytes)
		}
		*to = T(text)
		return nil
	case jsontext.KindNull:
		return from.SkipValue()
	}
	return unlike(from, "a string")
}

func readBool(from *jsontext.Decoder, to **bool) error {
	switch from.PeekKind() {
	case jsontext.KindTrue, jsontext.KindFalse:
		token, err := from.ReadToken()
		if err == nil {
			*to = new(token.Bool())
		}
		return err
	case jsontext.KindNull:
		*to = nil
		return from.SkipValue()
	}
	return unlike(from, "true or false")
}

// readRaw keeps a value as it stands in the body, valid as it now is known to be.
func (r *reviewed) readRaw(from *jsontext.Decoder, to *runtime.RawExtension) error {
	value, err := from.ReadValue()
	if err == nil && value.Kind() != jsontext.KindNull {
		end := int(from.InputOffset())
		to.Raw = r.body[end-len(value) : end : end]
	}
	return err
}

// unlike says that what comes next is not what it should be.
func unlike(from *jsontext.Decoder, what string) error {
	if err := from.SkipValue(); err != nil {
		return err
	}
	return fmt.Errorf("within %q: must be %s", from.StackPointer(), what)
}

// skip a value. It is all in memory, so that this is faster than by its tokens.
func skip(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}
