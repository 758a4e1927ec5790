package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// boundByPolicy counts the claims of a kind to which an API server itself gave the default
// class since it started. Those of which the conditions are false do not count.
func boundByPolicy(ctx context.Context, server *rest.Config, claimKind string) (int, error) {
	d, err := discovery.NewDiscoveryClientForConfig(server)
	if err != nil {
		return 0, err
	}
	metrics, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("cannot read the metrics of the API server: %w", err)
	}
	name := regexp.QuoteMeta(claimKind + v1alpha1.PolicySuffix)
	pattern := `(?m)^apiserver_mutating_admission_policy_check_total\{error_type="no_error",policy="` + name + `",policy_binding="` + name + `"\} (\d+)$`
	match := regexp.MustCompile(pattern).FindSubmatch(metrics)
	if match == nil {
		return 0, nil
	}
	return strconv.Atoi(string(match[1]))
}

// boundByPolicy counts them in a world with one API server.
func (w *world) boundByPolicy(t require.TestingT, claimKind string) int {
	n, err := boundByPolicy(context.Background(), w.config, claimKind)
	require.NoError(t, err)
	return n
}

// awaitPolicy waits until the API server itself gives the default class to a claim without an
// opinion: it knows of a new policy up to a second later than of the condition.
func (w *world) awaitPolicy(t *testing.T, claimKind, unopinionated string) {
	t.Helper()
	w.awaitCondition(t, &v1alpha1.ClaimKind{}, claimKind, v1alpha1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		before := w.boundByPolicy(c, claimKind)
		_, _, err := w.create(t, unopinionated, client.DryRunAll)
		require.NoError(c, err)
		require.Greater(c, w.boundByPolicy(c, claimKind), before)
	}, patience, 50*time.Millisecond, "We should see the API server give the default class itself.")
}
