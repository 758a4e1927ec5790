package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

func TestReviewReadsLiveOnAMiss(t *testing.T) {
	kind := newClaimKind()
	inventory := newInventory(kind, index(sqlClasses, "silver tier=silver"))
	binder := newBinder(t, inventory)
	reads := 0
	binder.Decider.Live = func(_ context.Context, view *selector.View, claim claim.Claim) (*selector.View, error) {
		reads++
		assert.Same(t, inventory.Snapshot()[claimKindName], view, "We should read the kinds of the view on which we decided.")
		assert.Equal(t, "tier=gold", claim.Selector.String(), "We should read what the claim asks for.")
		return selector.NewView(kind, []*selector.Classes{index(sqlClasses, "gold tier=gold")}), nil
	}
	response, err := byResource(binder)(t.Context(), newRequest(wantsGold))
	require.NoError(t, err)
	assert.Equal(t, 1, reads, "We should read once.")
	assert.JSONEq(t, `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}]`, string(response.Patch),
		"We should bind to a class that was created a moment ago.")

	failure := errors.New("connection refused")
	binder.Decider.Live = func(context.Context, *selector.View, claim.Claim) (*selector.View, error) { return nil, failure }
	response, err = byResource(binder)(t.Context(), newRequest(wantsGold))
	require.ErrorIs(t, err, failure, "We should not say that there is no class when we could not look.")
	assert.Nil(t, response)
}

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
	deny := func(s *v1beta1.ClaimKindSpec) { s.WhenUnmatched = v1beta1.Deny }
	bindLater := func(s *v1beta1.ClaimKindSpec) { s.WhenUnmatched = v1beta1.BindLater }
	requiring := newClaimKind(bindLater)
	requiring.SetPaths(selector.PathsCheck{Required: []v1beta1.FieldPath{".spec.classRef"}})
	const (
		noMatch = `no class for this claim of "postgresqlinstances.database.example.org" matches the selector "tier=gold" ` +
			`(among 3 classes of sqlclasses.example.org; dropped: 1 cordoned, 1 of weight 0): change the selector, or create or label a class`
	)
	type want struct {
		allowed bool
		text    string
		audit   map[string]string
	}
	for name, tc := range map[string]struct {
		reason string
		kind   *selector.ClaimKind
		object string
		want   want
	}{
		"AdmitNoMatch": {
			reason: "We should admit the claim and warn what was looked for and what was dropped.",
			kind:   newClaimKind(), object: wantsGold,
			want: want{true, noMatch, map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
		"BindLaterNoMatch": {
			reason: "We should admit the claim and say what it waits for.",
			kind:   newClaimKind(bindLater), object: wantsGold,
			want: want{true, noMatch + "; it will be bound when a class matches", map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
		"DenyNoMatch": {
			reason: "We should refuse the claim with what would have been the warning.",
			kind:   newClaimKind(deny), object: wantsGold,
			want: want{false, noMatch, map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
		"RequiredNoMatch": {
			reason: "We should refuse a claim that the API server would refuse, and say more than it.",
			kind:   requiring, object: wantsGold,
			want: want{false, noMatch + "; the schema of its kind requires .spec.classRef", map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			golds := []string{"cordoned tier=gold @classbind.io/cordoned=true", "none tier=gold @weight=0"}
			binder := newBinder(t, newInventory(tc.kind, index(sqlClasses, append(golds, "silver tier=silver")...)))
			// The API server selects, so the live view has the matches alone; the
			// message should still say among how many classes we looked.
			binder.Decider.Live = asLive(selector.NewView(tc.kind, []*selector.Classes{index(sqlClasses, golds...)}))
			response, err := byResource(binder)(t.Context(), newRequest(tc.object))
			require.NoError(t, err, tc.reason)
			want := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{tc.want.text}, AuditAnnotations: tc.want.audit}
			if !tc.want.allowed {
				want = forbidden(`postgresqlinstances.database.example.org "db" is forbidden: `+tc.want.text,
					metav1.StatusDetails{Group: "database.example.org", Kind: "postgresqlinstances", Name: "db"}, tc.want.audit)
			}
			assert.Equal(t, want, response, tc.reason)
		})
	}
}

func TestReviewSaysWhy(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold", "cordoned tier=gold @classbind.io/cordoned=true"))
	binder := newBinder(t, inventory)

	bound, err := byResource(binder)(logr.NewContext(t.Context(), log), newRequest(wantsGold))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"class": "SQLClass/gold", "candidates": "1", "dropped": "Cordoned=1", "reason": "MatchingClass", "strategy": "WeightedRandom",
	}, bound.AuditAnnotations, "We should say why in the audit log.")
	require.Len(t, lines, 1, "We should log one line a review, at the level debug.")
	for _, part := range []string{`"class"="SQLClass/gold"`, `"reason"="MatchingClass"`, `"requestUID"="5e1f"`, `"outcome"="bound"`, `"dryRun"=false`} {
		assert.Contains(t, lines[0], part, "We should say why in our log.")
	}

	before := inventory.Snapshot()
	dry, err := byResource(binder)(logr.NewContext(t.Context(), log), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }))
	require.NoError(t, err)
	assert.Equal(t, bound, dry, "We should answer a dry run as we would the request.")
	assert.Equal(t, before, inventory.Snapshot(), "We should change nothing in a dry run.")
	assert.Contains(t, lines[1], `"dryRun"=true`, "We should tell dry runs apart in the log.")
}

// Claims that share a generateName have no name yet.
func TestReviewSeedsTheDraw(t *testing.T) {
	binder := newBinder(t, newInventory(newClaimKind(), index(sqlClasses, "a tier=gold", "b tier=gold")))
	fresh, classes := uint64(0), map[string]int{}
	binder.Decider.Fresh = func() uint64 { fresh++; return fresh }
	generated := newRequest(`{"metadata":{"generateName":"db-"},"spec":{"classSelector":{}}}`, func(r *admissionv1.AdmissionRequest) { r.Name = "" })
	for range 64 {
		response, err := byResource(binder)(t.Context(), generated)
		require.NoError(t, err)
		classes[response.AuditAnnotations["class"]]++
	}
	// Of 64 fair draws of two, fewer than 16 of either come once in 60,000 runs; the seeds here are always the same.
	assert.GreaterOrEqual(t, min(classes["SQLClass/a"], classes["SQLClass/b"]), 16, "We should draw anew for each: %v", classes)
}

// TestReviewCountsInFlight admits claims one after the other. No watch shows them.
func TestReviewCountsInFlight(t *testing.T) {
	kind := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.LeastClaims })
	kind.Tally = &selector.Tally{}
	binder := newBinder(t, newInventory(kind, index(sqlClasses, "a tier=gold", "b tier=gold", "c tier=gold", "d tier=gold")))
	admit := func(name, object string, dryRun bool) string {
		response, err := byResource(binder)(t.Context(), newRequest(object, func(r *admissionv1.AdmissionRequest) { r.Name, r.DryRun = name, &dryRun }))
		require.NoError(t, err)
		return response.AuditAnnotations["class"]
	}
	counts := map[string]int{}
	for i := range 40 {
		name, object := fmt.Sprint("claim-", i), wantsGold
		if i%2 == 0 {
			name, object = "", strings.Replace(wantsGold, "{", `{"metadata":{"generateName":"db-"},`, 1)
		}
		dry := admit(name, object, true)
		if name != "" {
			assert.Equal(t, dry, admit(name, object, true), "We should not count a dry run.")
			assert.Equal(t, dry, admit(name, object, false), "We should answer a dry run as we would the request.")
			counts[dry]++
			continue
		}
		counts[admit(name, object, false)]++
	}
	assert.Equal(t, map[string]int{"SQLClass/a": 10, "SQLClass/b": 10, "SQLClass/c": 10, "SQLClass/d": 10}, counts, "We should count each claim at once.")
}

// The names in a warning are those of the classes that were read, which the snapshot does not have.
func TestReviewWarnsOfSeveralDefaultsReadLive(t *testing.T) {
	kind := newClaimKind()
	binder := newBinder(t, newInventory(kind, index(sqlClasses)))
	binder.Decider.Live = asLive(selector.NewView(kind, []*selector.Classes{index(sqlClasses, "a @default=true", "b @default=true")}))
	response, err := byResource(binder)(t.Context(), newRequest(`{}`))
	require.NoError(t, err)
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "leave the mark on one of SQLClass/a, SQLClass/b", "We should name them.")
}
