package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// expressions is the field of a selector with so many terms, separated by commas.
func expressions(term string, n int) string {
	return `"classSelector":{"matchExpressions":[` + strings.TrimSuffix(strings.Repeat(term+",", n), ",") + `]}`
}

// values is a term that has so many.
func values(n int) string {
	var text strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&text, `,"v-%08d"`, i)
	}
	return `{"key":"number","operator":"In","values":[` + text.String()[1:] + `]}`
}

// selectorAnnotation as JSON.
func selectorAnnotation(text string) string {
	return fmt.Sprintf("%q:%q", v1alpha1.ClassSelectorAnnotation, text)
}

// emptyTerms are dry runs of claims whose selector has thousands of terms without
// anything in them.
func (b *besieged) emptyTerms(_ *testing.T) {
	ctx := b.attack
	terms := []string{expressions("{}", 4000), expressions(`{"key":"","operator":""}`, 5000)}
	attackers(ctx, 4, 50*time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		b.mallory.create(ctx, kind, true, claimOf(kind, "empty-terms", terms[i%2], ""))
	})
}

// longAnnotation is the selector that excludes most often, as long as the API
// server takes annotations.
func (b *besieged) longAnnotation(_ *testing.T) {
	ctx := b.attack
	claim := claimOf("AdmitClaim", "long", "", selectorAnnotation(strings.Repeat("!a,", 80_000)+"!a"))
	attackers(ctx, 4, 100*time.Millisecond, func(int) { b.mallory.create(ctx, "AdmitClaim", true, claim) })
}

// largeSelector is as large as the API server takes a claim, five at once.
func (b *besieged) largeSelector(_ *testing.T) {
	ctx := b.attack
	claim := claimOf("AdmitClaim", "large", expressions(values(220_000), 1), "")
	attackers(ctx, 5, 2*time.Second, func(int) { b.mallory.create(ctx, "AdmitClaim", true, claim) })
}

// liveReads are dry runs of claims with selectors that match nothing, each
// another, while an honest claim that matches nothing is answered, too.
func (b *besieged) liveReads(t *testing.T) {
	ctx := b.attack
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { b.honestMisses(t) })
	attackers(ctx, 40, time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim"}[i%3]
		b.mallory.create(ctx, kind, true, claimOf(kind, "unmatched", fmt.Sprintf(`"classSelector":{"matchLabels":{"pool":"nowhere-%d"}}`, i), ""))
	})
}

// honestMisses are honest claims that no known class matches.
func (b *besieged) honestMisses(t *testing.T) {
	ctx := b.attack
	attackers(ctx, 1, 500*time.Millisecond, func(i int) {
		claim := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"pool": fmt.Sprint("not-there-", i)}}},
		}}
		claim.SetGroupVersionKind(hostileKind("AdmitClaim"))
		claim.SetNamespace(honestNamespace)
		claim.SetName(fmt.Sprint("unmatched-", i))
		if err := b.honest.Create(ctx, claim, client.DryRunAll); ctx.Err() == nil {
			assert.NoError(t, err, "We should answer an honest claim that no known class matches.")
		}
	})
}

// unmatchedSelector matches nothing: of five and of twelve KiB, which is a
// selector, and of two MB, which is none.
func (b *besieged) unmatchedSelector(t *testing.T) {
	ctx := b.attack
	selectors := []string{expressions(values(380), 1), expressions(values(900), 1), expressions(values(150_000), 1)}
	wants := []int{http.StatusForbidden, http.StatusForbidden, http.StatusUnprocessableEntity}
	attackers(ctx, 3, 300*time.Millisecond, func(i int) {
		i %= len(selectors)
		status, text := b.mallory.create(ctx, "DenyClaim", true, claimOf("DenyClaim", "unmatched", selectors[i], ""))
		if ctx.Err() != nil {
			return
		}
		assert.Equal(t, wants[i], status, "%.400s", text)
		assert.NotContains(t, text, "labelSelector=", "We should put no URL into an answer.")
	})
}

// escapedClaim has a field of a character that Go's JSON writes as six.
func (b *besieged) escapedClaim(_ *testing.T) {
	ctx := b.attack
	claim := claimOf("AdmitClaim", "escaped", `"classSelector":{"matchLabels":{"pool":"common"}},"note":"`+strings.Repeat("<", 750<<10)+`"`, "")
	attackers(ctx, 1, time.Second, func(int) { b.mallory.create(ctx, "AdmitClaim", true, claim) })
}
