package webhook

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/selector"
)

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
		return from.SkipValue()
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
		return from.SkipValue()
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
		return from.SkipValue()
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

// readText into a string, which null leaves as it is.
func readText[T ~string](from *jsontext.Decoder, to *T) error {
	switch from.PeekKind() {
	case jsontext.KindString:
		token, err := from.ReadToken()
		if err == nil {
			*to = T(token.String())
		}
		return err
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

// readRaw keeps a value as it stands in the body.
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
