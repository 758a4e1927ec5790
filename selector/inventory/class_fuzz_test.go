package inventory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// FuzzClass reads a class as its author wrote it, with its marks in annotations and in fields, and as a selector and the draw see it.
func FuzzClass(f *testing.F) {
	for _, class := range []string{
		`null`, `[]`, `{}`, `{"metadata":null}`, `{"metadata":{"name":"a","annotations":null,"labels":null}}`,
		`{"metadata":{"name":"gold","namespace":"n","uid":"1","labels":{"tier":"gold","a":""},"annotations":{"default":"true","weight":"7",` +
			`"classbind.io/cordoned":"true"}},"spec":{"default":true,"weight":3}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"weight":" 1","default":"TRUE"}},"spec":{"default":"true","weight":1e6}}`,
		`{"metadata":{"annotations":{"weight":"1000001"}},"spec":{"weight":-0.0}}`,
		`{"metadata":{"annotations":{"weight":"+007"}},"spec":{"weight":9223372036854775808}}`,
		`{"metadata":{"annotations":{"weight":"1_000"}},"spec":{"weight":1.5}}`, `{"metadata":{"annotations":{"weight":"-0"}},"spec":{"weight":[1]}}`,
		`{"metadata":{"annotations":{"weight":" -1"}},"spec":{"weight":-1}}`, `{"metadata":{"annotations":{"weight":"-.5"}},"spec":{"weight":-0.5}}`,
		`{"metadata":{"annotations":{"weight":"010"}},"spec":{"weight":-1e23}}`, `{"metadata":{"annotations":{"weight":"-much"}},"spec":{"weight":"-7"}}`,
		`{"metadata":{"labels":{"a":"1","a":"2"},"annotations":{"a":1}},"spec":[]}`, `{"metadata":{"deletionTimestamp":"never"},"spec":{"weight":{"a":1}}}`,
	} {
		f.Add([]byte(class))
	}
	for _, value := range []string{
		`"0"`, `"30"`, `"1000000"`, `"1000001"`, `"99999999999999999999999"`, `"-3"`, `"-99999999999999999999999"`, `"-.5"`, `" -1"`,
		`"-1` + strings.Repeat("0", 50) + `"`,
		`"-0"`, `"-much"`, `"+5"`, `"007"`, `"1.5"`, `"1e3"`, `"0x10"`, `" 3"`, `"abc"`, `""`, `null`, `0`, `1000000`, `1000001`, `3.0`, `1.5`,
		`1e23`, `-1e23`, `-1`, `-0.5`,
		`true`, `{"value":3}`, `[1]`, `"true"`, `"True"`, `"false"`, `false`, `1`,
	} {
		f.Add([]byte(`{"metadata":{"annotations":{"weight":` + value + `,"default":` + value + `}}}`))
		f.Add([]byte(`{"spec":{"weight":` + value + `,"default":` + value + `}}`))
	}
	f.Add([]byte(`{"spec":"gold"}`))
	if !cost.Fuzzing() {
		long := strings.Repeat("<", 750<<10)
		f.Add([]byte(`{"metadata":{"annotations":{"weight":"` + long + `"}},"spec":{"weight":"` + long + `"}}`))
		f.Add([]byte(`{"spec":{"weight":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}`))
		f.Add([]byte(`{"metadata":{"labels":{` + strings.Repeat(`"a":"1",`, 100_000) + `"b":"2"}}}`))
	}
	meter := cost.NewMeter(f)
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "A"}
	spec := v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: "claims"}},
		Default:    v1beta1.Source{Annotation: "default"},
		Weight:     v1beta1.Source{Annotation: "weight"},
	}
	annotated := NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.example.org"}, Spec: spec}, gvk, true)
	spec.Default, spec.Weight = v1beta1.Source{Path: ".spec.default"}, v1beta1.Source{Path: ".spec.weight"}
	fielded := NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.example.org"}, Spec: spec}, gvk, true)
	for _, n := range []int{v1beta1.MaxClassLabels, v1beta1.MaxClassLabels + 1} {
		var labels []string
		for i := range n {
			labels = append(labels, fmt.Sprintf(`"%d":"%s"`, i, strings.Repeat("v", i)))
		}
		f.Add([]byte(`{"metadata":{"labels":{` + strings.Join(labels, ",") + `}}}`))
	}
	f.Add([]byte(`{"metadata":{"labels":{"a":"` + strings.Repeat("v", v1beta1.MaxClassLabelBytes) + `"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u := &unstructured.Unstructured{}
		if kjson.Unmarshal(text, &u.Object) != nil || u.Object == nil {
			return // The API server would not have stored it.
		}
		var byAnnotation, byField *Class
		meter.Measure(t, len(text), func() {
			byAnnotation, byField = annotated.NewClass(u, u.Object), fielded.NewClass(u, u.Object)
		}, text)
		annotations := u.GetAnnotations()
		mark, isMarked := annotations["weight"]
		spec, _ := u.Object["spec"].(map[string]any)
		var written any
		if isMarked {
			written = mark
		}
		checkClass(t, byAnnotation, u, written, annotations["default"] == "true")
		checkClass(t, byField, u, spec["weight"], spec["default"] == "true" || spec["default"] == true)
	})
}

func checkClass(t *testing.T, c *Class, u *unstructured.Unstructured, weight any, isDefault bool) {
	t.Helper()
	want, readable := referenceWeight(weight)
	switch {
	case c.Weight != want || (c.WeightErr == nil) != readable:
		t.Errorf("We should take the weight %v for %d, readable %t, and not for %d: %v", weight, want, readable, c.Weight, c.WeightErr)
	case c.Default != isDefault:
		t.Errorf("We should take the class for default: %t", isDefault)
	case c.Cordoned != (u.GetAnnotations()[v1beta1.CordonedAnnotation] == "true"), c.Terminating != (u.GetDeletionTimestamp() != nil):
		t.Errorf("We should see whether it is cordoned and being deleted: %+v", c)
	case c.WeightErr != nil && !strings.Contains(c.WeightErr.Error(), "weight]: Invalid value: ") &&
		!strings.Contains(c.WeightErr.Error(), "spec.weight: Invalid value: "),
		c.WeightErr != nil && !strings.Contains(c.WeightErr.Error(), ": must be an integer from 0 to 1000000"):
		t.Errorf("We should say what is wrong with a weight, and where: %v", c.WeightErr)
	case c.WeightErr != nil && len(c.WeightErr.Error()) > 5*v1beta1.MaxShownBytes:
		t.Errorf("We should say in short what is wrong with a weight, and not in %d bytes", len(c.WeightErr.Error()))
	}
	set, size := u.GetLabels(), 0
	for key, value := range set {
		size += len(key) + len(value)
	}
	if c.TooManyLabels != (len(set) > v1beta1.MaxClassLabels || size > v1beta1.MaxClassLabelBytes) {
		t.Errorf("We should hold %d labels of %d bytes, unless that is too much", len(set), size)
	}
	if c.TooManyLabels {
		set = nil
	}
	assert.Len(t, c.Labels, len(set), "We should hold each label.")
	for key, value := range set {
		if got, there := c.Labels.Lookup(key); !there || got != value {
			t.Errorf("We should find the label %q=%q, and not %q", key, value, got)
		}
	}
	kept := NewClasses(c.Kind, []*Class{c})
	if again := kept.With(c); again != kept {
		t.Error("We should see that nothing has changed.")
	}
	if kept.Without(c.Namespace, c.Name).Len() != 0 || len(kept.defaults()) > 1 {
		t.Error("We should find the class by its name.")
	}
}

// referenceWeight of what is written: an integer from 0 to a million. What is malformed counts as 0 if it is negative, and else as 1.
func referenceWeight(value any) (weight int64, readable bool) {
	switch v := value.(type) {
	case nil:
		return 1, true
	case string:
		if v == "1000000" || v == "0" {
			weight, _ = strconv.ParseInt(v, 10, 64)
			return weight, true
		}
		if v != "" && len(v) <= 6 && v[0] != '0' && strings.Trim(v, "0123456789") == "" {
			weight, _ = strconv.ParseInt(v, 10, 64)
			return weight, true
		}
		begin := strings.TrimLeft(v[:min(len(v), v1beta1.MaxShownBytes+1)], " \t\n\f\r")
		digits, negative := strings.CutPrefix(begin, "-")
		digits = strings.TrimPrefix(digits, ".")
		if negative && digits != "" && digits[0] >= '0' && digits[0] <= '9' {
			return 0, false
		}
	case int64:
		if v >= 0 && v <= 1_000_000 {
			return v, true
		}
		if v < 0 {
			return 0, false
		}
	case float64:
		if v == math.Trunc(v) && v >= 0 && v <= 1_000_000 {
			return int64(v), true
		}
		if v < 0 {
			return 0, false
		}
	}
	return 1, false
}
