package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
	"github.com/classbind/classbind/e2e/progress"
)

const (
	upgradeGroup = "upgrade.test"
	// upgradeFrom is the last commit of classbind.io/v1alpha1.
	upgradeFrom = "4537b7f034b1e08c4fe591477902ad00805b303a"
)

// The registrations of claims whose reference is a name: as they were before, and as they are now.
var (
	olderRegistrations = strings.ReplaceAll(claimKind("claims.upgrade.test", "{}")+
		claimKind("nameds.upgrade.test", "{reference: {path: .spec.className, form: Name}, bindWhen: has(claim.spec), strategy: Random}")+
		classKind("classes.upgrade.test", "{claimKinds: [claims.upgrade.test]}")+
		classKind("tiers.upgrade.test", "{claimKinds: [nameds.upgrade.test]}"), "classbind.io/v1beta1", "classbind.io/v1alpha1")
	newerRegistrations = claimKind("claims.upgrade.test", "{}") +
		claimKind("nameds.upgrade.test", "{claims: {when: has(claim.spec)}, reference: {path: .spec.className, form: Name}, choice: {strategy: Random}}") +
		classKind("classes.upgrade.test", "{claimKinds: [{name: claims.upgrade.test}]}") +
		classKind("tiers.upgrade.test", "{claimKinds: [{name: nameds.upgrade.test}]}")
)

// olderRelease is the source of that commit.
func olderRelease(t *testing.T) (root, command string) {
	deploy := must(classbind.Deploy(t.Context()))(t)
	archive := exec.CommandContext(t.Context(), "git", "archive", upgradeFrom)
	archive.Dir = filepath.Dir(deploy)
	source, err := archive.Output()
	if err != nil {
		t.Skipf("It needs the commit %s, which a shallow clone does not have: git fetch --unshallow. (%v)", upgradeFrom, err)
	}
	root = t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", root) //nolint:gosec // It is a folder of the test's.
	unpack.Stdin = strings.NewReader(string(source))
	out, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "classbind", "./cmd/classbind")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return root, filepath.Join(root, "classbind")
}

// olderWorld is a cluster with the older release applied, and its command beside it.
func olderWorld(t *testing.T, root, command string) (*world, *replica) {
	plane := must(controlplane.Start(t.Context(), controlplane.Options{Progress: os.Stderr}))(t)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	w := &world{Kubectl: plane.Kubectl, config: plane.Config, plane: plane, deploy: filepath.Join(root, "deploy")}
	kubeconfigs := must(classbind.Install(t.Context(), plane, w.deploy))(t)
	w.kubeconfig = kubeconfigs[0]
	require.NoError(t, w.connect())

	r := &replica{log: &progress.Log{}}
	r.Process = must(classbind.Start(command, w.kubeconfig, r.log))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The older replica's log:\n%s", r.log)
		}
	})
	return w, r
}

// tryDefault creates a second default class, which nobody may.
func (w *world) tryDefault(t *testing.T, when string) {
	_, _, err := w.create(t, class(upgradeGroup, "Class", "second", isDefault), client.DryRunAll)
	require.Error(t, err, "We should have one default class %s the upgrade.", when)
}

// checkNamed claims have the name of their class at the path of their registration.
func (w *world) checkNamed(t *testing.T, name string) {
	bound := w.created(t, strings.Replace(claim(upgradeGroup, name), "kind: Claim", "kind: Named", 1))
	assert.Equal(t, map[string]any{"className": "gold", "classSelector": map[string]any{}}, bound.Object["spec"])
}

// TestUpgrade goes from the older release to this one as docs/upgrade-and-uninstall.md says, while claims are created.
func TestUpgrade(t *testing.T) {
	long(t)
	notInPods(t, "It needs a control plane of its own, with classbind as a process beside it.")
	t.Parallel()
	root, command := olderRelease(t)
	w, old := olderWorld(t, root, command)
	w.resources(t, "Claim claims.upgrade.test Namespaced", "Named nameds.upgrade.test Namespaced",
		"Class classes.upgrade.test Cluster", "Tier tiers.upgrade.test Cluster")
	w.apply(t, vendor(upgradeGroup)+olderRegistrations+class(upgradeGroup, "Tier", "gold", ""))
	w.kubectl(t, "wait", "claimkinds", "--all", "--for=condition=Ready", "--timeout=60s")
	w.kubectl(t, "wait", "classkinds", "--all", "--for=condition=Guarded", "--timeout=60s")
	w.awaitRefused(t, class(upgradeGroup, "Class", "probe", "annotations: {resourceclass.crossplane.io/weight: x}, "), "must be an integer", "We should be asked about classes.")
	w.apply(t, class(upgradeGroup, "Class", "usual", isDefault))
	w.awaitBound(t, strings.Replace(claim(upgradeGroup, "probe"), "classSelector: {}", "", 1), "Class/usual", "We should have the older release bind claims.")
	w.tryDefault(t, "before")
	eventually(t, func(c *attempt) {
		bound, _, err := w.create(t, strings.Replace(claim(upgradeGroup, "probe"), "kind: Claim", "kind: Named", 1), client.DryRunAll)
		require.NoError(c, err)
		require.Contains(c, bound.Object["spec"], "className")
	})
	w.checkNamed(t, "before")

	w.kubectl(t, "create", "namespace", "load")
	claims := load.Start(t.Context(), load.Options{
		Client: w.Client, Kinds: []schema.GroupVersionKind{{Group: upgradeGroup, Version: "v1", Kind: "Claim"}}, Namespace: "load", PerSecond: 20,
		Foreign: func(class string) bool { return class != "Class/usual" },
	})
	require.NoError(t, claims.Next(t.Context(), 20))
	claims.Mark()
	begin := time.Now()
	w.upgrade(t, old)
	took := time.Since(begin)
	require.NoError(t, claims.Next(t.Context(), 40))
	report := must(claims.Stop(t.Context()))(t)
	t.Log(report)
	assert.Positive(t, report.Failures, "We should see the upgrade.")
	assert.Zero(t, report.Unbound+report.Unlike+report.Foreign, "We should refuse claims, and create none without its class.")
	for _, reason := range report.Reasons {
		assert.GreaterOrEqual(t, reason.First, -time.Second, "We should refuse none before.")
		assert.Contains(t, reason.Text, `failed calling webhook "claims.upgrade.test.bind.classbind.io"`)
	}
	assert.LessOrEqual(t, report.LastFailure(), took+time.Second, "We should refuse none afterwards.")

	w.tryDefault(t, "after")
	w.checkNamed(t, "after")
	w.kubectl(t, "annotate", "classes.upgrade.test", "usual", "resourceclass.crossplane.io/is-default-class-")
	_, _, err := w.create(t, class(upgradeGroup, "Class", "next", isDefault))
	require.NoError(t, err, "We should have the Lease of the older release keep nobody from becoming the default.")
	w.refuses(t, class(upgradeGroup, "Class", "second", isDefault), `"Class/next" is the default class`)
}

// upgrade by the commands of the document. The process takes the place of the pods.
func (w *world) upgrade(t *testing.T, old *replica) {
	newer := must(classbind.Deploy(t.Context()))(t)
	files := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(files, "my-registrations.yaml"), []byte(newerRegistrations), 0o600))
	here := strings.NewReplacer("deploy/crd", filepath.Join(newer, "crd"), "-k overlay", "-k "+newer, "my-registrations.yaml", filepath.Join(files, "my-registrations.yaml"))
	for _, block := range documented(t, "docs/upgrade-and-uninstall.md") {
		for _, line := range block.lines {
			words := strings.Fields(here.Replace(line))
			require.Equal(t, "kubectl", words[0], block.at)
			eventually(t, func(c *attempt) {
				_, _, err := w.Kubectl(t.Context(), nil, words[1:]...)
				require.NoError(c, err, "%s: %s", block.at, line) // A CRD that has just changed is not served at once.
			})
			switch {
			case strings.Contains(line, "--replicas=0"):
				require.NoError(t, old.Stop())
				w.tryDefault(t, "during")
			case strings.Contains(line, "deploy/crd"):
				w.refusesOlderFields(t)
			case strings.Contains(line, "-k overlay"):
				// The Service has the same address before and after.
				r := w.start(t, "--webhook-url="+old.URL, "--webhook-bind-address="+strings.TrimPrefix(old.URL, "https://"))
				r.URL = old.URL
				require.NoError(t, r.Ready(t.Context()))
			case strings.Contains(line, "condition=Ready"):
				w.tryDefault(t, "at the end of")
			}
		}
	}
	w.awaitBound(t, claim(upgradeGroup, "free"), "Class/usual", "We should bind claims again.")
}

func (w *world) refusesOlderFields(t *testing.T) {
	eventually(t, func(c *attempt) {
		older := strings.ReplaceAll(olderRegistrations, "classbind.io/v1alpha1", "classbind.io/v1beta1")
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(older), "create", "--dry-run=server", "-f", "-")
		require.ErrorContains(c, err, `unknown field "spec.bindWhen"`)
		require.ErrorContains(c, err, `unknown field "spec.strategy"`)
	}, "We should refuse fields of the older release, rather than to drop them.")
}
