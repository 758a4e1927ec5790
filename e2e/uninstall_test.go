package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/load"
)

// uninstall, and compare with what there was before.
func (d *deployment) uninstall(t *testing.T, before []string) {
	there := d.inventory(t)
	require.Contains(t, there, "deployments.apps/"+classbind.Namespace+"/classbind", "We should see what there is.")
	require.Contains(t, there, "mutatingadmissionpolicies.admissionregistration.k8s.io//claims."+deploymentGroup+v1alpha1.PolicySuffix)
	report := d.during(t, "uninstall", func(*load.Load) {
		d.kubectl(t, "delete", "-k", d.folder, "--timeout=120s")
	})
	if webhooksFirst(podCerts) {
		assert.Zero(t, report.Failures, "We should block no claim on the way.")
	}
	for _, reason := range report.Reasons {
		assert.Contains(t, reason.Text, `service "classbind" not found`, "We should refuse no claim ourselves.")
	}
	assert.LessOrEqual(t, report.LastFailure(), atOnce, "We should block claims for a moment only, where kustomize deletes the Service before the webhooks.")
	assert.Positive(t, report.Unbound, "We should be gone in the end.")
	// What was deleted last may be an APIService, of which the API server takes care itself.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var left []string
		for _, name := range d.inventory(t) {
			if !slices.Contains(before, name) {
				left = append(left, name)
			}
		}
		require.Empty(c, left)
	}, patience, time.Second, "We should leave nothing behind.")
	for _, kind := range []string{"Claim", "Lenient"} {
		unbound, _, err := d.create(t, named(kind, "uninstalled", "{classSelector: {}}"))
		require.NoError(t, err, "We should block no claim once we are uninstalled.")
		assert.Empty(t, classOf(unbound))
	}
}

// settledInventory waits until nothing more appears in a cluster that is new.
func (d *deployment) settledInventory(t *testing.T) []string {
	t.Helper()
	var last []string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		before := last
		last = d.inventory(t)
		require.Contains(c, last, "serviceaccounts/kube-system/default", "We should see its controllers run.")
		require.ElementsMatch(c, before, last)
	}, rollout, 3*time.Second)
	return last
}

// inventory is RESOURCE/NAMESPACE/NAME of every object in the cluster that
// neither comes and goes by itself nor is this test's.
func (d *deployment) inventory(t *testing.T) []string {
	t.Helper()
	config := rest.CopyConfig(d.config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // Some kinds of Kubernetes itself are deprecated.
	resources, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	objects, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	lists, err := resources.ServerPreferredResources()
	require.NoError(t, err)
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for i := range list.APIResources {
			if r := &list.APIResources[i]; slices.Contains(r.Verbs, "list") && r.Name != "events" {
				names, err := namesOf(t.Context(), objects, version.WithResource(r.Name))
				require.NoError(t, err)
				found = append(found, names...)
			}
		}
	}
	return found
}

func namesOf(ctx context.Context, objects metadata.Interface, resource schema.GroupVersionResource) ([]string, error) {
	list, err := objects.Resource(resource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil // Its CRD is gone since, or its metadata cannot be had.
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		o := &list.Items[i]
		name := strings.Join([]string{resource.GroupResource().String(), o.Namespace, o.Name}, "/")
		own := strings.Contains(name, deploymentGroup) && !strings.HasSuffix(name, v1alpha1.PolicySuffix) || strings.Contains(name, deploymentNamespace)
		if own || strings.HasPrefix(name, "leases.coordination.k8s.io/kube-") { // Of nodes, and of others' leaders.
			continue
		}
		names = append(names, name)
	}
	return names, nil
}
