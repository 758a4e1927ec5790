package webhook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
)

// usual is more than the length of most answers.
const usual = 768

// encode the answer as an AdmissionReview, as encoding/json would, which takes
// several times as long to find out what the fields are. Here they are all, in
// the order of the API; a test knows of a field that the API gets.
func encode(r *admissionv1.AdmissionResponse) ([]byte, error) {
	b := append(make([]byte, 0, usual), `{"kind":"AdmissionReview","apiVersion":`...)
	b = appendText(b, apiVersion)
	b = append(b, `,"response":{"uid":`...)
	b = appendText(b, string(r.UID))
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, r.Allowed)
	if r.Result != nil {
		status, err := json.Marshal(r.Result) // A refusal is rare, and its fields are many.
		if err != nil {
			return nil, fmt.Errorf("cannot encode the status of the answer: %w", err)
		}
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
		b = appendText(b, string(*r.PatchType))
	}
	if len(r.AuditAnnotations) > 0 {
		b = append(b, `,"auditAnnotations":`...)
		b = appendTexts(b, r.AuditAnnotations)
	}
	if len(r.Warnings) > 0 {
		b = append(b, `,"warnings":`...)
		for i, warning := range r.Warnings {
			b = append(b, separator('[', i))
			b = appendText(b, warning)
		}
		b = append(b, ']')
	}
	return append(b, "}}"...), nil
}

// appendTexts as an object, in the order of their keys.
func appendTexts(b []byte, texts map[string]string) []byte {
	keys := slices.AppendSeq(make([]string, 0, 8), maps.Keys(texts))
	slices.Sort(keys)
	for i, key := range keys {
		b = append(b, separator('{', i))
		b = appendText(b, key)
		b = append(b, ':')
		b = appendText(b, texts[key])
	}
	return append(b, '}')
}

// separator before the i-th of several, which begin with another.
func separator(begin byte, i int) byte {
	if i == 0 {
		return begin
	}
	return ','
}

// appendText as a JSON string. What is no UTF-8 is replaced, as encoding/json does.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}
