package selector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// TestReviewedAsStored has hostile classes take the same seat when they are reviewed, stored
// and watched. Otherwise they would become default beside another.
func TestReviewedAsStored(t *testing.T) {
	claims := postgres()
	class := func(metadata, rest string) string {
		return `{"apiVersion":"example.org/v1","kind":"Pool","metadata":{"name":"a","uid":"1","resourceVersion":"7",` +
			`"annotations":{"default":"true"` + metadata + `}}` + rest + `}`
	}
	nested := strings.Repeat(`{"a":`, 60) + `"zone"` + strings.Repeat("}", 60)
	var manyLabels strings.Builder
	for i := range v1beta1.MaxClassLabels + 10 {
		fmt.Fprintf(&manyLabels, `"l%d":"",`, i)
	}
	objects := map[string]string{
		"Plain":        class("", `,"spec":{"zone":"a","more":{"zone":"a"}}`),
		"Escaped":      class("", `,"spec":{"zone":"`+strings.Repeat(`\u003c`, 5000)+`"}`),
		"JustLong":     class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 16<<10-20)+`"}`),
		"TooLong":      class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 16<<10)+`"}`),
		"MuchTooLong":  class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 200<<10)+`"}`),
		"LongBeside":   class(`,"z":"`+strings.Repeat("z", 200<<10)+`"`, `,"spec":{"zone":"a","more":"`+strings.Repeat(`z`, 200<<10)+`"}`),
		"Nested":       class("", `,"spec":{"zone":"a","more":`+nested+`}`),
		"NestedLists":  class("", `,"spec":{"zone":"a","more":`+strings.Repeat("[", 60)+`"zone"`+strings.Repeat("]", 60)+`}`),
		"ListInTheWay": class("", `,"spec":[{"zone":"a"}]`),
		"TextInTheWay": class("", `,"spec":"zone"`),
		"NullInTheWay": class("", `,"spec":null`),
		"Null":         class("", `,"spec":{"zone":null}`),
		"Number":       class("", `,"spec":{"zone":1,"more":[1.5,9223372036854775808,-0,1e300]}`),
		"Absent":       class("", ``),
		"Labelled":     `{"metadata":{"name":"a","annotations":{"default":"true"},"labels":{"zone":"a"}}}`,
		"ManyLabels": `{"metadata":{"name":"a","annotations":{"default":"true"},"labels":{` +
			manyLabels.String() + `"zone":"a"}}}`,
		"Annotated": class(`,"zone":"`+strings.Repeat(`\u003c`, 50)+`"`, ``),
	}
	for name, tc := range map[string]struct{ partition, fit v1beta1.Expression }{
		"Field":       {partition: "class.spec.zone"},
		"Whole":       {partition: "class.spec.exists(k, k == 'zone') ? class.spec.zone : ''"},
		"Deep":        {partition: "(type(class.spec.more) == map ? 'map' : '') + class.spec.zone"},
		"Fit":         {partition: "''", fit: "has(class.spec.more) || class.spec.zone == 'a'"},
		"Optional":    {partition: "class.?spec.?zone.orValue('none')"},
		"Annotations": {partition: "class.metadata.annotations.exists(k, k == 'zone') ? class.metadata.annotations.zone : 'none'"},
		"Label":       {partition: "class.metadata.labels.?zone.orValue('none')"},
		"Annotation":  {partition: "class.metadata.annotations.?zone.orValue('')"},
		"Metadata":    {partition: "class.metadata.?uid.orValue('') + class.metadata.name + class.kind"},
	} {
		t.Run(name, func(t *testing.T) {
			claims.Spec.Classes.Partition, claims.Spec.Classes.Fits = &v1beta1.Partition{Claim: "''", Class: tc.partition}, nil
			if tc.fit != "" {
				claims.Spec.Classes.Fits = []v1beta1.Fit{{Name: "Fit", Expression: tc.fit}}
			}
			k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}, Spec: v1beta1.ClassKindSpec{
				ClaimKinds: []v1beta1.ClaimKindLink{{Name: claims.Name}}, Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
			}}
			kind := inventory.NewClassKind(k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, claims)
			claimKind := NewClaimKind(claims, k)
			require.Nil(t, NewClaimKind(claims).fault)
			told := 0
			for what, text := range objects {
				_, reviewed, err := kind.DecodeValid([]byte(text))
				require.NoError(t, err, what)
				u := &unstructured.Unstructured{}
				require.NoError(t, kjson.Unmarshal([]byte(text), &u.Object), what)
				content := u.Object
				if kind.MetadataOnly() {
					content = nil
				}
				stored := kind.NewClass(u, content)
				require.True(t, reviewed.Default, "%s: We should see the mark, whatever is beside it.", what)
				require.True(t, stored.Default, what)
				want, offered, err := claimKind.SeatOf(stored)
				got, reviewedOffered, reviewedErr := claimKind.SeatOf(reviewed)
				assert.Equal(t, want, got, "%s: We should find the seat that the class will have.", what)
				assert.Equal(t, offered, reviewedOffered, what)
				assert.Equal(t, err == nil, reviewedErr == nil, "%s: %v, %v", what, err, reviewedErr)
				if err == nil && offered {
					told++
				}
			}
			assert.Positive(t, told, "We should try classes that have a seat.")
		})
	}
}

// TestStatusSeatsNobody because an update of the status is not guarded.
func TestStatusSeatsNobody(t *testing.T) {
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{{Name: "Accepted", Expression: "class.status.accepted && class.spec.size > 0"}}
	})
	view := e.with("a", map[string]any{"size": int64(1)}).view()
	class := view.Classes[0].All()[0]
	_, offered, err := view.Kind.SeatOf(class)
	require.NoError(t, err)
	assert.True(t, offered, "We should keep the seat for a class whose status may change unseen.")

	e.claims.Spec.Classes.Partition = &v1beta1.Partition{Claim: "''", Class: "class.status.zone"}
	require.NotNil(t, NewClaimKind(e.claims).fault)
	assert.Contains(t, NewClaimKind(e.claims).fault.Text, "spec.classes.partition.class: line 1, column 1: must not look at class.status")
}
