package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
	"github.com/classbind/classbind/e2e/progress"
)

// lifecycle is what a user runs with the files of a release, in $DIST. $NEXT is the folder deploy of a later commit.
type lifecycle struct{ install, upgrade, downgrade, uninstall string }

var lifecycles = map[string]lifecycle{
	"Manifests": {
		install:   `kubectl apply -f "$DIST/install.yaml"`,
		upgrade:   `kubectl apply -k "$NEXT"`,
		downgrade: `kubectl apply -f "$DIST/install.yaml"`,
		uninstall: `kubectl delete -f "$DIST/install.yaml" --wait=false`,
	},
	"Helm": {
		install:   `helm install classbind "$DIST/classbind-0.1.0.tgz" --namespace classbind-system --create-namespace`,
		upgrade:   `helm upgrade classbind "$NEXT/chart" --namespace classbind-system`,
		downgrade: `helm rollback classbind --namespace classbind-system`,
		uninstall: `helm uninstall classbind --namespace classbind-system
kubectl delete crd claimkinds.classbind.io classkinds.classbind.io
kubectl delete namespace classbind-system --wait=false`,
	},
}

// installs the release with its files alone and an empty home, goes to the next commit and back, and uninstalls it, while a hundred
// claims are created each second. TestDeployment and TestChartInPods do so in pods. Here processes take their place, so that it needs no nodes.
func (r *releaseTest) installs(t *testing.T, dist string) {
	folder := t.TempDir()
	r.must(t, folder, "tar -xzf '"+filepath.Join(dist, "classbind_v0.1.0_linux_amd64.tar.gz")+"' classbind")
	released := filepath.Join(folder, "classbind")
	tools := must(assets.Dir(t.Context(), os.Stderr))(t) + ":" + filepath.Dir(strings.TrimSpace(must(helm(t, "--path"))(t)))
	for name, does := range lifecycles {
		t.Run(name, func(t *testing.T) {
			service := must(classbind.NewBalancer())(t)
			t.Cleanup(func() { _ = service.Close() })
			plane := must(controlplane.Start(t.Context(), controlplane.Options{Progress: os.Stderr, ConnectionPerWebhookCall: true}))(t)
			t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
			w := &world{Kubectl: plane.Kubectl, config: rest.CopyConfig(plane.Config), plane: plane}
			require.NoError(t, w.connect())
			d := &deployment{world: w}
			d.config.QPS = -1
			user := &releaseTest{env: map[string]string{
				"HOME": t.TempDir(), "KUBECONFIG": plane.Kubeconfig, "DIST": dist, "NEXT": must(classbind.Deploy(t.Context()))(t),
				"PATH": folder + ":" + tools + ":" + os.Getenv("PATH"),
			}}
			before := d.settledInventory(t)
			user.must(t, folder, does.install)
			w.kubeconfig = must(plane.UserKubeconfigs(classbind.User, classbind.Groups...))(t)[0]
			replica := d.replace(t, service, nil, released)
			user.must(t, folder, "classbind kinds ingress | kubectl apply -f -")
			d.vendor(t)
			d.apply(t, claimKind("claims.deployment.test", "{}")+serving("reds.deployment.test", "claims.deployment.test"))
			d.awaitClaims(t, "claims.deployment.test")
			d.awaitGuard(t, deploymentGroup, "Red", "reds.deployment.test")

			d.lossless(t, "upgrade", func() {
				user.must(t, folder, does.upgrade)
				replica = d.replace(t, service, replica, command)
			})
			d.lossless(t, "downgrade", func() {
				user.must(t, folder, does.downgrade)
				replica = d.replace(t, service, replica, released)
			})
			report := d.during(t, "uninstall", func(*load.Load) {
				user.must(t, folder, does.uninstall)
				_ = replica.Stop() // It may have lost its rights before.
			})
			assert.Zero(t, report.Failures, "We should refuse no claim on the way.")
			assert.Positive(t, report.Unbound, "We should be gone in the end.")
			user.must(t, folder, "kubectl delete clusterroles --selector "+v1beta1.AggregateLabel+"=true")
			d.gone(t, before)
			t.Log(d.table())
		})
	}
}

// replace a replica behind a Service, if there is one, by one of another command, as a rollout does.
func (d *deployment) replace(t *testing.T, service *classbind.Balancer, old *replica, command string) *replica {
	newer := &replica{log: &progress.Log{}}
	newer.Process = must(classbind.Start(command, d.kubeconfig, newer.log, "--webhook-url="+service.URL, "--shutdown-delay-duration=5s"))(t)
	t.Cleanup(func() { _ = newer.Stop() })
	newer.logFailure(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, newer.Ready(ctx))
	service.Add(strings.TrimPrefix(newer.URL, "https://"))
	if old != nil {
		service.Remove(strings.TrimPrefix(old.URL, "https://"))
		require.NoError(t, old.Stop())
	}
	return newer
}
