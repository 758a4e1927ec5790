package claim

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/rules"
)

// pool is a class that a reference of every form names in full.
var pool = Target{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, Namespace: "team", Name: "fast"}

// authored are the claims that an author may write: with each part of the reference to pool, fields that the form does not have, and nothing.
func authored(r *Reader) (all []map[string]any) {
	claim := func(reference any) map[string]any {
		object := map[string]any{
			"apiVersion": "example.org/v1", "kind": "Claim", "metadata": map[string]any{"name": "mine"}, "spec": map[string]any{"size": "1"},
		}
		if reference != nil {
			_ = unstructured.SetNestedField(object, reference, r.Reference.Path...)
		}
		return object
	}
	if !r.Reference.LeavesAbsent {
		all = append(all, claim(nil))
	}
	form := r.Reference.Form
	if !form.IsObject {
		if r.Reference.EmptyIsUnset {
			all = append(all, claim(""))
		}
		return all
	}
	for parts := range 1 << (len(form.Parts) + 1) {
		reference := map[string]any{}
		for i := range form.Parts {
			part := &form.Parts[i]
			switch {
			case parts>>i&1 == 0:
			case part.Role == v1beta1.NamePart: // Typed clients write an empty one.
				reference[part.Field()] = ""
			default:
				reference[part.Field()] = pool.Of(part)
			}
		}
		if parts>>len(form.Parts) == 1 {
			reference["major"] = int64(16)
		}
		object := claim(reference)
		if r.Read("team", "mine", object).LeftAlone == "" {
			all = append(all, object)
		}
	}
	return all
}

// given is what an author wrote of a reference. What is empty says nothing.
func given(r *Reader, object map[string]any) any {
	value, _ := r.Reference.Path.Lookup(object)
	reference, _ := value.(map[string]any)
	reference = maps.Clone(reference)
	maps.DeleteFunc(reference, func(_ string, v any) bool { return v == "" })
	if value == "" || len(reference) == 0 {
		return nil
	}
	return reference
}

// bound is a claim with its class, and with the decision or not.
func bound(t *testing.T, r *Reader, object map[string]any) map[string]any {
	t.Helper()
	in := r.Read("team", "mine", object)
	require.Empty(t, in.LeftAlone)
	require.Empty(t, in.Problems)
	text := ""
	if r.Annotates {
		text = "{}"
	}
	patch, err := jsonpatch.DecodePatch(r.Reference.Patch(&in, pool, text, nil))
	require.NoError(t, err)
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	raw, err = patch.Apply(raw)
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(raw))
	return u.Object
}

// TestUnbind binds the claims of every form of reference, whatever their author gave, at admission and later, and gets the author's claims
// back. Where it cannot know these, it says so; and it says so only where two authors' claims are the same once they are bound.
func TestUnbind(t *testing.T) {
	const places = 3
	claims, unknown := 0, 0
	for n := range len(Forms) * 2 * 2 * 2 * places {
		form, k := &Forms[n/(8*places)], &v1beta1.ClaimKind{}
		k.Name = "claims.example.org"
		k.Spec.Reference = v1beta1.Reference{Form: form.Name, Place: v1beta1.Place{Path: []v1beta1.FieldPath{".ref", ".spec.ref", ".spec.to.ref"}[n%places]}}
		if n/places&1 == 1 {
			k.Spec.Reference.WhenEmpty = v1beta1.LeaveEmptyAlone
		}
		if n/places&2 == 2 {
			k.Spec.Reference.WhenAbsent = v1beta1.LeaveAbsentAlone
		}
		if n/places&4 == 4 {
			k.Spec.Choice.Annotate = v1beta1.AnnotateDecision
		}
		r := NewReader(k, rules.NewForClaims(k))
		t.Run(fmt.Sprintf(
			"%s/%s/%s%s%s", form.Name, k.Spec.Reference.Path, k.Spec.Reference.WhenEmpty, k.Spec.Reference.WhenAbsent, k.Spec.Choice.Annotate,
		), func(t *testing.T) {
			writers, all := map[string][]any{}, authored(r)
			for _, object := range all {
				raw, err := json.Marshal(bound(t, r, object))
				require.NoError(t, err)
				writers[string(raw)] = append(writers[string(raw)], given(r, object))
			}
			for _, object := range all {
				want, has := given(r, object), bound(t, r, object)
				raw, err := json.Marshal(has)
				require.NoError(t, err)
				distinct := r.Reference.LeavesAbsent && !r.Reference.EmptyIsUnset // One must have begun it, and we do not look at what is left to choose.
				for _, other := range writers[string(raw)] {
					distinct = distinct || !assert.ObjectsAreEqual(want, other)
				}
				claims++
				value, _ := r.Reference.Path.Lookup(object)
				reference, _ := value.(map[string]any)
				_, named := reference["name"]
				for how, managed := range managedBy(t, object, has) {
					got := runtime.DeepCopyJSON(has)
					known := r.Reference.Unbind(got, managed)
					if !known {
						unknown++
						assert.True(t, distinct, "%s: %v: only one claim looks like this once it is bound.", how, object)
						continue
					}
					assert.Equal(t, want, given(r, got), "%s: We should get back what the author wrote: %v", how, object)
					assert.Equal(t, r.Read("team", "mine", object).Given, r.Read("team", "mine", got).Given, how)
					assert.Empty(t, r.Read("team", "mine", got).LeftAlone, how)
					assert.False(t, how == "without" && distinct, "We should not guess: %v", object)
				}
				if len(reference) > 0 && (!named || r.Annotates) {
					for _, how := range []string{"created", "applied"} {
						assert.True(t, r.Reference.Unbind(runtime.DeepCopyJSON(has), managedBy(t, object, has)[how]), "%s: the managed fields tell: %v", how, object)
					}
				}
			}
		})
	}
	t.Logf("%d claims, of which Unbind did not know what their author wrote %d times", claims, unknown)
}

// managedBy has the managed fields of a bound claim, by how it was written.
func managedBy(t *testing.T, object, has map[string]any) map[string][]metav1.ManagedFieldsEntry {
	t.Helper()
	all := map[string][]metav1.ManagedFieldsEntry{"without": nil}
	newManager := func() managedfieldstest.TestFieldManager {
		return managedfieldstest.NewTestFieldManager(managedfields.NewDeducedTypeConverter(), schema.GroupVersionKind{
			Group:   "example.org",
			Version: "v1",
			Kind:    "Claim",
		})
	}
	of := func(object map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	}
	m := newManager()
	require.NoError(t, m.Update(of(object), "kubectl-create")) // Before admission, which leaves no trace.
	all["created"] = m.ManagedFields()
	require.NoError(t, m.Update(of(has), v1beta1.FieldManager))
	all["bound later"] = m.ManagedFields()
	m = newManager()
	require.NoError(t, m.Apply(of(object), "argo", false))
	all["applied"] = m.ManagedFields()
	m = newManager()
	require.NoError(t, m.Update(of(has), "velero")) // It restores the claim as it was.
	all["restored"] = m.ManagedFields()
	return all
}
