package webhook

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
)

// TestReviewInConflict has a replica that knows two ClaimKinds with the same reference. The
// leader has the API server ask by the entry of one of them, and may know better which.
func TestReviewInConflict(t *testing.T) {
	const second = "z-second"
	later := newRegistration(func(s *v1beta1.ClaimKindSpec) { s.Claims.Resource = claimKindName })
	later.Name = second
	golds := newClassKind("golds", "Gold", false)
	golds.ClaimKinds = []string{second}
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold"))
	inventory.SetClaimKind(selector.NewClaimKind(later))
	inventory.SetClasses(index(golds, "gold tier=gold"))
	require.NotNil(t, inventory.Snapshot()[second].Conflict)
	for claimKind, kind := range map[string]string{claimKindName: sqlClasses.GroupVersionKind.Kind, second: "Gold"} {
		response, _, err := newBinder(t, inventory).Review(t.Context(), claimKind, newRequest(wantsGold))
		require.NoError(t, err)
		assert.Equal(t, "MatchingClass", response.AuditAnnotations["reason"])
		assert.Contains(t, string(response.Patch), `"`+kind+`"`, "We should bind a claim by the ClaimKind whose entry asks.")
	}
}
