package webhookconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
)

func TestEdited(t *testing.T) {
	w := &Configurator{Namespace: "classbind-system", Service: "classbind"}
	claims := cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true}
	due, err := w.StoredClaimEntry(controllertest.NewClaimKind("claims.example.org"), claims, []byte("PEM"))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		edit   func(*admissionregistrationv1.MutatingWebhook)
		want   []string
	}{
		"Nothing":   {"We should not take an entry for edited.", func(*admissionregistrationv1.MutatingWebhook) {}, nil},
		"Value":     {"We should see a value that was changed.", func(e *admissionregistrationv1.MutatingWebhook) { e.TimeoutSeconds = new(int32(30)) }, []string{"timeoutSeconds"}},
		"Condition": {"We should see a match condition that was removed.", func(e *admissionregistrationv1.MutatingWebhook) { e.MatchConditions = e.MatchConditions[1:] }, []string{"matchConditions"}},
		"Added": {
			"We should see what classbind does not write, and would leave as it is.",
			func(e *admissionregistrationv1.MutatingWebhook) {
				e.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"bind": "no"}}
			},
			[]string{"objectSelector"},
		},
		"Several": {
			"We should name all fields, sorted.",
			func(e *admissionregistrationv1.MutatingWebhook) {
				e.Rules[0].APIVersions = []string{"v2"}
				e.ClientConfig.CABundle = nil
			},
			[]string{"clientConfig", "rules"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			entry := due.DeepCopy()
			tc.edit(entry)
			got, err := Edited(due, entry)
			require.NoError(t, err)
			assert.ElementsMatch(t, tc.want, got, tc.reason)
		})
	}

	golds := cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}}
	entry, err := w.StoredClassEntry(&v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}, nil, golds, nil)
	require.NoError(t, err)
	assert.Equal(t, "golds.example.org.guard.classbind.io", entry.Name)
	assert.Equal(t, []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}, entry.Rules[0].Operations,
		"We should guard updates, too.")
	assert.Equal(t, admissionregistrationv1.ClusterScope, *entry.Rules[0].Scope)

	entry, err = w.StoredDeletionEntry(&v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}, golds, nil)
	require.NoError(t, err)
	assert.Equal(t, "golds.example.org.deletion.classbind.io", entry.Name)
	assert.Equal(t, []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, entry.Rules[0].Operations)
}
