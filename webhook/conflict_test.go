package webhook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// TestReviewInConflict has a replica that knows two ClaimKinds with the same reference, and
// is asked by the entry of the newer. The API server may know better.
func TestReviewInConflict(t *testing.T) {
	const newer = "z-newer"
	late := newRegistration(func(s *v1alpha1.ClaimKindSpec) { s.Resource = claimKindName })
	late.Name = newer
	moved := newRegistration(func(s *v1alpha1.ClaimKindSpec) { s.Reference.Path = ".spec.otherRef" })
	golds := newClassKind("golds", "Gold", false)
	golds.ClaimKinds = []string{newer}
	for name, tc := range map[string]struct {
		reason string
		older  *v1alpha1.ClaimKind // of the API server
		err    error
		hears  time.Duration // how long the replica takes to hear that the older is gone; 0 means it does not
		want   string
		fails  string
	}{
		"Served":      {reason: "We should leave a claim to the older, which is asked, too.", older: newRegistration(), want: v1alpha1.ReasonConflict},
		"Gone":        {reason: "We should wait until we hear that the older is gone, and bind the claim.", hears: registrationWait / 2, want: "MatchingClass"},
		"GoneForLong": {reason: "We should not let a claim pass without a class that nobody else binds.", fails: `claim kind "z-newer" is not registered on this replica yet; try again in a moment`},
		"Moved":       {reason: "We should do the same if the older takes another reference.", older: moved, hears: registrationWait / 2, want: "MatchingClass"},
		"NotTold":     {reason: "We should not take the older for gone if we could not ask.", err: errors.New("connection refused"), fails: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inventory := newInventory(newClaimKind(), index(golds, "gold tier=gold"))
				inventory.SetClaimKind(selector.NewClaimKind(late))
				require.True(t, inventory.Snapshot()[newer].InConflict())
				binder, asked := newBinder(t, inventory), map[string]int{}
				binder.ClaimKind = func(_ context.Context, name string) (*v1alpha1.ClaimKind, error) {
					asked[name]++
					if name == newer {
						return late, nil
					}
					return tc.older, tc.err
				}
				if tc.hears > 0 {
					time.AfterFunc(tc.hears, func() { inventory.DeleteClaimKind(claimKindName) })
				}
				response, _, err := binder.Review(t.Context(), newer, newRequest(wantsGold))
				assert.Equal(t, map[string]int{newer: 1, claimKindName: 1}, asked, "We should ask for each once.")
				if tc.fails != "" {
					require.EqualError(t, err, tc.fails, tc.reason)
					return
				}
				require.NoError(t, err, tc.reason)
				assert.Equal(t, tc.want, response.AuditAnnotations["reason"], tc.reason)
				assert.Equal(t, tc.hears > 0, response.Patch != nil, tc.reason)
			})
		})
	}
}
