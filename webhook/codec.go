package webhook

import (
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// raw is where a value stands in the body of a review: what few claims need, or what has a reader of its own.
type raw struct{ from, to int64 }

// UnmarshalJSONFrom is called by package json.
func (r *raw) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	r.to = d.InputOffset()
	r.from = r.to - int64(len(value))
	return err
}

// in the body is the value, nil if it is absent or null.
func (r raw) in(body []byte) []byte {
	if r.to == 0 || body[r.from] == 'n' {
		return nil
	}
	return body[r.from:r.to:r.to]
}

// decodedReview is what is read of an AdmissionReview. The last two are of no use: package json takes longer to skip a field that it does
// not know.
type decodedReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    *struct {
		UID             types.UID                    `json:"uid"`
		Kind            metav1.GroupVersionKind      `json:"kind"`
		Resource        metav1.GroupVersionResource  `json:"resource"`
		RequestResource *metav1.GroupVersionResource `json:"requestResource"`
		SubResource     string                       `json:"subResource"`
		Name            string                       `json:"name"`
		Namespace       string                       `json:"namespace"`
		Operation       admissionv1.Operation        `json:"operation"`
		UserInfo        raw                          `json:"userInfo"`
		Object          raw                          `json:"object"`
		OldObject       raw                          `json:"oldObject"`
		DryRun          *bool                        `json:"dryRun"`

		RequestKind raw `json:"requestKind"`
		Options     raw `json:"options"`
	} `json:"request"`
}

// decodeReview reads the request of a review, and its userInfo as JSON.
func decodeReview(body []byte) (request *admissionv1.AdmissionRequest, user []byte, err error) {
	review := decodedReview{}
	if err := json.Unmarshal(body, &review, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, nil, malformed("cannot decode the request as JSON: %v", err)
	}
	r := review.Request
	switch {
	case review.APIVersion != apiVersion:
		return nil, nil, malformed("apiVersion %q: must be %q", truncate.String(review.APIVersion, v1beta1.MaxShownBytes), apiVersion)
	case review.Kind != "AdmissionReview":
		return nil, nil, malformed("kind %q: must be \"AdmissionReview\"", truncate.String(review.Kind, v1beta1.MaxShownBytes))
	case r == nil:
		return nil, nil, malformed("request: must be set")
	case r.UID == "":
		return nil, nil, malformed("request.uid: must be set")
	}
	request = &admissionv1.AdmissionRequest{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, RequestResource: r.RequestResource, SubResource: r.SubResource,
		Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, DryRun: r.DryRun,
		Object: runtime.RawExtension{Raw: r.Object.in(body)}, OldObject: runtime.RawExtension{Raw: r.OldObject.in(body)},
	}
	requested := cmp.Or(r.RequestResource, &metav1.GroupVersionResource{})
	for _, word := range []string{
		string(r.UID), r.Kind.Group, r.Kind.Version, r.Kind.Kind, r.Resource.Group, r.Resource.Version, r.Resource.Resource, r.SubResource,
		string(r.Operation), requested.Group, requested.Version, requested.Resource,
	} {
		if !isWord(word) {
			return nil, nil, malformed("request: has %q where an API server has a word of at most %d letters, digits, dots and dashes",
				truncate.String(word, v1beta1.MaxShownBytes), v1beta1.MaxNameBytes)
		}
	}
	switch {
	case len(r.Name) > v1beta1.MaxNameBytes:
		return nil, nil, malformed("request.name: has more than %d bytes", v1beta1.MaxNameBytes)
	case r.Operation != admissionv1.Create && len(content.IsPathSegmentName(r.Name)) > 0: // The API server has yet to see a new one.
		return nil, nil, malformed("request.name: no object is named %q", truncate.String(r.Name, v1beta1.MaxShownBytes))
	case !isNamespace(r.Namespace):
		return nil, nil, malformed("request.namespace: no namespace is named %q", truncate.String(r.Namespace, v1beta1.MaxShownBytes))
	}
	return request, r.UserInfo.in(body), nil
}

// isWord reports whether a string can be a uid, an operation, or a part of what identifies a resource. It goes into URLs.
func isWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLowerOrDigit(c) && (c < 'A' || c > 'Z') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return len(s) <= v1beta1.MaxNameBytes && s != "." && s != ".."
}

// isNamespace reports whether a string is a DNS label, or empty. Package validation would take as long as a decision: it has a pattern.
func isNamespace(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLowerOrDigit(c) && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return len(s) <= validation.DNS1123LabelMaxLength
}

func isLowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

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
		status, _ := kjson.Marshal(r.Result) // A refusal is rare and has many fields: numbers, strings, and lists and maps of them.
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
