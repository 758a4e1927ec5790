package e2e

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

var update = flag.Bool("update", false, "write the table of presets to docs/register-kinds.md")

// preset is a folder of deploy/kinds, and what its test needs to know besides.
type preset struct {
	name string
	// project has the CRDs, as the folder that $CRDS names calls it. Kubernetes' own kinds have none.
	project string
	// prepare the cluster for the claims.
	prepare func(*testing.T, *world)
}

func presets() []preset {
	return []preset{
		{name: "cert-manager", project: "cert-manager/cert-manager"},
		{name: "cluster-api", project: "kubernetes-sigs/cluster-api", prepare: func(t *testing.T, w *world) {
			w.standIn(t, "capi-mutating-webhook-configuration", "clusters.cluster.x-k8s.io", clusterAPI)
		}},
		{name: "crossplane-v1", project: "crossplane/crossplane"},
		{name: "crossplane-v2", project: "crossplane/crossplane"},
		{name: "external-secrets", project: "external-secrets/external-secrets"},
		{name: "gateway-api", project: "kubernetes-sigs/gateway-api"},
		{name: "ingress"},
		{name: "karpenter", project: "kubernetes-sigs/karpenter"},
		{name: "kubevirt"},
		{name: "kueue", project: "kubernetes-sigs/kueue"},
		{name: "object-storage", project: "kubernetes-sigs/container-object-storage-interface"},
		{name: "persistent-volumes"},
		{name: "service-fabrik"},
		{name: "volume-snapshots", project: "kubernetes-csi/external-snapshotter"},
	}
}

// shortPreset is tried in short mode, too: its kinds need no CRDs.
const shortPreset = "persistent-volumes"

// presetCheck is a column of the table in the documents.
type presetCheck string

const (
	checkSelector presetCheck = "selector"
	checkDefault  presetCheck = "default"
	checkExplicit presetCheck = "explicit"
	checkEmpty    presetCheck = "empty"
	checkSticky   presetCheck = "sticky"
	checkGuard    presetCheck = "guard"
	checkExplain  presetCheck = "explain"
	checkApply    presetCheck = "apply"
	checkDiff     presetCheck = "diff"
)

// TestPresets tries every preset with the CRDs of its project, each by itself: presets may
// share class kinds. The table in the documents has the result.
func TestPresets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	w.serve(t)
	source := newCRDSource(t)
	var table presetTable
	for _, p := range presets() {
		if testing.Short() && p.name != shortPreset {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			i := w.installPreset(t, p, source)
			for _, k := range i.claimKinds {
				t.Run(k.Name, func(t *testing.T) { table.add(i.try(t, k)) })
			}
		})
	}
	if !t.Failed() && !testing.Short() {
		table.compare(t)
	}
}

// TestPresetsAreAll proves that no folder is without a test.
func TestPresetsAreAll(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("../deploy/kinds/*/kustomization.yaml")
	require.NoError(t, err)
	var found, tested []string
	for _, folder := range folders {
		found = append(found, filepath.Base(filepath.Dir(folder)))
	}
	for _, p := range presets() {
		tested = append(tested, p.name)
	}
	assert.Equal(t, found, tested, "We should test every preset.")
}

// exampleClaim is a claim of an example, and what the comment above it says that it gets.
type exampleClaim struct {
	*unstructured.Unstructured
	comment string
}

// installedPreset is in the cluster, with its example's classes.
type installedPreset struct {
	*world
	preset
	folder     string
	crds       string // a folder with those that were installed
	version    map[string]string
	claimKinds []v1alpha1.ClaimKind
	classKinds map[string]v1alpha1.ClassKind
	claims     []exampleClaim
	classes    map[string][]*unstructured.Unstructured // of the example, by class kind
}

// installCRDs of all kinds that are registered.
func (i *installedPreset) installCRDs(t *testing.T, registrations []*unstructured.Unstructured, source *crdSource) {
	t.Helper()
	for _, k := range all[v1alpha1.ClaimKind](t, registrations, "ClaimKind") {
		i.installCRD(t, source, k.Resource())
		for _, related := range k.Spec.Related {
			i.installCRD(t, source, related.Resource)
		}
		i.claimKinds = append(i.claimKinds, k)
	}
	for _, k := range all[v1alpha1.ClassKind](t, registrations, "ClassKind") {
		i.installCRD(t, source, k.Name)
		i.classKinds[k.Name] = k
	}
}

// installPreset until the test ends.
func (w *world) installPreset(t *testing.T, p preset, source *crdSource) *installedPreset {
	t.Helper()
	i := &installedPreset{
		world: w, preset: p, folder: filepath.Join(w.deploy, "kinds", p.name), crds: t.TempDir(),
		version: map[string]string{}, classKinds: map[string]v1alpha1.ClassKind{}, classes: map[string][]*unstructured.Unstructured{},
	}
	registrations := w.rendered(t, i.folder)
	i.installCRDs(t, registrations, source)
	w.kubectl(t, "apply", "-k", i.folder)
	t.Cleanup(func() {
		_, _, err := w.Kubectl(context.Background(), nil, "delete", "-k", i.folder)
		assert.NoError(t, err)
	})
	i.readExample(t)
	for _, classes := range i.classes {
		for _, class := range classes {
			w.apply(t, manifestOf(t, class))
			t.Cleanup(func() { assert.NoError(t, w.Delete(context.Background(), class)) })
		}
	}
	if p.prepare != nil {
		p.prepare(t, w)
	}
	for n := range i.claimKinds {
		i.awaitReady(t, &i.claimKinds[n])
	}
	for name, k := range i.classKinds {
		i.awaitReady(t, &k)
		w.awaitClasses(t, name, len(i.classes[name]))
		i.classKinds[name] = k
	}
	return i
}

// installCRD of a kind, if it has one, and note its version.
func (i *installedPreset) installCRD(t *testing.T, source *crdSource, name string) {
	t.Helper()
	found, ok := source.find(t, name, i.project)
	if !ok {
		i.version[name] = "Kubernetes " + i.kubernetes(t)
		return
	}
	file := filepath.Join(i.crds, name+".yaml")
	require.NoError(t, os.WriteFile(file, []byte(found.manifest), 0o600))
	// Some are too long for the annotation in which kubectl keeps what it applied.
	i.kubectl(t, "apply", "--server-side", "-f", file)
	i.awaitCRDs(t, name)
	i.version[name] = found.version
}

// kubernetes is its version, without the patch.
func (w *world) kubernetes(t *testing.T) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.config)
	require.NoError(t, err)
	version, err := clients.Discovery().ServerVersion()
	require.NoError(t, err)
	return version.Major + "." + version.Minor
}

// awaitReady waits until a registration is served, and reads it.
func (w *world) awaitReady(t *testing.T, k client.Object) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(k), k))
		require.True(c, meta.IsStatusConditionTrue(conditionsOf(k), v1alpha1.ConditionReady), "%s: %v", k.GetName(), conditionsOf(k))
	}, patience, 20*time.Millisecond)
}

// readExample of the preset. Its namespaces are made.
func (i *installedPreset) readExample(t *testing.T) {
	t.Helper()
	for _, class := range objectsOf(t, filepath.Join(i.folder, "example", "classes.yaml")) {
		resource := i.place(t, class)
		require.Contains(t, i.classKinds, resource)
		i.classes[resource] = append(i.classes[resource], class)
	}
	related := filepath.Join(i.folder, "example", "related.yaml")
	if _, err := os.Stat(related); err == nil {
		for _, object := range objectsOf(t, related) {
			i.place(t, object)
			i.apply(t, manifestOf(t, object))
			i.deleteAfter(t, object)
		}
	}
	i.readClaims(t, filepath.Join(i.folder, "example", "claims.yaml"))
}

// readClaims with the comments above them. Their namespaces are made.
func (i *installedPreset) readClaims(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // It is ours.
	require.NoError(t, err)
	comments := strings.Split(string(text), "\n---\n")
	for n, claim := range objectsOf(t, file) {
		i.place(t, claim)
		comment, _, _ := strings.Cut(comments[n], "\napiVersion:")
		i.claims = append(i.claims, exampleClaim{claim, comment})
	}
}

// place an object in its namespace, which is made, and return its resource, <plural>.<group>.
func (i *installedPreset) place(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	kind := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		mapping, err = i.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(c, err)
	}, patience, 100*time.Millisecond, "We should see the API server list a kind whose CRD is established.")
	switch n := object.GetNamespace(); {
	case n != "":
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}
		require.NoError(t, client.IgnoreAlreadyExists(i.Create(t.Context(), namespace)))
	case mapping.Scope.Name() == meta.RESTScopeNameNamespace:
		object.SetNamespace("default")
	}
	return mapping.Resource.GroupResource().String()
}
