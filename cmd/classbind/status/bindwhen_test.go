package status

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestBindWhenRefused has an API server that does not take the expression of a claim kind.
func TestBindWhenRefused(t *testing.T) {
	w := newWorld(t)
	w.claimKind.Spec.BindWhen = "claim.spec.ready"
	const note = "claimkind/databases.example.org: the API server does not evaluate spec.bindWhen, so it calls classbind for every claim"
	for _, refused := range []bool{false, true} {
		if !refused {
			w.writeEntries(t, w.secret.Data["ca.crt"])
		} else {
			w.claims.Webhooks[0].MatchConditions = slices.Delete(w.claims.Webhooks[0].MatchConditions, 1, 2)
		}
		report, err := w.report(t)
		require.NoError(t, err)
		assertFindings(t, report, "We should find nothing wrong with that.", nil)
		var notes []string
		for _, s := range report.Sections {
			notes = append(notes, s.Notes...)
		}
		assert.Equal(t, refused, slices.Contains(notes, note), "%q", notes)
	}
}

// TestDelayedClaims are not bound yet, in a namespace that is excluded.
func TestDelayedClaims(t *testing.T) {
	for bindWhen, want := range map[v1alpha1.Expression][]string{
		"":                                 {"1 claim has a class that is gone: team/default", "it is excluded from databases.example.org, and 1 claim has no class: kube-system/waits"},
		"has(claim.spec.ready)":            {"1 claim has a class that is gone: team/default"},
		"has(namespace.metadata.labels)":   {"1 claim has a class that is gone: team/default"},
		"claim.spec.classRef == 'default'": nil,
	} {
		w := newWorld(t)
		w.claimKind.Spec.BindWhen = bindWhen
		w.writeEntries(t, w.secret.Data["ca.crt"])
		filled := object("example.org/v1", "Database", "team", "default")
		setField(t, filled, "default", "spec", "classRef")
		w.more = append(w.more, filled, asking(t, "kube-system", "waits"))
		report, err := w.report(t)
		require.NoError(t, err)
		assertFindings(t, report, string(bindWhen), want)
	}
}
