package selector

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

func TestReference(t *testing.T) {
	cluster := &inventory.ClassKind{GroupVersionKind: schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}}
	namespaced := &inventory.ClassKind{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1beta1", Kind: "QueueClass"}, Namespaced: true}
	core := &inventory.ClassKind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}}
	cases := map[string]struct {
		reason string
		format v1beta1.ReferenceForm
		class  *inventory.Class
		want   string
	}{
		"ObjectReference": {
			reason: "We should name version, kind and name, and no uid",
			format: v1beta1.ObjectReference,
			class:  &inventory.Class{Kind: cluster, Name: "fast"},
			want:   `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","name":"fast"}`,
		},
		"ObjectReferenceWithNamespace": {
			reason: "We should name the namespace of a class that has one",
			format: v1beta1.ObjectReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"apiVersion":"example.org/v1beta1","kind":"QueueClass","namespace":"team","name":"fast"}`,
		},
		"ObjectReferenceOfTheCoreGroup": {
			reason: "We should write a core version without a group",
			format: v1beta1.ObjectReference,
			class:  &inventory.Class{Kind: core, Name: "fast"},
			want:   `{"apiVersion":"v1","kind":"Node","name":"fast"}`,
		},
		"TypedLocalObjectReference": {
			reason: "We should name the group without its version",
			format: v1beta1.TypedLocalObjectReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"apiGroup":"example.org","kind":"QueueClass","name":"fast"}`,
		},
		"TypedLocalObjectReferenceOfTheCoreGroup": {
			reason: "We should leave out the core group, as Kubernetes does",
			format: v1beta1.TypedLocalObjectReference,
			class:  &inventory.Class{Kind: core, Name: "fast"},
			want:   `{"kind":"Node","name":"fast"}`,
		},
		"TypedObjectReference": {
			reason: "We should name the group without its version, and the namespace",
			format: v1beta1.TypedObjectReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"apiGroup":"example.org","kind":"QueueClass","namespace":"team","name":"fast"}`,
		},
		"GroupKindReference": {
			reason: "We should name the group in a field of that name",
			format: v1beta1.GroupKindReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"group":"example.org","kind":"QueueClass","name":"fast"}`,
		},
		"KindReference": {
			reason: "We should name the Kind alone",
			format: v1beta1.KindReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"kind":"QueueClass","name":"fast"}`,
		},
		"NamespacedReference": {
			reason: "We should name the namespace without the kind",
			format: v1beta1.NamespacedReference,
			class:  &inventory.Class{Kind: namespaced, Namespace: "team", Name: "fast"},
			want:   `{"namespace":"team","name":"fast"}`,
		},
		"NamespacedReferenceOfAClassWithoutNamespace": {
			reason: "We should leave out what the class does not have",
			format: v1beta1.NamespacedReference,
			class:  &inventory.Class{Kind: cluster, Name: "fast"},
			want:   `{"name":"fast"}`,
		},
		"LocalObjectReference": {
			reason: "We should name the class alone",
			format: v1beta1.LocalObjectReference,
			class:  &inventory.Class{Kind: cluster, Name: "fast"},
			want:   `{"name":"fast"}`,
		},
		"Name": {
			reason: "We should write a string",
			format: v1beta1.Name,
			class:  &inventory.Class{Kind: cluster, Name: "fast"},
			want:   `"fast"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Reference.Form = tc.format
			got, err := json.Marshal(NewClaimKind(k).Reference(tc.class.Target()))
			require.NoError(t, err, tc.reason)
			assert.JSONEq(t, tc.want, string(got), tc.reason)
		})
	}
}

// Every form is read as it is written, from the fields that a claim's reader keeps.
func TestReferencesAreReadBack(t *testing.T) {
	for _, form := range claim.Forms {
		for _, namespace := range []string{"", "team"} {
			k := postgres()
			k.Spec.Reference.Form = form.Name
			kind := NewClaimKind(k)
			classKind := newKind("golds.example.org", "Gold")
			classKind.Namespaced = namespace != ""
			gold := classKind.NewClass(&metav1.ObjectMeta{Namespace: namespace, Name: "gold"}, nil)
			claim := fmt.Sprintf(`{"spec":{"classRef":%s}}`, kind.Reference(gold.Target()))
			object, err := kind.DecodeValid([]byte(claim))
			require.NoError(t, err)
			classes, bound := kind.BoundTo("team", object)
			assert.True(t, bound, "We should see that %s is bound.", claim)
			assert.Contains(t, classes, kind.CountedAs(gold), "We should count %s for its class.", claim)
			class, missing := kind.ClassOf([]*inventory.Classes{inventory.NewClasses(classKind, []*inventory.Class{gold})}, "team", object)
			assert.Equal(t, gold, class, "We should find the class that %s names.", claim)
			assert.Empty(t, missing)
			assert.True(t, kind.NamesClass(object), "We should see a name in %s.", claim)
		}
	}
}

// TestFormsAreThoseOfTheAPI has a row for each form that a ClaimKind may have.
func TestFormsAreThoseOfTheAPI(t *testing.T) {
	type says struct {
		kind      claim.KindNaming
		namespace bool
	}
	want := map[v1beta1.ReferenceForm]says{
		v1beta1.ObjectReference:           {claim.GroupAndKind, true},
		v1beta1.TypedObjectReference:      {claim.GroupAndKind, true},
		v1beta1.TypedLocalObjectReference: {claim.GroupAndKind, false},
		v1beta1.GroupKindReference:        {claim.GroupAndKind, false},
		v1beta1.KindReference:             {claim.KindAlone, false},
		v1beta1.NamespacedReference:       {claim.NoKind, true},
		v1beta1.LocalObjectReference:      {claim.NoKind, false},
		v1beta1.Name:                      {claim.NoKind, false},
	}
	got := map[v1beta1.ReferenceForm]says{}
	for _, f := range claim.Forms {
		got[f.Name] = says{f.NamesKind, f.NamesNamespace}
	}
	assert.Equal(t, want, got)
}
