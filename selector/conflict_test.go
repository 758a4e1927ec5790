package selector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestConflict registers claim kinds of one resource, in the inventory and in a list.
func TestConflict(t *testing.T) {
	const volumes = "persistentvolumeclaims"
	kind := func(name, resource string, path v1alpha1.FieldPath, age int) v1alpha1.ClaimKind {
		k := *postgres()
		k.Name, k.Spec.Resource, k.Spec.Reference.Path = name, resource, path
		k.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
		return k
	}
	oldest, later := kind("oldest", volumes, ".spec.storageClassName", 3), kind("later", volumes, ".spec.storageClassName", 2)
	latest, bySecond := kind("latest", volumes, ".spec.storageClassName", 1), kind("a", volumes, ".spec.storageClassName", 1)
	attributes := kind("attributes", volumes, ".spec.volumeAttributesClassName", 1)
	unnamed := kind(volumes, "", ".spec.storageClassName", 1)
	other := kind("other", "volumes.example.org", ".spec.storageClassName", 1)
	for name, tc := range map[string]struct {
		reason string
		kinds  []v1alpha1.ClaimKind
		want   map[string]string // for which the others are served
	}{
		"Alone":             {"We should serve the only one.", []v1alpha1.ClaimKind{oldest}, nil},
		"OtherReference":    {"We should serve both references of a resource.", []v1alpha1.ClaimKind{oldest, attributes}, nil},
		"OtherResource":     {"We should serve both resources.", []v1alpha1.ClaimKind{oldest, other}, nil},
		"Older":             {"We should serve the older, and name it.", []v1alpha1.ClaimKind{later, oldest}, map[string]string{"later": "oldest"}},
		"OldestOfThree":     {"We should name the oldest to all others.", []v1alpha1.ClaimKind{latest, oldest, later}, map[string]string{"later": "oldest", "latest": "oldest"}},
		"FirstByName":       {"We should serve the first by name of two of one second.", []v1alpha1.ClaimKind{latest, bySecond}, map[string]string{"latest": "a"}},
		"ResourceIsTheName": {"We should take the name for the resource where none is set.", []v1alpha1.ClaimKind{oldest, unnamed}, map[string]string{volumes: "oldest"}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory()
			inventory.Open()
			for i := range tc.kinds {
				inventory.SetClaimKind(NewClaimKind(&tc.kinds[i]))
			}
			for i := range tc.kinds {
				k := &tc.kinds[i]
				view, older := inventory.Snapshot()[k.Name], tc.want[k.Name]
				assert.Equal(t, older != "", view.InConflict(), tc.reason)
				assert.Equal(t, view.Fault, ConflictOf(k, tc.kinds), "We should see the same in a list.")
				if older != "" {
					assert.Contains(t, view.Fault.Text, `claim kind "`+k.Name+`" binds no claim: "`+older+`", which was registered before it`, tc.reason)
				}
			}
		})
	}

	inventory := NewInventory()
	inventory.Open()
	inventory.SetClaimKind(NewClaimKind(&oldest))
	inventory.SetClaimKind(NewClaimKind(&later))
	require.True(t, inventory.Snapshot()["later"].InConflict())
	inventory.DeleteClaimKind("oldest")
	assert.False(t, inventory.Snapshot()["later"].InConflict(), "We should serve the later one when the older goes.")
	inventory.SetClaimKind(NewClaimKind(&oldest))
	require.True(t, inventory.Snapshot()["later"].InConflict(), "We should not serve it when the older comes after it.")
	moved := oldest
	moved.Spec.Reference.Path = ".spec.volumeAttributesClassName"
	inventory.SetClaimKind(NewClaimKind(&moved))
	assert.False(t, inventory.Snapshot()["later"].InConflict(), "We should serve the later one when the older takes another reference.")
}

func TestReads(t *testing.T) {
	k := postgres()
	k.Spec.Resource = "claims.example.org"
	claims := func(group, version, resource string) metav1.GroupVersionResource {
		return metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	unpinned := NewClaimKind(k)
	k.Status.Version = "v1"
	assert.True(t, unpinned.Reads(claims("example.org", "v2", "claims")), "We should read every version until one is known, and act on no status.")
	assert.False(t, unpinned.Reads(claims("example.org", "v2", "others")))
	assert.False(t, unpinned.Reads(claims("example.net", "v2", "claims")))
	k.Spec.Version = "v2"
	assert.True(t, NewClaimKind(k).Reads(claims("example.org", "v2", "claims")))
	assert.False(t, NewClaimKind(k).Reads(claims("example.org", "v1", "claims")), "We should read the version of the spec alone.")
}
