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

// answerCapacity is more than the bytes of most answers.
const answerCapacity = 768

// encode writes the answer as an AdmissionReview, as encoding/json would. That takes
// several times as long, because it has to find the fields. Here are all of them, in
// the order of the API; a test fails when the API gets another.
func encode(r *admissionv1.AdmissionResponse) ([]byte, error) {
	b := append(make([]byte, 0, answerCapacity), `{"kind":"AdmissionReview","apiVersion":`...)
	b = appendText(b, apiVersion)
	b = append(b, `,"response":{"uid":`...)
	b = appendText(b, string(r.UID))
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, r.Allowed)
	if r.Result != nil {
		status, err := json.Marshal(r.Result) // A refusal is rare and has many fields.
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

// appendTexts appends an object, sorted by key.
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

// separator is begin before the first element, and a comma before the others.
func separator(begin byte, i int) byte {
	if i == 0 {
		return begin
	}
	return ','
}

// appendText appends a JSON string. It replaces invalid UTF-8, as encoding/json does.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}
