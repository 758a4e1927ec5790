package connect

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestNoAnswer has an API server that accepts requests, and never answers.
func TestNoAnswer(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() { close(ended); server.Close() })
	f := Flags{kubeconfig: filepath.Join(t.TempDir(), "config")}
	require.NoError(t, os.WriteFile(f.kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\n", server.URL), 0o600))
	config, err := f.Config(io.Discard, "")
	require.NoError(t, err)
	assert.Equal(t, requestTimeout, config.Timeout, "We should not wait for good.")

	f.timeout = 20 * time.Millisecond
	config, err = f.Config(io.Discard, "")
	require.NoError(t, err)
	api, err := Client(config)
	require.NoError(t, err)
	_, _, err = Registrations(t.Context(), api)
	require.ErrorContains(t, err, "cannot list ClaimKinds", "We should say what we cannot read.")
	require.ErrorContains(t, err, "exceeded", "We should say why.")
}

func TestLeftOut(t *testing.T) {
	for reason, left := range map[string]bool{
		v1alpha1.ReasonNotPermitted: true, v1alpha1.ReasonNotInstalled: true,
		v1alpha1.ReasonStale: false, v1alpha1.ReasonAmbiguousReference: false,
	} {
		k := &v1alpha1.ClassKind{}
		assert.Nil(t, LeftOut(k), "We should leave out nothing that no leader looked at.")
		k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}}
		assert.Equal(t, left, LeftOut(k) != nil, "We should leave out what the server does, for %s.", reason)
		k.Status.Conditions[0].Status = metav1.ConditionTrue
		assert.Nil(t, LeftOut(k), "We should leave out nothing that is ready, for %s.", reason)
	}
}
