package selector

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// enumerated calls a function with each field of a schema that is an enumeration: its path, and an object that has
// nothing but a value there.
func enumerated(s *apiextensionsv1.JSONSchemaProps, path string, around func(value any) any, call func(path string, object func(value any) any)) {
	if len(s.Enum) > 0 {
		call(path, around)
	}
	for name := range s.Properties {
		enumerated(new(s.Properties[name]), path+"."+name, func(value any) any {
			object := map[string]any{name: value}
			for _, required := range s.Required {
				if required != name {
					object[required] = "a"
				}
			}
			return around(object)
		}, call)
	}
	if s.Items != nil {
		enumerated(s.Items.Schema, path+"[0]", func(value any) any { return around([]any{value}) }, call)
	}
}

// TestEnumerationsAreOpen gives each field of a ClaimKind that is an enumeration a value of a later release.
func TestEnumerationsAreOpen(t *testing.T) {
	text, err := os.ReadFile("../deploy/crd/classbind.io_claimkinds.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := 0
	enumerated(&spec, "spec", func(value any) any { return value }, func(path string, object func(value any) any) {
		fields++
		k := postgres()
		k.Spec = v1beta1.ClaimKindSpec{}
		text, err := json.Marshal(object("FromALaterRelease"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &k.Spec))
		view := newView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(newKind("as.example.org", "Class"), nil)})
		require.NotNil(t, view.Fault, path)
		assert.Equal(t, v1beta1.ReasonUnknownValue, view.Fault.Reason, path)
		assert.Contains(t, view.Fault.Text, `has the `+strings.TrimPrefix(path, "spec.")+` "FromALaterRelease"`)
		assert.Contains(t, view.Fault.Text, "set "+path+" to one of ")
	})
	assert.GreaterOrEqual(t, fields, 13, "We should find them.")
}

func TestWatchesClaims(t *testing.T) {
	serving := func(onDelete v1beta1.OnDelete) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{OnDelete: onDelete}}
	}
	warns := serving(v1beta1.WarnOfDeletion)
	for name, tc := range map[string]struct {
		reason           string
		unmatched        v1beta1.WhenUnmatched
		strategy         v1beta1.Strategy
		serving          []*v1beta1.ClassKind
		counted, watched bool
	}{
		"Neither":      {reason: "We should watch no claims for nothing.", serving: []*v1beta1.ClassKind{warns, serving(v1beta1.AllowDeletion), serving("")}},
		"BindLater":    {reason: "We should watch claims to bind them.", unmatched: v1beta1.BindLater, watched: true},
		"LeastClaims":  {reason: "We should watch claims for a strategy.", strategy: v1beta1.LeastClaims, counted: true, watched: true},
		"Deny":         {reason: "We should watch claims for one class kind of several.", serving: []*v1beta1.ClassKind{warns, serving(v1beta1.DenyDeletion)}, counted: true, watched: true},
		"LaterRelease": {reason: "We should take a value that we do not know for Deny.", serving: []*v1beta1.ClassKind{serving("FromALaterRelease")}, counted: true, watched: true},
		"LaterAndDeny": {reason: "We should count claims that are watched anyway.", unmatched: v1beta1.BindLater, serving: []*v1beta1.ClassKind{serving(v1beta1.DenyDeletion)}, counted: true, watched: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.WhenUnmatched, k.Spec.Choice.Strategy = tc.unmatched, tc.strategy
			kind, alone := NewClaimKind(k, tc.serving...), NewClaimKind(k)
			assert.Equal(t, []bool{tc.counted, tc.watched}, []bool{kind.Counted, kind.Watched}, tc.reason)
			assert.Equal(t, kind.Counted == alone.Counted, kind.Same(alone), "We should compile a claim kind again once its claims are to be counted.")
		})
	}
}

// TestConflict registers claim kinds of one resource, in the inventory and in a list.
func TestConflict(t *testing.T) {
	const volumes = "persistentvolumeclaims"
	kind := func(name, resource string, path v1beta1.FieldPath) v1beta1.ClaimKind {
		k := *postgres()
		k.Name, k.Spec.Claims.Resource, k.Spec.Reference.Path = name, resource, path
		return k
	}
	created := func(k v1beta1.ClaimKind, second int64) v1beta1.ClaimKind {
		k.CreationTimestamp = metav1.Unix(second, 0)
		return k
	}
	a, b := kind("a", volumes, ".spec.storageClassName"), kind("b", volumes, ".spec.storageClassName")
	c, dotted := kind("c", volumes, ".spec.storageClassName"), kind("b.a", volumes, ".spec.storageClassName")
	attributes := kind("attributes", volumes, ".spec.volumeAttributesClassName")
	unnamed := kind(volumes, "", ".spec.storageClassName")
	other := kind("other", "volumes.example.org", ".spec.storageClassName")
	for name, tc := range map[string]struct {
		reason string
		kinds  []v1beta1.ClaimKind
		want   map[string]string // for which the others are served
	}{
		"Alone":             {"We should serve the only one.", []v1beta1.ClaimKind{a}, nil},
		"OtherReference":    {"We should serve both references of a resource.", []v1beta1.ClaimKind{a, attributes}, nil},
		"OtherResource":     {"We should serve both resources.", []v1beta1.ClaimKind{a, other}, nil},
		"FirstByName":       {"We should serve the first by name, and name it.", []v1beta1.ClaimKind{b, a}, map[string]string{"b": "a"}},
		"FirstOfThree":      {"We should name the first to all others.", []v1beta1.ClaimKind{c, a, b}, map[string]string{"b": "a", "c": "a"}},
		"ByBytes":           {"We should compare the bytes of names.", []v1beta1.ClaimKind{dotted, b}, map[string]string{"b.a": "b"}},
		"Created":           {"We should serve the first by name that was created first.", []v1beta1.ClaimKind{created(a, 1), created(b, 2)}, map[string]string{"b": "a"}},
		"Restored":          {"We should serve the same where a restore creates them in another order.", []v1beta1.ClaimKind{created(a, 2), created(b, 1)}, map[string]string{"b": "a"}},
		"ResourceIsTheName": {"We should take the name for the resource where none is set.", []v1beta1.ClaimKind{a, unnamed}, map[string]string{volumes: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory()
			inventory.Open()
			for i := range tc.kinds {
				inventory.SetClaimKind(NewClaimKind(&tc.kinds[i]))
			}
			for i := range tc.kinds {
				k := &tc.kinds[i]
				view, first := inventory.Snapshot()[k.Name], tc.want[k.Name]
				assert.Equal(t, first != "", view.Conflict != nil, tc.reason)
				assert.Nil(t, view.Fault, "We should bind claims where the leader has us asked.")
				assert.Equal(t, view.Conflict, ConflictOf(k, tc.kinds), "We should see the same in a list.")
				if first != "" {
					assert.Contains(t, view.Conflict.Text, `claim kind "`+k.Name+`" binds no claim: "`+first+`", whose name comes first`, tc.reason)
				}
			}
		})
	}

	inventory := NewInventory()
	inventory.Open()
	inventory.SetClaimKind(NewClaimKind(&a))
	inventory.SetClaimKind(NewClaimKind(&b))
	require.NotNil(t, inventory.Snapshot()["b"].Conflict)
	inventory.DeleteClaimKind("a")
	assert.Nil(t, inventory.Snapshot()["b"].Conflict, "We should serve the other when the first goes.")
	inventory.SetClaimKind(NewClaimKind(&a))
	require.NotNil(t, inventory.Snapshot()["b"].Conflict, "We should not serve it when the first comes after it.")
	moved := a
	moved.Spec.Reference.Path = ".spec.volumeAttributesClassName"
	inventory.SetClaimKind(NewClaimKind(&moved))
	assert.Nil(t, inventory.Snapshot()["b"].Conflict, "We should serve the other when the first takes another reference.")
}

func TestReads(t *testing.T) {
	k := postgres()
	k.Spec.Claims.Resource = "claims.example.org"
	claims := func(group, version, resource string) metav1.GroupVersionResource {
		return metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	unpinned := NewClaimKind(k)
	k.Status.Version = "v1"
	assert.True(t, unpinned.Reads(claims("example.org", "v2", "claims")), "We should read every version until one is known, and act on no status.")
	assert.False(t, unpinned.Reads(claims("example.org", "v2", "others")))
	assert.False(t, unpinned.Reads(claims("example.net", "v2", "claims")))
	k.Spec.Claims.Version = "v2"
	assert.True(t, NewClaimKind(k).Reads(claims("example.org", "v2", "claims")))
	assert.False(t, NewClaimKind(k).Reads(claims("example.org", "v1", "claims")), "We should read the version of the spec alone.")
}

// TestNamespaces holds the rule of the webhook configuration, as the API server applies
// it, against the one that late binding and explain apply.
func TestNamespaces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	values := []v1beta1.LabelValue{"a", "b", ""}
	for range 500 {
		s := v1beta1.NamespaceSelector{}
		if random.IntN(2) == 0 {
			s.MatchLabels = map[string]v1beta1.LabelValue{"team": values[random.IntN(3)]}
		}
		if random.IntN(2) == 0 {
			s.MatchExpressions = []v1beta1.NamespaceSelectorRequirement{{Key: "env", Operator: "NotIn", Values: values[:1+random.IntN(2)]}}
		}
		namespaces, err := claim.NewNamespaces(s, "classbind-system")
		require.NoError(t, err)
		entry, err := metav1.LabelSelectorAsSelector(claim.NamespaceSelector(s, "classbind-system"))
		require.NoError(t, err)
		for _, name := range []string{"kube-system", "classbind-system", "team-a"} {
			set := labels.Set{"kubernetes.io/metadata.name": name}
			for _, key := range []string{"team", "env"} {
				if random.IntN(2) == 0 {
					set[key] = string(values[random.IntN(3)])
				}
			}
			want := entry.Matches(set)
			assert.Equal(t, want, namespaces.Select(name, set), "%s %v %v", name, s, set)
			if selected, known := namespaces.Known(name); known {
				assert.Equal(t, want, selected)
			}
		}
		selected, known := namespaces.Known("")
		assert.True(t, selected && known, "We should bind claims of no namespace, as the API server asks us to.")
	}
	_, err := claim.NewNamespaces(v1beta1.NamespaceSelector{MatchExpressions: []v1beta1.NamespaceSelectorRequirement{{Key: "-", Operator: "Exists"}}}, "classbind-system")
	require.ErrorContains(t, err, "spec.claims.namespaceSelector")
	later := v1beta1.NamespaceSelector{MatchExpressions: []v1beta1.NamespaceSelectorRequirement{{Key: "env", Operator: "Matches"}, {Key: "team", Operator: "Exists"}}}
	assert.Len(t, claim.NamespaceSelector(later, "classbind-system").MatchExpressions, 2, "We should leave out what the API server may not know.")
}
