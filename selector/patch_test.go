package selector

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
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
		d := Decision{View: &View{offer: offer{Kind: kind}}, Claim: claim.Intake{Parents: 1}, Class: &Class{Kind: &ClassKind{}, Name: "a" + text}}
		got := d.Patch(fields.Test("/metadata/uid", text), fields.Test("/metadata/resourceVersion", "7"))
		assert.JSONEq(t, string(want), string(got), "We should write the operations, and in their order.")
	}
}
