package selector

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

// TestAddReference applies the patches with the library that the API server uses.
func TestAddReference(t *testing.T) {
	type want struct{ patch, object string }
	for name, tc := range map[string]struct {
		reason string
		object string
		path   []string
		want   want
	}{
		"Leaf": {
			reason: "We should add the value beside what is there.",
			object: `{"spec":{"a":1}}`, path: []string{"spec", "classRef"},
			want: want{`[{"op":"add","path":"/spec/classRef","value":"gold"}]`, `{"spec":{"a":1,"classRef":"gold"}}`},
		},
		"NullLeaf": {
			reason: "We should replace null.",
			object: `{"spec":{"classRef":null}}`, path: []string{"spec", "classRef"},
			want: want{`[{"op":"add","path":"/spec/classRef","value":"gold"}]`, `{"spec":{"classRef":"gold"}}`},
		},
		"EmptyParent": {
			reason: "We should not replace a parent that is there.",
			object: `{"spec":{}}`, path: []string{"spec", "classRef"},
			want: want{`[{"op":"add","path":"/spec/classRef","value":"gold"}]`, `{"spec":{"classRef":"gold"}}`},
		},
		"NoParents": {
			reason: "We should add all parents in one operation.",
			object: `{"kind":"Claim"}`, path: []string{"spec", "a", "b", "classRef"},
			want: want{`[{"op":"add","path":"/spec","value":{"a":{"b":{"classRef":"gold"}}}}]`, `{"kind":"Claim","spec":{"a":{"b":{"classRef":"gold"}}}}`},
		},
		"NullParent": {
			reason: "We should put an object in the place of a parent that is null.",
			object: `{"spec":{"a":null,"z":1}}`, path: []string{"spec", "a", "classRef"},
			want: want{`[{"op":"add","path":"/spec/a","value":{"classRef":"gold"}}]`, `{"spec":{"a":{"classRef":"gold"},"z":1}}`},
		},
		"TopLevel": {
			reason: "We should add a value to the object itself.",
			object: `{"kind":"Claim"}`, path: []string{"className"},
			want: want{`[{"op":"add","path":"/className","value":"gold"}]`, `{"kind":"Claim","className":"gold"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(tc.object), &object))
			kind := kindOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: v1beta1.FieldPath("." + strings.Join(tc.path, "."))}, Form: v1beta1.Name}))
			patch := fields.Patch(kind.AddReference(kind.Parents(object), kind.Reference(claim.Target{Name: "gold"})))
			assert.Equal(t, tc.want.patch, string(patch), tc.reason)

			decoded, err := jsonpatch.DecodePatch(patch)
			require.NoError(t, err, tc.reason)
			patched, err := decoded.Apply([]byte(tc.object))
			require.NoError(t, err, tc.reason)
			assert.JSONEq(t, tc.want.object, string(patched), tc.reason)

			after, err := json.Marshal(object)
			require.NoError(t, err)
			assert.JSONEq(t, tc.object, string(after), "We should not change the object that was decoded.")
		})
	}
}

func TestPatch(t *testing.T) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	kind := kindOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.LocalObjectReference}))
	for _, text := range []string{"", "5e1f", `"`, `\`, "\x00\n\x1f", "<&>", "Größe", "\u2028", "\xff"} {
		want, err := json.Marshal([]operation{
			{"test", "/metadata/uid", text}, {"test", "/metadata/resourceVersion", "7"}, {"add", "/spec/classRef", map[string]any{"name": "a" + text}},
		})
		require.NoError(t, err)
		d := Decision{View: &View{Kind: kind}, Claim: claim.Intake{Parents: 1}, Class: &inventory.Class{Kind: &inventory.ClassKind{}, Name: "a" + text}}
		got := d.Patch(fields.Test("/metadata/uid", text), fields.Test("/metadata/resourceVersion", "7"))
		assert.JSONEq(t, string(want), string(got), "We should write the operations, and in their order.")
	}
}

// TestDecisionAnnotation applies what annotates a claim with the library that the API server uses.
func TestDecisionAnnotation(t *testing.T) {
	const record = `{\"reason\":\"AnyClass\",\"class\":\"Class/a\",\"strategy\":\"WeightedRandom\",\"candidates\":1,\"time\":\"2026-01-02T03:04:05Z\"}`
	inAnnotation := withReference(v1beta1.Reference{Place: v1beta1.Place{Annotation: "example.org/class"}, Form: v1beta1.Name})
	inSpec := withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.class"}, Form: v1beta1.Name})
	for name, tc := range map[string]struct {
		reason    string
		reference func(*v1beta1.ClaimKindSpec)
		annotate  v1beta1.Annotate
		object    string
		want      string
	}{
		"None":         {"We should annotate no claim unless its kind says so.", inSpec, v1beta1.AnnotateNothing, `{"spec":{}}`, `{"spec":{"class":"a"}}`},
		"First":        {"We should make the annotations.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{},"spec":{}}`, `{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`},
		"Null":         {"We should take null for none.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{"annotations":null}}`, `{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`},
		"Others":       {"We should keep the others.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b","classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`},
		"Forged":       {"We should replace what an author made up.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{"annotations":{"classbind.io/decision":"x"}}}`, `{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`},
		"InAnnotation": {"We should keep a reference that is an annotation.", inAnnotation, v1beta1.AnnotateDecision, `{"metadata":{}}`, `{"metadata":{"annotations":{"example.org/class":"a","classbind.io/decision":"` + record + `"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.reference, func(s *v1beta1.ClaimKindSpec) {
				s.Selector.WhenAbsent, s.Choice.Annotate = v1beta1.NoSelectorAny, tc.annotate
			})
			classes := inventory.NewClassKind(&v1beta1.ClassKind{}, schema.GroupVersionKind{Kind: "Class"}, false)
			view := NewView(kind, []*inventory.Classes{inventory.NewClasses(classes, []*inventory.Class{{Kind: classes, Name: "a", Weight: 1}})})
			object, err := kind.DecodeValid([]byte(tc.object))
			require.NoError(t, err)
			at := time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600))
			d, err := (&Decider{Now: func() time.Time { return at }}).Decide(t.Context(), view, kind.Read("", "mine", object), DryRun)
			require.NoError(t, err)
			patch, err := jsonpatch.DecodePatch(d.Patch())
			require.NoError(t, err)
			patched, err := patch.Apply([]byte(tc.object))
			require.NoError(t, err, tc.reason)
			assert.JSONEq(t, tc.want, string(patched), tc.reason)
		})
	}
}
