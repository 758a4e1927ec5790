package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/load"
)

func helm(t testing.TB, args ...string) (string, error) {
	c := exec.CommandContext(t.Context(), "./helm", args...) //nolint:gosec // The tests choose the arguments.
	out, err := c.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}

// manifestsByName are the objects of a stream of YAML, by KIND NAMESPACE/NAME.
func manifestsByName(t *testing.T, text string) map[string]map[string]any {
	objects := map[string]map[string]any{}
	for _, o := range documents(t, text) {
		if inNoNamespace.Has(o.GetKind()) {
			o.SetNamespace("") // An API server ignores it.
		}
		name := fmt.Sprintf("%s %s/%s", o.GroupVersionKind(), o.GetNamespace(), o.GetName())
		require.NotContains(t, objects, name)
		objects[name] = o.Object
	}
	return objects
}

// inNoNamespace are kinds that kustomize does not know, so that it gives them a namespace where it changes that of all objects.
var inNoNamespace = sets.New("FlowSchema", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

// sameObjects proves that a chart renders what kustomize builds, but for two differences, which the README of the chart explains:
// Helm makes the namespace of a release itself, and does not delete the CRDs.
func sameObjects(t *testing.T, kustomized, chart, values, namespace string) (rendered string) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	rendered = must(helm(t, "template", "classbind", chart, "--namespace="+namespace, "--skip-tests", "--values="+file))(t)
	want, got := manifestsByName(t, kustomized), manifestsByName(t, rendered)
	delete(want, "/v1, Kind=Namespace /"+namespace)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for name, object := range got {
		u := unstructured.Unstructured{Object: object}
		if annotations := u.GetAnnotations(); u.GetKind() == "CustomResourceDefinition" && !strings.Contains(values, "keep: false") {
			assert.Equal(t, "keep", annotations["helm.sh/resource-policy"], "We should have Helm leave the registrations.")
			delete(annotations, "helm.sh/resource-policy")
			u.SetAnnotations(annotations)
		}
		assert.Equal(t, want[name], object, "We should render %s as kustomize builds it.", name)
	}
	return rendered
}

// TestChart proves that the chart renders what kustomize builds, object by object.
func TestChart(t *testing.T) {
	t.Parallel()
	notInPods(t, "TestChartInPods installs it.")
	binaries := must(assets.Dir(t.Context(), os.Stderr))(t)
	deploy := must(classbind.Deploy(t.Context()))(t)
	chart := filepath.Join(deploy, "chart")
	w := &world{deploy: deploy, Kubectl: func(ctx context.Context, _ io.Reader, args ...string) (string, string, error) {
		out, err := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), args...).Output() //nolint:gosec // It is ours.
		return string(out), "", err
	}}
	out, err := helm(t, "lint", "--strict", chart)
	require.NoError(t, err, out)

	defaults := must(helm(t, "template", "classbind", chart, "--namespace="+classbind.Namespace, "--skip-tests"))(t)
	patch := func(target string, operations ...string) string {
		return "patches:\n- target: " + target + "\n  patch: |-\n    - " + strings.Join(operations, "\n    - ") + "\n"
	}
	const container = "/spec/template/spec/containers/0"
	digest := strings.Repeat("5", 64)
	const every = `{certificates: %s, clientCertificates: {enabled: true}, flowSchemas: {enabled: true},
horizontalPodAutoscaler: {enabled: true}, monitoring: {enabled: true}, networkPolicy: {enabled: true}, policies: {enabled: true}, priority: {enabled: true}}`
	for name, tc := range map[string]struct {
		values, installation string
		components           []string
		overlay, namespace   string // the rest of the kustomization, and the namespace of the release
	}{
		"Default":        {},
		"OtherNamespace": {namespace: "platform"},
		"RemovedCRDs":    {values: "{crds: {keep: false}}"},
		"CertManager":    {values: "{certificates: cert-manager}", installation: certManager},
		"Every":          {values: fmt.Sprintf(every, certsSelfSigned), components: components},
		"EveryManaged":   {values: fmt.Sprintf(every, certsCertManager), installation: certManager, components: components},
		"EveryElsewhere": {values: fmt.Sprintf(every, certsSelfSigned), components: components, namespace: "platform"},
		"EveryManagedElsewhere": {
			values: fmt.Sprintf(every, certsCertManager), installation: certManager, components: components, namespace: "platform",
		},
		"Clients":     {values: "{clientCertificates: {enabled: true}}", components: []string{"client-certificates"}},
		"FlowSchemas": {values: "{flowSchemas: {enabled: true}}", components: []string{"flow-schemas"}},
		"Policies":    {values: "{policies: {enabled: true}}", components: []string{"policies"}},
		"Priority":    {values: "{priority: {enabled: true}}", components: []string{"priority"}},
		"Autoscaler": {
			values: "{horizontalPodAutoscaler: {enabled: true, spec: {maxReplicas: 9}}}", components: []string{"horizontal-pod-autoscaler"},
			overlay: patch("{kind: HorizontalPodAutoscaler}", "{op: replace, path: /spec/maxReplicas, value: 9}"),
		},
		"Monitoring": {
			values: "{monitoring: {enabled: true, labels: {release: prometheus}}}", components: []string{"monitoring"},
			overlay: patch("{group: monitoring.coreos.com}", "{op: add, path: /metadata/labels/release, value: prometheus}"),
		},
		"NetworkPolicy": {
			values: "{networkPolicy: {enabled: true, spec: {egress: []}}}", components: []string{"network-policy"},
			overlay: patch("{kind: NetworkPolicy}", "{op: replace, path: /spec/egress, value: []}"),
		},
		"Image": {
			values:  "{image: {repository: registry.example.com/a/b, tag: v1}}",
			overlay: "images: [{name: localhost/classbind, newName: registry.example.com/a/b, newTag: v1}]\n",
		},
		"Digest": {
			values:  "{image: {tag: '', digest: 'sha256:" + digest + "'}}",
			overlay: "images: [{name: localhost/classbind, digest: 'sha256:" + digest + "'}]\n",
		},
		"Pull": {
			values: "{image: {pullPolicy: Always}, imagePullSecrets: [{name: registry}]}",
			overlay: patch("{kind: Deployment}",
				"{op: replace, path: "+container+"/imagePullPolicy, value: Always}",
				"{op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}"),
		},
		"Deployment": {
			values: `{certificates: cert-manager, replicas: 5, resources: {limits: {memory: 1Gi}}, goMemLimit: 880MiB, args: [--log-level=debug],
pod: {hostNetwork: true, tolerations: [{operator: Exists}]}}`, installation: certManager,
			overlay: "replicas: [{name: classbind, count: 5}]\n" + patch("{kind: Deployment}",
				"{op: replace, path: "+container+"/resources, value: {limits: {memory: 1Gi}}}",
				"{op: replace, path: "+container+"/env/0/value, value: 880MiB}",
				"{op: add, path: "+container+"/args/-, value: --log-level=debug}",
				"{op: add, path: /spec/template/spec/hostNetwork, value: true}",
				"{op: add, path: /spec/template/spec/tolerations, value: [{operator: Exists}]}"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := w.overlayIn(t, tc.namespace, cmp.Or(tc.installation, selfSigned), tc.components...)
			kustomization := filepath.Join(dir, "kustomization.yaml")
			text := readText(t, kustomization) + tc.overlay
			require.NoError(t, os.WriteFile(kustomization, []byte(text), 0o600))
			rendered := sameObjects(t, w.kubectl(t, "kustomize", dir), chart, tc.values, cmp.Or(tc.namespace, classbind.Namespace))
			assert.Equal(t, name == "Default", rendered == defaults, "We should see what the values change.")
		})
	}
	for name, tc := range map[string]struct{ values, want string }{
		"Unknown":     {"{imagee: {}}", "imagee"},
		"PullPolicy":  {"{image: {pullPolicy: Sometimes}}", "pullPolicy"},
		"Mode":        {"{certificates: vault}", "'self-signed', 'cert-manager'"},
		"Replicas":    {"{replicas: 3, horizontalPodAutoscaler: {enabled: true}}", "replicas"},
		"Containers":  {"{pod: {containers: []}}", "containers"},
		"WrongDigest": {"{image: {digest: 'sha256:1'}}", "digest"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "values.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.values), 0o600))
			_, err := helm(t, "template", chart, "--values="+file)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
			require.ErrorContains(t, err, tc.want, "We should name the value.")
		})
	}
}

// TestChartInPods installs the chart, upgrades it, goes back and uninstalls it, with the commands of the documents, while a hundred
// claims are created each second. It leaves kinds of claims and classes, and nothing else.
func TestChartInPods(t *testing.T) {
	if !inPods() {
		t.Skip("It needs a cluster with pods: make e2e.")
	}
	d, before := newDeployment(t, "With Helm")
	blocks := documented(t, "docs/upgrade-and-uninstall.md")
	require.Len(t, blocks, 4)
	upgrade, rollback, uninstall, cleanUp := blocks[0], blocks[1], blocks[2], blocks[3]
	if !t.Run("Install", d.helmInstall) {
		return
	}
	t.Run("Upgrade", func(t *testing.T) { d.helmMoves(t, "helm upgrade", podImage+"-next", upgrade) })
	t.Run("Rollback", func(t *testing.T) { d.helmMoves(t, "helm rollback", podImage, rollback) })
	t.Run("Uninstall", func(t *testing.T) {
		report := d.during(t, "helm uninstall", func(*load.Load) { d.documentedHelm(t, podImage, uninstall) })
		assert.Zero(t, report.Failures, "We should block no claim on the way.")
		assert.Positive(t, report.Unbound, "We should be gone in the end.")
		d.kubectl(t, "get", "claimkind", "claims.deployment.test") // We should have kept the registrations.
		d.documentedHelm(t, podImage, cleanUp)
		d.gone(t, before)
	})
}

// documentedHelm runs commands of the documents, with the chart that is here and an image. on-cluster has put Helm into bin.
func (d *deployment) documentedHelm(t *testing.T, image string, b docBlock) {
	colon := strings.LastIndex(image, ":")
	chart := fmt.Sprintf("%s/chart --set certificates=%s,policies.enabled=true,image.repository=%s,image.tag=%s",
		podDeploy, podCerts, image[:colon], image[colon+1:])
	script := docChart.ReplaceAllLiteralString(strings.Join(b.lines, "\n"), chart)
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script) //nolint:gosec // It is in our documents.
	c.Env = append(os.Environ(), "PATH="+filepath.Join(filepath.Dir(podDeploy), "bin")+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	t.Logf("%s:\n%s\n%s", b.at, script, out)
	require.NoError(t, err)
}

var docChart = regexp.MustCompile(`oci://ghcr\.io/classbind/charts/classbind --version \S+|deploy/chart`)

// helmInstall does what docs/install.md says, while claims of no registered kind are created.
func (d *deployment) helmInstall(t *testing.T) {
	d.vendor(t)
	report := d.during(t, "helm install", func(*load.Load) {
		for _, b := range documented(t, "docs/install.md") {
			d.documentedHelm(t, podImage, b)
		}
		d.settled(t, 2)
	})
	assert.Zero(t, report.Failures, "We should lose no creation.")
	d.apply(t, deploymentKinds)
	d.awaitClaims(t, "claims.deployment.test")
	d.awaitClaims(t, "lenients.deployment.test")
	d.works(t, "with-helm")
	d.awaitReplicas(t, "claims.deployment.test")
}

func (d *deployment) helmMoves(t *testing.T, what, image string, b docBlock) {
	d.lossless(t, what, func() {
		d.documentedHelm(t, image, b)
		d.settled(t, 2)
	})
	d.runs(t, image)
}
