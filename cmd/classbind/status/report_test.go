package status

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
)

// TestUnread has a user who may not read something, or an API server that does not answer.
func TestUnread(t *testing.T) {
	for kind, unknown := range map[string]map[string]string{ // parts of the summaries
		"Deployment": {"replicas": "Deployment not read"}, "Pod": {"replicas": ""}, "Lease": {"replicas": "Lease not read"},
		"Secret":                         {"certificates": "not read"},
		"MutatingWebhookConfiguration":   {"webhook entries": "not read for claims, 2 for classes"},
		"ValidatingWebhookConfiguration": {"webhook entries": "2 for claims, not read for classes"},
		"Classes":                        {"kinds": "3 of 3 ready", "claims": "2 read"},
		"Database":                       {"claims": "1 read, without those of databases.example.org"},
		"Namespace":                      {"claims": "2 read"},
	} {
		for status, set := range map[int]func(*world){
			0:           func(w *world) { w.unread = []string{kind} },
			exit.Failed: func(w *world) { w.down = []string{kind} },
		} {
			w := newWorld(t)
			if kind == "Namespace" {
				w.claimKind.Spec.Claims.NamespaceSelector.MatchLabels = map[string]v1beta1.LabelValue{"bind": "yes"}
				w.writeEntries(w.secret.Data["ca.crt"])
			}
			set(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assert.Equal(t, status, statusOf(report.exit()), "We should tell what we may not read (0) from a cluster that does not answer (2), for %s.", kind)
			for _, s := range report.Sections {
				assert.Empty(t, s.Findings, "We should not take for broken what we could not read of %s.", kind)
				summary, is := unknown[s.Name]
				assert.Equal(t, is, s.State == Unknown, "We should say what of %s is unknown: %v", s.Name, s.Unread)
				assert.Contains(t, s.Summary, summary, "We should give no number of what we did not read.")
			}
			table := report.table()
			assert.Equal(t, 1, strings.Count(table, "\nNot read (have somebody run this who may read it, or run it again):\n  "), "We should put together what was not read.")
		}
	}
	w := newWorld(t)
	w.unread = []string{"ClaimKind"}
	_, err := w.report(t)
	require.ErrorContains(t, err, "cannot list ClaimKinds", "We should have nothing to say without the registrations.")
}

func TestReportForPrograms(t *testing.T) {
	w := newWorld(t)
	w.gold.SetName("silver")
	report, err := w.report(t)
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"kind":"Report","apiVersion":"status.classbind.io/v1beta1","sections":[{"name":"replicas","state":"OK",`)
	assert.Contains(t, string(text), `"findings":[{"where":"claimkind/databases.example.org","what":"1 claim has`)
}
