package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/load"
)

const (
	// deploymentGroup is of all resources that TestDeployment makes, and its namespace named after it.
	deploymentGroup     = "deployment.test"
	deploymentNamespace = "deployment-test"
	// atOnce is within what time claims must be created again after a crash.
	atOnce = 3 * time.Second
	// stretch of a time by the lateness of the machine: so often may something wait for a processor one after the other.
	stretch = 20
)

// TestDeployment installs classbind, does to it what happens to a deployment while a hundred claims are created each second, and uninstalls
// it. It comes before the tests that share a world, which it would disturb.
func TestDeployment(t *testing.T) {
	if !inPods() {
		t.Skip("It needs a cluster with pods: make e2e.")
	}
	d, before := newDeployment(t, "With certificates of mode "+podCerts)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
		need bool // The rest is in vain without it.
	}{
		{"Install", d.install, true},
		{"Version", d.version, false},
		{"Register", d.register, true},
		{"Bind", d.bind, true},
		{"SecondDefault", d.secondDefault, false},
		{"Upgrade", d.upgrade, false},
		{"RollingRestart", d.rollingRestart, false},
		{"Scale", d.scale, false},
		{"LeaderDeleted", d.leaderDeleted, false},
		{"LeaderDeposed", d.leaderDeposed, false},
		{"RotateCertificates", d.rotateCertificates, false},
		{"ChangeCertificates", d.changeCertificates, false},
		{"Crash", d.crash, false},
		{"CrashOfAll", d.crashOfAll, false},
		{"Stop", d.stop, false},
		{"Uninstall", func(t *testing.T) { d.uninstall(t, before) }, false},
	} {
		if !t.Run(step.name, step.do) && step.need {
			break
		}
	}
}

type deployment struct {
	*world
	folder string // of the overlay that is installed
	rows   []row
}

// newDeployment logs its table under a title when the test ends. Before it, there is only this in the cluster.
func newDeployment(t *testing.T, title string) (d *deployment, before []string) {
	d = &deployment{world: must(podWorld())(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The logs of the pods that there are:\n%s", d.podLogs(context.Background()))
		}
		t.Logf("%s:\n%s", title, d.table())
	})
	return d, d.settledInventory(t)
}

type row struct {
	what   string
	report load.Report
}

func (d *deployment) table() string {
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "while\tcreations\tfailed\tlast after\tunbound\tp50\tp99\tworst\tlate")
	for _, r := range d.rows {
		last := "-"
		if r.report.Failures > 0 {
			last = fmt.Sprintf("%.1f s", r.report.LastFailure().Seconds())
		}
		_, _ = fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%d\t%.1f ms\t%.1f ms\t%.1f ms\t%d\n", r.what, r.report.Creations, r.report.Failures, last, r.report.Unbound,
			load.Milliseconds(r.report.P50), load.Milliseconds(r.report.P99), load.Milliseconds(r.report.Worst), r.report.Late)
	}
	_ = out.Flush()
	return text.String()
}

func (d *deployment) applyDeploy(t *testing.T, image string, arguments ...string) {
	d.folder = must(overlay(image, arguments...))(t)
	d.kubectl(t, "apply", "-k", d.folder)
}

// settled waits until there are so many pods, all of them ready, and no others that are about to end.
func (d *deployment) settled(t *testing.T, n int) {
	d.kubectl(t, rolloutStatus...)
	require.EventuallyWithT(t, func(c *attempt) {
		list := &corev1.PodList{}
		require.NoError(c, d.List(t.Context(), list, client.InNamespace(classbind.Namespace)))
		require.Len(c, list.Items, n)
		for i := range list.Items {
			require.True(c, isReady(&list.Items[i]))
		}
	}, patience, 200*time.Millisecond, "We should have %d pods, all ready.", n)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// control creates what does not concern classbind until the test ends. A claim for which the API server waited for a webhook in vain may be
// sent again only where that took a twentieth as long meanwhile: it was the machine then.
func (d *deployment) control(t *testing.T) (again func(ctx context.Context, answer string) bool) {
	// The API server has masters wait for no other requests.
	exempt, free := d.impersonating(t, "control", "system:masters"), documents(t, named("Free", "control", "{}"))[0]
	var slow atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			began := time.Now()
			_ = exempt.Create(t.Context(), free.DeepCopy(), client.DryRunAll)
			if now := time.Now(); now.Sub(began) >= v1beta1.WebhookTimeoutSeconds*time.Second/stretch {
				slow.Store(now.UnixNano())
			}
			pause(t.Context(), 10*time.Millisecond)
		}
	}()
	return func(ctx context.Context, _ string) bool {
		pause(ctx, attemptEvery)
		return ctx.Err() == nil && time.Since(time.Unix(0, slow.Load())) < v1beta1.WebhookTimeoutSeconds*time.Second+attemptEvery
	}
}

// during creates claims before, while and after something is done, and reports what became of them.
func (d *deployment) during(t *testing.T, what string, do func(*load.Load)) (report load.Report) {
	config, again := rest.CopyConfig(d.config), d.control(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next, again} })
	impatient := must(newClient(config))(t) // It counts what a patient one would try again, unless it was the machine.
	l := load.Start(t.Context(), load.Options{
		Client: impatient, Kinds: []schema.GroupVersionKind{{Group: deploymentGroup, Version: "v1", Kind: "Claim"}}, Namespace: deploymentNamespace,
		Spec: map[string]any{"classSelector": map[string]any{}},
	})
	defer func() { // Also if the test fails there.
		report = must(l.Stop(t.Context()))(t)
		d.rows = append(d.rows, row{what, report})
		t.Logf("%s: %s", what, report)
		assert.Zero(t, report.Unlike, "We should have claims stored as was answered.")
	}()
	require.NoError(t, l.Next(t.Context(), 100))
	l.Mark()
	do(l)
	require.NoError(t, l.Next(t.Context(), 100))
	return report
}

func (d *deployment) neverUnbound(t *testing.T, what string, do func(*load.Load)) load.Report {
	report := d.during(t, what, do)
	assert.Zero(t, report.Unbound, "We should never have a claim stored unbound.")
	return report
}

func (d *deployment) lossless(t *testing.T, what string, do func()) {
	report := d.neverUnbound(t, what, func(*load.Load) { do() })
	assert.Zero(t, report.Failures, "We should lose no creation.")
}

func (d *deployment) install(t *testing.T) {
	err := d.Get(t.Context(), client.ObjectKey{Name: classbind.Namespace}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), "We should find a cluster without classbind: %v", err)
	d.applyDeploy(t, podImage)
	d.settled(t, 2)
}

func (d *deployment) vendor(t *testing.T) {
	d.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+deploymentNamespace+"}\n")
	d.resources(t, "Claim claims.deployment.test Namespaced", "Lenient lenients.deployment.test Namespaced", "Free frees.deployment.test Namespaced",
		"Red reds.deployment.test Cluster", "Blue blues.deployment.test Cluster")
	d.apply(t, vendor(deploymentGroup)+class(deploymentGroup, "Red", "gold", "labels: {tier: gold}, ")+class(
		deploymentGroup, "Red", "iron", "labels: {tier: iron}, ",
	)+
		class(deploymentGroup, "Blue", "silver", "labels: {tier: silver}, ")+class(deploymentGroup, "Blue", "tin", "labels: {tier: tin}, "))
}

var deploymentKinds = claimKind("claims.deployment.test", "{admission: {failurePolicy: Fail, defaulting: Policy}}") +
	claimKind("lenients.deployment.test", "{admission: {failurePolicy: Ignore}}") +
	serving("reds.deployment.test", "claims.deployment.test", "lenients.deployment.test") +
	serving("blues.deployment.test", "claims.deployment.test")

func (d *deployment) register(t *testing.T) {
	d.vendor(t)
	d.apply(t, deploymentKinds)
	d.awaitClaims(t, "claims.deployment.test")
	d.awaitClaims(t, "lenients.deployment.test")
	d.awaitClasses(t, "reds.deployment.test", 2)
	d.awaitClasses(t, "blues.deployment.test", 2)
	d.awaitGuard(t, deploymentGroup, "Red", "reds.deployment.test")
	d.awaitGuard(t, deploymentGroup, "Blue", "blues.deployment.test")
}

func named(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: %s, name: %s}\nspec: %s\n", deploymentGroup, kind, deploymentNamespace, name, spec)
}

func (d *deployment) bind(t *testing.T) {
	bound, _, err := d.create(t, named("Claim", "selective", "{classSelector: {matchLabels: {tier: silver}}}"))
	require.NoError(t, err)
	assert.Equal(t, "Blue/silver", classOf(bound))
	_, _, err = d.create(t, class(deploymentGroup, "Red", "copper", isDefault))
	require.NoError(t, err)
	d.awaitClasses(t, "reds.deployment.test", 3)
	bound, _, err = d.create(t, named("Claim", "unopinionated", "{}"))
	require.NoError(t, err)
	assert.Equal(t, "Red/copper", classOf(bound))
}

func (d *deployment) secondDefault(t *testing.T) {
	_, _, err := d.create(t, class(deploymentGroup, "Blue", "second", isDefault))
	status := apierrors.APIStatus(nil)
	require.ErrorAs(t, err, &status)
	assert.EqualValues(t, http.StatusForbidden, status.Status().Code, "%v", err)
	require.ErrorContains(t, err, `"Red/copper" is the default class for "claims.deployment.test"`)
}

func (d *deployment) upgrade(t *testing.T) {
	d.lossless(t, "upgrade", func() {
		d.applyDeploy(t, podImage+"-next")
		d.settled(t, 2)
	})
	d.runs(t, podImage+"-next")
}

// runs checks the image of all pods.
func (d *deployment) runs(t *testing.T, image string) {
	for _, p := range must(d.pods(t.Context()))(t) {
		assert.Equal(t, image, p.Spec.Containers[0].Image)
	}
}

func (d *deployment) rollingRestart(t *testing.T) {
	d.lossless(t, "rolling restart", func() {
		d.kubectl(t, "rollout", "restart", "deployment/classbind", "--namespace="+classbind.Namespace)
		d.settled(t, 2)
	})
}

func (d *deployment) scaleTo(t *testing.T, n int) {
	d.kubectl(t, "scale", "deployment/classbind", "--namespace="+classbind.Namespace, fmt.Sprint("--replicas=", n))
	d.settled(t, n)
}

func (d *deployment) scale(t *testing.T) {
	d.lossless(t, "scale 2, 1, 3, 2", func() {
		for _, n := range []int{1, 3, 2} {
			d.scaleTo(t, n)
		}
	})
}

// leader is the name of the pod that leads, or that led last.
func (d *deployment) leader(t *testing.T) string {
	name, _, _ := strings.Cut(*d.lease(t, v1beta1.LeaderLease).Spec.HolderIdentity, "_")
	return name
}

// awaitLeader waits until one of the pods that there are leads, and does what a leader does.
func (d *deployment) awaitLeader(t *testing.T) {
	require.EventuallyWithT(t, func(c *attempt) {
		pods := must(d.pods(t.Context()))(c)
		var names []string
		for i := range pods {
			names = append(names, pods[i].Name)
		}
		require.Contains(c, names, d.leader(t))
	}, patience, 100*time.Millisecond)
	d.apply(t, claimKind("nobodies.deployment.test", "{}"))
	d.awaitReason(t, &v1beta1.ClaimKind{}, "nobodies.deployment.test", v1beta1.ReasonNotInstalled)
	d.remove(t, "claimkinds.classbind.io", "nobodies.deployment.test")
}

func (d *deployment) leaderDeleted(t *testing.T) {
	leader := d.leader(t)
	d.lossless(t, "leader's pod deleted", func() {
		d.kubectl(t, "delete", "pod", leader, "--namespace="+classbind.Namespace)
		d.awaitLeader(t)
		d.settled(t, 2)
	})
}

// leaderDeposed has somebody else take the leader's Lease, and never come back.
func (d *deployment) leaderDeposed(t *testing.T) {
	d.lossless(t, "leader's Lease lost", func() {
		lease := d.lease(t, v1beta1.LeaderLease)
		now := metav1.NowMicro()
		base := lease.DeepCopy()
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = new("somebody else"), &now, &now
		require.NoError(t, d.Patch(t.Context(), lease, client.MergeFrom(base)))
		d.awaitLeader(t)
	})
	pods := must(d.pods(t.Context()))(t)
	for i := range pods {
		assert.Zero(t, pods[i].Status.ContainerStatuses[0].RestartCount, "We should not end because we lead no more.")
	}
}

func (d *deployment) crash(t *testing.T) {
	pods := must(d.pods(t.Context()))(t)
	require.NotEmpty(t, pods)
	for i := range pods {
		late, noticed := lateness(t), time.Duration(0)
		report := d.neverUnbound(t, fmt.Sprintf("SIGKILL of pod %d", i+1), func(*load.Load) {
			require.NoError(t, kill(&pods[i]))
			noticed = d.awaitRestart(t, &pods[i])
		})
		assert.LessOrEqual(t, report.LastFailure(), max(atOnce, 2*noticed)+stretch*late(), "We should lose claims for a moment only.")
	}
}

// awaitRestart returns how long the cluster took to notice the end of the pod. It may need as long again to have no claims sent there.
func (d *deployment) awaitRestart(t *testing.T, before *corev1.Pod) (noticed time.Duration) {
	pod, began := &corev1.Pod{}, time.Now()
	require.EventuallyWithT(t, func(c *attempt) {
		require.NoError(c, d.Get(t.Context(), client.ObjectKeyFromObject(before), pod))
		require.NotEmpty(c, pod.Status.ContainerStatuses)
		restarted := pod.Status.ContainerStatuses[0].RestartCount > before.Status.ContainerStatuses[0].RestartCount
		if noticed == 0 && (restarted || !isReady(pod)) {
			noticed = time.Since(began)
		}
		require.True(c, restarted && isReady(pod))
	}, patience, 50*time.Millisecond, "We should be back by ourselves.")
	return noticed
}

func (d *deployment) crashOfAll(t *testing.T) {
	pods := must(d.pods(t.Context()))(t)
	report := d.neverUnbound(t, "SIGKILL of all pods", func(l *load.Load) {
		for i := range pods {
			require.NoError(t, kill(&pods[i]))
		}
		for i := range pods {
			d.awaitRestart(t, &pods[i])
		}
		require.NoError(t, l.Next(t.Context(), 100))
	})
	assert.Positive(t, report.Failures, "We should not have a claim created while nobody can bind it.")
	d.works(t, "crashed")
}

func (d *deployment) stop(t *testing.T) {
	_, _, err := d.create(t, named("Claim", "before", "{classSelector: {}}"))
	require.NoError(t, err)
	report := d.neverUnbound(t, "no replica for a while", func(l *load.Load) {
		d.scaleTo(t, 0)
		d.awaitRefused(t, named("Claim", "refused", "{classSelector: {}}"), `failed calling webhook "claims.deployment.test.bind.classbind.io"`,
			"We should have claims refused, naming the webhook, under Fail.")

		lenient, _, err := d.create(t, named("Lenient", "unbound", "{classSelector: {}}"))
		require.NoError(t, err, "We should have claims admitted under Ignore.")
		assert.Empty(t, classOf(lenient))
		itself, _, err := d.create(t, named("Claim", "itself", "{}"))
		require.NoError(t, err, "We should have the API server give the default class itself.")
		assert.Equal(t, "Red/copper", classOf(itself))
		_, _, err = d.create(t, named("Claim", "explicit", "{classRef: {kind: Red, name: gold}}"))
		require.NoError(t, err, "We should never block a claim that has its class.")
		_, _, err = d.create(t, named("Free", "free", "{}"))
		require.NoError(t, err, "We should never block a kind that is not registered.")
		d.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {namespace: %[1]s, name: while-stopped}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: while-stopped}
spec: {schedulerName: nobody, containers: [{name: none, image: none}]}
`, deploymentNamespace)+"---\n"+class(deploymentGroup, "Red", "lead", "labels: {tier: lead}, ")+claimKind("laters.deployment.test", "{}"))
		d.kubectl(t, "label", "claims.deployment.test", "before", "--namespace="+deploymentNamespace, "changed=yes")
		d.kubectl(t, "delete", "claims.deployment.test", "before", "--namespace="+deploymentNamespace)
		d.kubectl(t, "delete", "pod", "while-stopped", "--namespace="+deploymentNamespace, "--grace-period=0")
		d.kubectl(t, "delete", "configmap", "while-stopped", "--namespace="+deploymentNamespace)

		d.scaleTo(t, 2)
		d.works(t, "again")
		require.NoError(t, l.Next(t.Context(), 100))
	})
	assert.Positive(t, report.Failures, "We should not have a claim created while nobody can bind it.")
	d.awaitReason(t, &v1beta1.ClaimKind{}, "laters.deployment.test", v1beta1.ReasonNotInstalled)
	d.awaitClasses(t, "reds.deployment.test", 4)
	d.remove(t, "claimkinds.classbind.io", "laters.deployment.test")
}

func (d *deployment) works(t *testing.T, name string) {
	require.EventuallyWithT(t, func(c *attempt) {
		for _, kind := range []string{"Claim", "Lenient"} {
			bound, _, err := d.create(t, named(kind, name, "{classSelector: {}}"), client.DryRunAll)
			require.NoError(c, err)
			require.NotEmpty(c, classOf(bound))
		}
	}, patience, 100*time.Millisecond, "We should bind claims again without a hand.")
}

// version of the release that is tested, $VERSION, is what the command in the pod and its log say.
func (d *deployment) version(t *testing.T) {
	printed := strings.Fields(d.kubectl(t, "exec", "deployment/classbind", "--namespace="+classbind.Namespace, "--", "/classbind", "version"))
	require.Len(t, printed, 4, "We should print one line.")
	if release := os.Getenv("VERSION"); release != "" {
		assert.Equal(t, release, printed[1], "We should have the image of the release in the pod.")
	}
	started := ""
	for line := range strings.Lines(d.kubectl(t, "logs", "deployment/classbind", "--namespace="+classbind.Namespace)) {
		if strings.Contains(line, "Starting classbind") {
			started = line
		}
	}
	assert.Contains(t, started, printed[1], "We should find the version in the log.")
}

func (d *deployment) uninstall(t *testing.T, before []string) {
	there := d.inventory(t)
	require.Contains(t, there, "deployments.apps/"+classbind.Namespace+"/classbind", "We should see what there is.")
	require.Contains(t, there, "mutatingadmissionpolicies.admissionregistration.k8s.io//claims."+deploymentGroup+v1beta1.PolicySuffix)
	late := lateness(t)
	report := d.during(t, "uninstall", func(*load.Load) {
		d.kubectl(t, "delete", "-k", d.folder, "--timeout=5m")
	})
	if webhooksFirst(podCerts) {
		assert.Zero(t, report.Failures, "We should block no claim on the way.")
	}
	moment := atOnce + stretch*late()
	for _, reason := range report.Reasons {
		assert.Contains(t, reason.Text, `service "classbind" not found`, "We should refuse no claim ourselves.")
		assert.LessOrEqual(t, reason.Last-reason.First, moment, "We should block claims for a moment only, where kustomize deletes the Service "+
			"before the webhooks.")
	}
	assert.Positive(t, report.Unbound, "We should be gone in the end.")
	d.gone(t, before)
}

// gone proves that what there was before an installation is all that there is.
func (d *deployment) gone(t *testing.T, before []string) {
	// What was deleted last may be an APIService, which the API server handles itself.
	eventually(t, func(c *attempt) {
		var left []string
		for _, name := range d.inventory(t) {
			if !slices.Contains(before, name) && !d.ends(c, name) {
				left = append(left, name)
			}
		}
		require.Empty(c, left)
	}, "We should leave nothing behind.")
	for _, kind := range []string{"Claim", "Lenient"} {
		unbound, _, err := d.create(t, named(kind, "uninstalled", "{classSelector: {}}"), client.DryRunAll)
		require.NoError(t, err, "We should block no claim once we are uninstalled.")
		assert.Empty(t, classOf(unbound))
	}
}

// ends reports whether an object goes with classbind's namespace, which is being deleted: controllers do so, where there are any.
func (d *deployment) ends(c *attempt, name string) bool {
	if d.plane == nil || !strings.HasSuffix(name, "/"+classbind.Namespace) && !strings.Contains(name, "/"+classbind.Namespace+"/") {
		return false
	}
	namespace := &corev1.Namespace{}
	require.NoError(c, d.Get(context.Background(), client.ObjectKey{Name: classbind.Namespace}, namespace))
	return namespace.DeletionTimestamp != nil
}

// settledInventory waits until nothing more appears in a cluster that is new.
func (d *deployment) settledInventory(t *testing.T) []string {
	var last []string
	require.EventuallyWithT(t, func(c *attempt) {
		before := last
		last = d.inventory(t)
		if d.plane == nil {
			require.Contains(c, last, "serviceaccounts/kube-system/default", "We should see its controllers run.")
		}
		require.ElementsMatch(c, before, last)
	}, patience, 3*time.Second)
	return last
}

// inventory is RESOURCE/NAMESPACE/NAME of every object in the cluster that neither comes and goes by itself nor is this test's.
func (d *deployment) inventory(t *testing.T) []string {
	config := rest.CopyConfig(d.config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // Some kinds of Kubernetes itself are deprecated.
	resources := must(discovery.NewDiscoveryClientForConfig(config))(t)
	objects := must(metadata.NewForConfig(config))(t)
	lists := must(resources.ServerPreferredResources())(t)
	var found []string
	for _, list := range lists {
		version := must(schema.ParseGroupVersion(list.GroupVersion))(t)
		for i := range list.APIResources {
			if r := &list.APIResources[i]; slices.Contains(r.Verbs, "list") && r.Name != "events" {
				names := must(namesOf(t.Context(), objects, version.WithResource(r.Name)))(t)
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
		own := strings.Contains(name, deploymentGroup) && !strings.HasSuffix(name, v1beta1.PolicySuffix) || strings.Contains(name, deploymentNamespace)
		if own || strings.HasPrefix(name, "leases.coordination.k8s.io/kube-") { // Of nodes, and of others' leaders.
			continue
		}
		names = append(names, name)
	}
	return names, nil
}
