package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestImageOfAll(t *testing.T) {
	w := newWorld(t)
	for updated, want := range map[int32]string{2: "2 of 2 ready, of classbind:v1, the leader is replica-1", 1: "2 of 2 ready, the leader is replica-1"} {
		w.deployment.Status.UpdatedReplicas = updated
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Equal(t, want, report.Sections[0].Summary, "We should name an image that all replicas run, of %d.", updated)
	}
}

// TestElsewhere has the wrong namespace in the flag.
func TestElsewhere(t *testing.T) {
	const want = "classbind is in namespace classbind-system, where the API server asks it, and not in others: --classbind-namespace classbind-system"
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"Nothing":    {"We should say where classbind is.", func(*world) {}, want},
		"Unread":     {"We should not say so of what we may not read.", func(w *world) { w.unread = []string{"Lease"} }, ""},
		"Lease":      {"We should look at a namespace with a Lease.", func(w *world) { w.lease.Namespace = "others" }, ""},
		"Deployment": {"We should look at a namespace with a Deployment.", func(w *world) { w.deployment.Namespace = "others" }, ""},
		"URL": {"We should not guess where a URL leads.", func(w *world) {
			at := admissionregistrationv1.WebhookClientConfig{URL: new("https://localhost:1/bind")}
			w.claims.Webhooks[0].ClientConfig, w.claims.Webhooks[1].ClientConfig = at, at
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.namespace = "others"
			_, err := w.report(t)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.EqualError(t, err, tc.want, tc.reason)
		})
	}
}

func TestClockAhead(t *testing.T) {
	for renewed, want := range map[bool]string{true: "the leader is replica-1", false: "no leader"} {
		w := newWorld(t)
		w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-16 * time.Second)}
		w.renewed = renewed
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Contains(t, report.Sections[0].Summary, want, "We should not trust the clock of whoever asks.")
		assert.Contains(t, w.progress.String(), "looking again", "We should say why it takes so long.")
	}
	w := newWorld(t)
	_, err := w.report(t)
	require.NoError(t, err)
	assert.Empty(t, w.progress.String(), "We should not look again at a Lease that is held.")
}

func TestWithoutLeader(t *testing.T) {
	w := newWorld(t)
	w.lease.Spec.HolderIdentity = nil
	for ready, want := range map[int32]string{
		0: "3 of 3 ready, as the last leader wrote\n", // Nobody keeps it.
		2: "3 of 3 ready\n",                           // --leader-elect=false
	} {
		w.deployment.Status.ReadyReplicas = ready
		report, err := w.report(t)
		require.NoError(t, err)
		table := report.table()
		assert.Contains(t, table, want, "We should vouch for no more than a replica does, of %d.", ready)
	}
}
