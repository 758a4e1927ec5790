package latebinding

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDeepClaims has a claim so deep that a list or an event around it is deeper than
// decoders go.
func TestDeepClaims(t *testing.T) {
	const deepest = 10_000 // The API server takes no deeper object: it reads it with sigs.k8s.io/json.
	deep := fmt.Sprintf(`{"classSelector":{"matchLabels":{"tier":"gold"}},"other":%s}`, strings.Repeat("[", deepest-2)+strings.Repeat("]", deepest-2))
	for name, pages := range map[string]bool{"Pages": true, "Streamed": false} {
		t.Run(name, func(t *testing.T) {
			s := newClaimServer(t)
			if pages {
				s.refuse("watchlist", http.StatusUnprocessableEntity)
			}
			s.set(t, "team-a/first", wantsGold)
			s.set(t, "team-a/second", deep)
			s.set(t, "team-a/third", wantsGold)
			r := newLateReplica(t, s, lateClaimKind())
			r.awaitCounts(t, ClaimCounts{Waiting: 3})
			eventually(t, "We should watch the claims.", func(c *assert.CollectT) {
				s.mu.Lock()
				defer s.mu.Unlock()
				assert.Len(c, s.watchers, 1)
			})
			s.set(t, "team-b/later", deep)
			s.set(t, "team-b/last", wantsGold)
			r.awaitCounts(t, ClaimCounts{Waiting: 5})
			r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
			r.lead(t)
			r.awaitCounts(t, ClaimCounts{Bound: 5})
		})
	}
}
