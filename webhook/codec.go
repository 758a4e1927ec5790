package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// decodedReview is what is read of an AdmissionReview, field by field. Everything else, such as the options, is skipped.
type decodedReview struct {
	body             []byte
	apiVersion, kind string
	request          *admissionv1.AdmissionRequest
	user             runtime.RawExtension // The userInfo: few claims need it.
}

// UnmarshalJSONFrom is called by package json.
func (r *decodedReview) UnmarshalJSONFrom(from *jsontext.Decoder) error {
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

func (r *decodedReview) readRequest(from *jsontext.Decoder) error {
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
		case "requestResource":
			return readRequestResource(from, request)
		case "subResource":
			return readText(from, &request.SubResource)
		case "name":
			return readText(from, &request.Name)
		case "namespace":
			return readText(from, &request.Namespace)
		case "operation":
			return readText(from, &request.Operation)
		case "userInfo":
			return r.readRaw(from, &r.user)
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

// readRequestResource reads the resource that the client asked for.
func readRequestResource(from *jsontext.Decoder, request *admissionv1.AdmissionRequest) error {
	switch {
	case from.PeekKind() == jsontext.KindNull:
		request.RequestResource = nil
		return skip(from)
	case request.RequestResource == nil:
		request.RequestResource = &metav1.GroupVersionResource{}
	}
	r := request.RequestResource
	return readKind(from, "resource", &r.Group, &r.Version, &r.Resource)
}

// readKind reads a kind or a resource; last is the name of its third field.
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

// readObject calls read for each field of an object, to read or skip its value; null has none.
func readObject(from *jsontext.Decoder, read func(name []byte) error) error {
	switch from.PeekKind() {
	case jsontext.KindBeginObject:
	case jsontext.KindNull:
		return from.SkipValue()
	default:
		return typeError(from, "an object")
	}
	if _, err := from.ReadToken(); err != nil {
		return err
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
	_, err := from.ReadToken()
	return err
}

// readText reads a string; null leaves it as it is. A text longer than any name is refused before it is copied.
func readText[T ~string](from *jsontext.Decoder, to *T) error {
	switch from.PeekKind() {
	case jsontext.KindString:
		quoted, err := from.ReadValue()
		if err != nil {
			return err
		}
		text := []byte(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(text, '\\') >= 0 && len(text) <= fields.EscapeFactor*v1beta1.MaxNameBytes {
			if text, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return err
			}
		}
		if len(text) > v1beta1.MaxNameBytes {
			return fmt.Errorf("within %q: must have at most %d bytes", from.StackPointer(), v1beta1.MaxNameBytes)
		}
		*to = T(text)
		return nil
	case jsontext.KindNull:
		return from.SkipValue()
	default:
		return typeError(from, "a string")
	}
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
	default:
		return typeError(from, "true or false")
	}
}

// readRaw keeps a value as a slice of the body. The decoder has proved it valid.
func (r *decodedReview) readRaw(from *jsontext.Decoder, to *runtime.RawExtension) error {
	value, err := from.ReadValue()
	if err == nil && value.Kind() != jsontext.KindNull {
		end := int(from.InputOffset())
		to.Raw = r.body[end-len(value) : end : end]
	}
	return err
}

// typeError skips the next value, and says what it must be instead.
func typeError(from *jsontext.Decoder, what string) error {
	if err := from.SkipValue(); err != nil {
		return err
	}
	return fmt.Errorf("within %q: must be %s", from.StackPointer(), what)
}

// skip a value. All of it is in memory, so this is faster than token by token.
func skip(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}

// answerCapacity is more than the bytes of most answers.
const answerCapacity = 768

// encode writes the answer as an AdmissionReview, as encoding/json would. That takes several times as long, because it has to find the
// fields. Here are all of them, in the order of the API; a test fails when the API gets another.
func encode(r *admissionv1.AdmissionResponse) []byte {
	b := append(make([]byte, 0, answerCapacity), `{"kind":"AdmissionReview","apiVersion":`...)
	b = fields.AppendText(b, apiVersion)
	b = append(b, `,"response":{"uid":`...)
	b = fields.AppendText(b, string(r.UID))
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, r.Allowed)
	if r.Result != nil {
		status, _ := json.Marshal(r.Result) // A refusal is rare and has many fields: numbers, strings, and lists and maps of them.
		b = append(b, `,"status":`...)
		b = append(b, status...)
	}
	if len(r.Patch) > 0 {
		b = append(b, `,"patch":"`...)
		b = base64.StdEncoding.AppendEncode(b, r.Patch)
		b = append(b, '"')
	}
	if r.PatchType != nil {
		b = append(b, `,"patchType":`...)
		b = fields.AppendText(b, string(*r.PatchType))
	}
	if len(r.AuditAnnotations) > 0 {
		b = append(b, `,"auditAnnotations":`...)
		b = appendTexts(b, r.AuditAnnotations)
	}
	if len(r.Warnings) > 0 {
		b = append(b, `,"warnings":`...)
		for i, warning := range r.Warnings {
			b = append(b, separator('[', i))
			b = fields.AppendText(b, warning)
		}
		b = append(b, ']')
	}
	return append(b, "}}"...)
}

// makePrintable escapes what a client, a terminal or a log shows of an answer, which has parts of claims and classes. The API server drops
// a warning with a control character.
func makePrintable(r *admissionv1.AdmissionResponse) {
	for i, warning := range r.Warnings {
		r.Warnings[i] = truncate.Printable(warning)
	}
	for key, text := range r.AuditAnnotations {
		if printable := truncate.Printable(text); printable != text {
			r.AuditAnnotations[key] = printable
		}
	}
	if r.Result == nil {
		return
	}
	r.Result.Message = truncate.Printable(r.Result.Message)
	if r.Result.Details == nil {
		return
	}
	for i := range r.Result.Details.Causes {
		cause := &r.Result.Details.Causes[i]
		cause.Field, cause.Message = truncate.Printable(cause.Field), truncate.Printable(cause.Message)
	}
}

// appendTexts appends an object, sorted by key.
func appendTexts(b []byte, texts map[string]string) []byte {
	keys := slices.AppendSeq(make([]string, 0, 8), maps.Keys(texts))
	slices.Sort(keys)
	for i, key := range keys {
		b = append(b, separator('{', i))
		b = fields.AppendText(b, key)
		b = append(b, ':')
		b = fields.AppendText(b, texts[key])
	}
	return append(b, '}')
}

// separator is begin before the first element, and a comma before the others.
func separator(begin byte, i int) byte {
	if i == 0 {
		return begin
	}
	return ','
}
