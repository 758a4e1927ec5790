package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// poisonedClaims are stored as an update or an outage of ours would have had them
// stored, and cost as much as possible to read. The leader ends, and the next has
// to read them, too, and to bind a claim that waits.
func (b *besieged) poisonedClaims(t *testing.T) {
	claims := map[string]map[string]any{}
	for i := range 12 {
		key, claim := stored("LaterClaim", tenantA, fmt.Sprint("poisoned-", i), nil)
		var terms []any
		switch i % 4 {
		case 0:
			for range 4000 {
				terms = append(terms, map[string]any{})
			}
		case 1:
			for range 5000 {
				terms = append(terms, map[string]any{"key": "", "operator": ""})
			}
		case 2:
			var values []any
			for v := range 80_000 {
				values = append(values, fmt.Sprint("v-", v))
			}
			terms = append(terms, map[string]any{"key": "number", "operator": "In", "values": values})
		default:
			claim["metadata"].(map[string]any)["annotations"] = map[string]any{v1alpha1.ClassSelectorAnnotation: strings.Repeat("!a,", 80_000) + "!a"}
		}
		if terms != nil {
			claim["spec"] = map[string]any{"classSelector": map[string]any{"matchExpressions": terms}}
		}
		claims[key] = claim
	}
	b.store(t, claims)
	defer b.forget(t, "LaterClaim")

	b.replaceLeader(t)
	b.bindsLate(t, "after-poison")
}

// bindsLate has an honest claim wait, and then makes a class for it.
func (b *besieged) bindsLate(t *testing.T, name string) {
	t.Helper()
	const soon = 10 * time.Second
	claim := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"awaited": name}}},
	}}
	claim.SetGroupVersionKind(hostileKind("LaterClaim"))
	claim.SetNamespace(honestNamespace)
	claim.SetName("waits-" + name)
	require.NoError(t, b.honest.Create(t.Context(), claim))
	require.Empty(t, classOf(claim))
	b.apply(t, class(hostileGroup, "Alpha", "awaited-"+name, "labels: {awaited: "+name+"}, "))
	begin := time.Now()
	bound := assert.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, b.honest.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		require.NotEmpty(c, classOf(claim))
	}, soon, 20*time.Millisecond, "We should go on binding the claims of others that wait.")
	if bound {
		t.Logf("The claim that waited was bound after %s.", time.Since(begin).Round(time.Millisecond))
	}
	assert.NoError(t, b.honest.Delete(t.Context(), claim))
}

// waitingClaims are many of one author, each with a selector of its own, nearly as
// long as the leader keeps one.
func (b *besieged) waitingClaims(t *testing.T) {
	ctx := b.attack
	const waiting = 14_000
	claims := map[string]map[string]any{}
	for i := range waiting {
		key, claim := stored("LaterClaim", tenantA, fmt.Sprint("waits-", i), nil)
		var terms []any
		for n := range 16 {
			terms = append(terms, map[string]any{"key": fmt.Sprintf("key-%d", n), "operator": "In", "values": []any{fmt.Sprintf("value-%d-%d-of-the-claims-that-wait", i, n)}})
		}
		claim["spec"] = map[string]any{"classSelector": map[string]any{"matchExpressions": terms}}
		claims[key] = claim
	}
	b.store(t, claims)
	defer func() {
		b.forget(t, "LaterClaim")
		b.awaitWaiting(t, hostileResource("LaterClaim"), 0)
	}()
	b.awaitWaiting(t, hostileResource("LaterClaim"), waiting)
	b.bindsLate(t, "beside-many")
	<-ctx.Done()
}
