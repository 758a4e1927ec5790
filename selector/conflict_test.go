package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

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
