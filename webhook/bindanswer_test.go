package webhook

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// TestReviewOfConvertedClaims leaves to the API server what it refuses: it validates a claim
// by the schema of the version in which it was sent.
func TestReviewOfConvertedClaims(t *testing.T) {
	requiring := newClaimKind()
	requiring.SetPaths(selector.PathsCheck{Required: []v1beta1.FieldPath{".spec.classRef"}})
	binder := newBinder(t, newInventory(requiring, index(sqlClasses, "silver tier=silver")))
	binder.Decider.Live = nil
	for sent, allowed := range map[string]bool{"v1": false, "v1beta1": true} {
		response, err := byResource(binder)(t.Context(), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) {
			r.RequestResource = &metav1.GroupVersionResource{Group: r.Resource.Group, Version: sent, Resource: r.Resource.Resource}
		}))
		require.NoError(t, err)
		assert.Equal(t, allowed, response.Allowed, "sent as %s", sent)
		assert.Equal(t, allowed, len(response.Warnings) == 1, "We should warn of what we do not refuse, sent as %s.", sent)
	}
}

func TestReviewOfUnmatchedClaims(t *testing.T) {
	const noMatch = `no class for this claim of "postgresqlinstances.database.example.org" matches the selector "tier=gold" ` +
		`(among 3 classes of sqlclasses.example.org; dropped: 1 cordoned, 1 of weight 0): change the selector, or create or label a class`
	audit := map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}
	for whenUnmatched, want := range map[v1beta1.WhenUnmatched]*admissionv1.AdmissionResponse{
		v1beta1.Admit: {Allowed: true, Warnings: []string{noMatch}, AuditAnnotations: audit},
		v1beta1.Deny: forbidden(`postgresqlinstances.database.example.org "db" is forbidden: `+noMatch,
			metav1.StatusDetails{Group: "database.example.org", Kind: "postgresqlinstances", Name: "db"}, audit),
	} {
		kind := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.WhenUnmatched = whenUnmatched })
		golds := []string{"cordoned tier=gold @classbind.io/cordoned=true", "none tier=gold @weight=0"}
		binder := newBinder(t, newInventory(kind, index(sqlClasses, append(golds, "silver tier=silver")...)))
		// The API server selects, so the live view has the matches alone; the
		// message should still say among how many classes we looked.
		binder.Decider.Live = asLive(selector.NewView(kind, []*inventory.Classes{index(sqlClasses, golds...)}))
		response, err := byResource(binder)(t.Context(), newRequest(wantsGold))
		require.NoError(t, err)
		assert.Equal(t, want, response, "We should warn, or refuse, and say what was looked for and what was dropped.")
	}
}

func TestReviewSaysWhy(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
	inv := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold", "cordoned tier=gold @classbind.io/cordoned=true"))
	binder := newBinder(t, inv)

	bound, err := byResource(binder)(logr.NewContext(t.Context(), log), newRequest(wantsGold))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"class": "SQLClass/gold", "candidates": "1", "dropped": "Cordoned=1", "reason": "MatchingClass", "strategy": "WeightedRandom",
	}, bound.AuditAnnotations, "We should say why in the audit log.")
	require.Len(t, lines, 1, "We should log one line a review, at the level debug.")
	for _, part := range []string{`"class"="SQLClass/gold"`, `"reason"="MatchingClass"`, `"requestUID"="5e1f"`, `"outcome"="bound"`, `"dryRun"=false`} {
		assert.Contains(t, lines[0], part, "We should say why in our log.")
	}

	before := inv.Snapshot()
	dry, err := byResource(binder)(logr.NewContext(t.Context(), log), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }))
	require.NoError(t, err)
	assert.Equal(t, bound, dry, "We should answer a dry run as we would the request.")
	assert.Equal(t, before, inv.Snapshot(), "We should change nothing in a dry run.")
	assert.Contains(t, lines[1], `"dryRun"=true`, "We should tell dry runs apart in the log.")
}

// TestReviewCountsInFlight admits claims one after the other. No watch shows them.
func TestReviewCountsInFlight(t *testing.T) {
	kind := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.LeastClaims })
	kind.Tally = &selector.Tally{}
	binder := newBinder(t, newInventory(kind, index(sqlClasses, "a tier=gold", "b tier=gold", "c tier=gold", "d tier=gold")))
	counts := map[string]int{}
	for i := range 40 {
		var class string
		for _, dryRun := range []bool{true, true, false} {
			response, err := byResource(binder)(t.Context(), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) {
				r.Name, r.DryRun = fmt.Sprint("claim-", i), &dryRun
			}))
			require.NoError(t, err)
			class = cmp.Or(class, response.AuditAnnotations["class"])
			assert.Equal(t, class, response.AuditAnnotations["class"], "We should not count a dry run, and answer it as we would the request.")
		}
		counts[class]++
	}
	assert.Equal(t, map[string]int{"SQLClass/a": 10, "SQLClass/b": 10, "SQLClass/c": 10, "SQLClass/d": 10}, counts, "We should count each claim at once.")
}

// The names in a warning are those of the classes that were read, which the snapshot does not have.
func TestReviewWarnsOfSeveralDefaultsReadLive(t *testing.T) {
	kind := newClaimKind()
	binder := newBinder(t, newInventory(kind, index(sqlClasses)))
	binder.Decider.Live = asLive(selector.NewView(kind, []*inventory.Classes{index(sqlClasses, "a @default=true", "b @default=true")}))
	response, err := byResource(binder)(t.Context(), newRequest(`{}`))
	require.NoError(t, err)
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "leave the mark on one of SQLClass/a, SQLClass/b", "We should name them.")
}
