package e2e

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

var update = flag.Bool("update", false, "write the table of presets to docs/register-kinds.md")

// preset is a folder of deploy/kinds, and what its test needs to know besides.
type preset struct {
	name string
	// needs are presets that have class kinds of its claims.
	needs []string
	// prepare the cluster for the claims.
	prepare func(*testing.T, *world)
}

// presetsWith are those for which a test needs to know more than the name.
var presetsWith = map[string]preset{
	"cluster-api": {prepare: func(t *testing.T, w *world) {
		w.standIn(t, "capi-mutating-webhook-configuration", "clusters.cluster.x-k8s.io", clusterAPI)
	}},
	"jobset": {needs: []string{"kueue-queues"}},
	"kueue":  {needs: []string{"kueue-queues"}},
}

// shortPreset is tried in short mode, too: its kinds need no CRDs. Those of its related objects come after it is ready.
const shortPreset = "persistent-volumes"

// presetChecks are tried with each claim kind of a preset. The last column of the table in the documents has those that do not apply.
var presetChecks = []struct {
	name string
	run  func(*trial, *testing.T)
}{
	{"selector", (*trial).selects},
	{"default", (*trial).unopinionated},
	{"explicit", (*trial).explicit},
	{"empty", (*trial).empty},
	{"sticky", (*trial).sticky},
	{"guard", (*trial).guard},
	{"explain", (*trial).explained},
	{"apply", (*trial).appliedTwice},
	{"diff", (*trial).differs},
}

// TestPresets tries every preset with the CRDs of its project, each by itself: presets may
// share class kinds. The table in the documents has the result.
func TestPresets(t *testing.T) {
	notInPods(t, "Other controllers change its claims there.")
	var w *world
	if testing.Short() {
		w = sharedWorld(t)
	} else {
		t.Parallel()
		w, _ = servedWorld(t, controlplane.Options{})
	}
	source := newCRDSource(t)
	var table []string
	for _, name := range kustomizations(t, "kinds") {
		if testing.Short() && name != shortPreset {
			continue
		}
		p := presetsWith[name]
		p.name = name
		t.Run(p.name, func(t *testing.T) {
			if len(some[v1beta1.ClaimKind](t, w.rendered(t, filepath.Join(w.deploy, "kinds", name)), "ClaimKind")) == 0 {
				t.Skip("Others need it, and try it.")
			}
			i := w.installPreset(t, p, source)
			for _, k := range i.claimKinds {
				t.Run(k.Name, func(t *testing.T) { table = append(table, i.try(t, k)) })
			}
		})
	}
	if !testing.Short() && !t.Failed() {
		comparePresets(t, table)
	}
}

// kustomizations are the names of the folders in one of deploy.
func kustomizations(t *testing.T, folder string) (names []string) {
	for _, path := range must(filepath.Glob("../deploy/" + folder + "/*/kustomization.yaml"))(t) {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names
}

// exampleClaim is a claim of an example, and what it gets by the comment above it.
type exampleClaim struct {
	*unstructured.Unstructured
	comment string
}

// installedPreset is in the cluster, with its example's classes.
type installedPreset struct {
	*world
	preset
	folder     string
	folders    []string // with those of what it needs
	crds       string   // a folder with those that were installed
	version    map[string]string
	claimKinds []v1beta1.ClaimKind
	classKinds map[string]v1beta1.ClassKind
	related    []string // the resources of related objects
	claims     []exampleClaim
	classes    map[string][]*unstructured.Unstructured // of the example, by class kind
}

func (i *installedPreset) installCRDs(t *testing.T, registrations []*unstructured.Unstructured, source *crdSource) {
	for _, k := range some[v1beta1.ClaimKind](t, registrations, "ClaimKind") {
		i.installCRD(t, source, k.Resource())
		for _, related := range k.Spec.Classes.Related {
			i.related = append(i.related, related.Resource)
		}
		i.claimKinds = append(i.claimKinds, k)
	}
	for _, k := range some[v1beta1.ClassKind](t, registrations, "ClassKind") {
		i.installCRD(t, source, k.Name)
		i.classKinds[k.Name] = k
	}
}

// applyClasses of the example until the test ends. They are guarded for the claim kinds, which a replica must know.
func (i *installedPreset) applyClasses(t *testing.T) {
	for _, classes := range i.classes {
		for _, class := range classes {
			eventually(t, func(c *attempt) {
				applied := client.ApplyConfigurationFromUnstructured(class.DeepCopy())
				require.NoError(c, i.Apply(t.Context(), applied, client.ForceOwnership, client.FieldOwner("kubectl")))
			}, "We should guard classes once the replica has heard of a claim kind that was there before.")
			i.deleteAfter(t, class.DeepCopy())
		}
	}
	if i.prepare != nil {
		i.prepare(t, i.world)
	}
}

func (w *world) installPreset(t *testing.T, p preset, source *crdSource) *installedPreset {
	i := &installedPreset{
		world: w, preset: p, folder: filepath.Join(w.deploy, "kinds", p.name), crds: t.TempDir(),
		version: map[string]string{}, classKinds: map[string]v1beta1.ClassKind{}, classes: map[string][]*unstructured.Unstructured{},
	}
	for _, name := range append(p.needs, p.name) {
		i.folders = append(i.folders, filepath.Join(w.deploy, "kinds", name))
		i.installCRDs(t, w.rendered(t, i.folders[len(i.folders)-1]), source)
	}
	installRelated := func() {
		for _, resource := range i.related {
			i.installCRD(t, source, resource)
		}
	}
	if p.name != shortPreset {
		installRelated()
	}
	i.readExample(t)
	for _, folder := range i.folders {
		w.kubectl(t, "apply", "-k", folder)
		t.Cleanup(func() {
			_, _, err := w.Kubectl(context.Background(), nil, "delete", "--ignore-not-found", "-k", folder)
			assert.NoError(t, err)
		})
	}
	i.awaitServed(t)
	if p.name == shortPreset { // Every cluster has volume claims, and not every one has VolumeSnapshots.
		installRelated()
	}
	for _, folder := range i.folders {
		w.noWarnings(t, w.rendered(t, folder))
	}
	return i
}

// awaitServed applies the example's classes once the claims are bound, and waits until all are known.
func (i *installedPreset) awaitServed(t *testing.T) {
	for n := range i.claimKinds {
		i.awaitReady(t, &i.claimKinds[n])
	}
	i.applyClasses(t)
	for name, k := range i.classKinds {
		i.awaitReady(t, &k)
		i.awaitClasses(t, name, i.count(t, name))
		i.classKinds[name] = k
	}
}

func (i *installedPreset) count(t *testing.T, resource string) int {
	kind := must(i.RESTMapper().KindFor(schema.ParseGroupResource(resource).WithVersion("")))(t)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	require.NoError(t, i.List(t.Context(), list))
	return len(list.Items)
}

func (i *installedPreset) installCRD(t *testing.T, source *crdSource, name string) {
	found, ok := source.find(t, name)
	if !ok {
		version := must(must(discovery.NewDiscoveryClientForConfig(i.config))(t).ServerVersion())(t)
		i.version[name] = "Kubernetes " + version.Major + "." + version.Minor
		return
	}
	file := filepath.Join(i.crds, name+".yaml")
	require.NoError(t, os.WriteFile(file, []byte(found.manifest), 0o600))
	// Some are too long for the annotation in which kubectl keeps what it applied.
	i.kubectl(t, "apply", "--server-side", "-f", file)
	i.awaitCRDs(t, name)
	i.version[name] = found.version
}

func (w *world) awaitReady(t *testing.T, k client.Object) {
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(k), k))
		require.True(c, meta.IsStatusConditionTrue(conditionsOf(k), v1beta1.ConditionReady), "%s: %v", k.GetName(), conditionsOf(k))
	})
}

// readExample of the preset. Its namespaces are made.
func (i *installedPreset) readExample(t *testing.T) {
	for _, folder := range i.folders {
		for _, class := range exampleOf(t, folder, "classes.yaml") {
			resource := i.place(t, class)
			require.Contains(t, i.classKinds, resource)
			i.classes[resource] = append(i.classes[resource], class)
		}
	}
	for _, object := range exampleOf(t, i.folder, "related.yaml") {
		i.place(t, object)
		i.apply(t, manifestOf(t, object))
		i.deleteAfter(t, object)
	}
	i.readClaims(t, filepath.Join(i.folder, "example", "claims.yaml"))
}

func exampleOf(t *testing.T, folder, name string) []*unstructured.Unstructured {
	file := filepath.Join(folder, "example", name)
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return objectsOf(t, file)
}

// readClaims with the comments above them. Their namespaces are made.
func (i *installedPreset) readClaims(t *testing.T, file string) {
	comments := strings.Split(readText(t, file), "\n---\n")
	for n, claim := range objectsOf(t, file) {
		i.place(t, claim)
		comment, _, _ := strings.Cut(comments[n], "\napiVersion:")
		i.claims = append(i.claims, exampleClaim{claim, comment})
	}
}

// place an object in its namespace, which is made, and return its resource, <plural>.<group>.
func (i *installedPreset) place(t *testing.T, object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	eventually(t, func(c *attempt) {
		mapping = must(i.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version))(c)
	}, "We should see the API server list a kind whose CRD is established.")
	switch n := object.GetNamespace(); {
	case n != "":
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}
		require.NoError(t, client.IgnoreAlreadyExists(i.Create(t.Context(), namespace)))
	case mapping.Scope.Name() == meta.RESTScopeNameNamespace:
		object.SetNamespace("default")
	}
	return mapping.Resource.GroupResource().String()
}

const (
	presetTableBegin = "<!-- presets, from their test: cd e2e && CGO_ENABLED=0 go test -run 'TestPresets$' -update -->\n"
	presetTableEnd   = "<!-- end of presets -->\n"
)

// comparePresets compares the table with that of the documents, or writes it there.
func comparePresets(t *testing.T, lines []string) {
	const page = "../docs/register-kinds.md"
	text := must(os.ReadFile(page))(t)
	before, rest, found := strings.Cut(string(text), presetTableBegin)
	require.True(t, found)
	present, after, found := strings.Cut(rest, presetTableEnd)
	require.True(t, found)
	if *update {
		head := "| preset | claim | version of its CRD | reference | does not apply |\n|---|---|---|---|---|\n"
		table := before + presetTableBegin + head + strings.Join(lines, "") + presetTableEnd + after
		require.NoError(t, os.WriteFile(page, []byte(table), 0o644)) //nolint:gosec // A document.
		return
	}
	shown := slices.Collect(strings.Lines(present))
	require.Len(t, shown, len(lines)+2, "We should have a row for each ClaimKind in the documents: go test -run 'TestPresets$' -update")
	assert.Equal(t, lines, shown[2:], "We should have what works in the documents: go test -run 'TestPresets$' -update")
}

// TestKinds prints each preset, and builds its kustomization: both are ways to apply it.
func TestKinds(t *testing.T) {
	notInPods(t, "It needs the command on this host, and there it is in an image alone.")
	w := sharedWorld(t)
	names := kustomizations(t, "kinds")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed, stderr, _ := w.classbind(t, "kinds", name)
			for note := range strings.SplitSeq(strings.TrimSpace(stderr), "\n") {
				require.True(t, note == "" || strings.HasPrefix(note, "note: "+name), "We should print %s: %s", name, note)
			}
			assert.ElementsMatch(t, w.rendered(t, filepath.Join(w.deploy, "kinds", name)), documents(t, printed), "We should print its objects.")
		})
	}
	list, _, _ := w.classbind(t, "kinds")
	assert.Equal(t, len(names)+1, strings.Count(list, "\n"), "We should list every preset, below a head.")
}
