package webhook

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	strictjson "github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// awkward texts to write as JSON: quotes, control characters, what is not ASCII, invalid UTF-8, and what encoding/json escapes for HTML.
var awkward = []string{
	"", " ", `"`, `\`, `\u0041`, "'", "\x00\x01\x1f\x7f", "\b\f\n\r\t", "a\nb", "{}[],:", "<a href='b'>&amp;</a>", "\u2028\u2029",
	"Größe", "世界", "\U0001f600", "\ufffd", "\xff", "a\xc3", "\xed\xa0\x80", "\xf0\x9f\x98",
}

// filled returns values for a field of that type.
func filled(t *testing.T, field reflect.Type) (values []any) {
	t.Helper()
	switch reflect.Zero(field).Interface().(type) {
	case bool:
		return []any{true}
	case *metav1.Status:
		for _, text := range awkward {
			values = append(values, &metav1.Status{
				Status: metav1.StatusFailure, Message: text, Reason: metav1.StatusReasonInvalid, Code: 422,
				Details: &metav1.StatusDetails{Name: text, Causes: []metav1.StatusCause{{Message: text, Field: "spec"}}},
			})
		}
		return append(values, &metav1.Status{})
	case []byte:
		for _, text := range awkward {
			values = append(values, []byte(text))
		}
		return append(values, []byte("ab"), []byte("abc"), []byte("abcd"), make([]byte, 10*answerCapacity))
	case *admissionv1.PatchType:
		for _, text := range awkward {
			values = append(values, new(admissionv1.PatchType(text)))
		}
		return values
	case map[string]string:
		all := map[string]string{}
		for i, text := range awkward {
			values = append(values, map[string]string{text: "a"}, map[string]string{"a": text})
			all[strconv.Itoa(i)+text] = text // Some are the same once they are UTF-8.
		}
		return append(values, map[string]string{}, all)
	case []string:
		for _, text := range awkward {
			values = append(values, []string{text})
		}
		return append(values, []string{}, awkward)
	}
	require.Equal(t, reflect.String, field.Kind(), "What would a %s be filled with?", field)
	for _, text := range awkward {
		values = append(values, reflect.ValueOf(text).Convert(field).Interface())
	}
	return values
}

func TestEncode(t *testing.T) {
	check := func(t *testing.T, r *admissionv1.AdmissionResponse) {
		t.Helper()
		want, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: r})
		require.NoError(t, err)
		got := encode(r)
		var wanted, decoded any
		require.NoError(t, json.Unmarshal(want, &wanted))
		require.NoError(t, strictjson.Unmarshal(got, &decoded), "We should write JSON in which no name is there twice, and UTF-8.")
		assert.Equal(t, wanted, decoded, "We should write what encoding/json does.")
		assert.Equal(t, string(got), string(encode(r)), "We should write the annotations in the order of their names.")
	}
	check(t, &admissionv1.AdmissionResponse{})
	all := &admissionv1.AdmissionResponse{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[admissionv1.AdmissionResponse]()) {
		t.Run(field.Name, func(t *testing.T) {
			for _, value := range filled(t, field.Type) {
				r := &admissionv1.AdmissionResponse{}
				reflect.ValueOf(r).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
				check(t, r)
				reflect.ValueOf(all).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
				check(t, all)
			}
		})
	}
}
