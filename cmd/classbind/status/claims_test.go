package status

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestDelayedClaims are not bound yet, in a namespace that is excluded.
func TestDelayedClaims(t *testing.T) {
	for bindWhen, want := range map[v1alpha1.Expression][]string{
		"":                                 {"1 claim has a class that is gone: team/default", "1 claim has no class, in namespaces that are excluded: kube-system/waits"},
		"has(claim.spec.ready)":            {"1 claim has a class that is gone: team/default"},
		"has(namespace.metadata.labels)":   {"1 claim has a class that is gone: team/default"},
		"claim.spec.classRef == 'default'": nil,
	} {
		w := newWorld(t)
		w.claimKind.Spec.BindWhen = bindWhen
		w.writeEntries(w.secret.Data["ca.crt"])
		filled := object("example.org/v1", "Database", "team", "default")
		setField(t, filled, "default", "spec", "classRef")
		w.more = append(w.more, filled, asking(t, "kube-system", "waits"))
		report, err := w.report(t)
		require.NoError(t, err)
		assertFindings(t, report, string(bindWhen), want)
	}
}
