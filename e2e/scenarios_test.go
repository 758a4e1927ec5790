package e2e

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// scenario is a folder of deploy/samples that shows what expressions are for. The comment
// above each of its claims says what the claim gets.
type scenario struct {
	name string
	// project has the CRDs, as a preset's does.
	project string
	// then tries what else the sample promises.
	then func(*testing.T, *installedScenario)
}

func scenarios() []scenario {
	return []scenario{
		{name: "cheapest", then: cheapest},
		{name: "crossplane-v2", project: "crossplane/crossplane", then: compositions},
		{name: "managed-resource", project: "crossplane/crossplane", then: managedResource},
		{name: "resource-class", then: resourceClass},
		{name: "service-fabrik", then: serviceFabrik},
		{name: "tenants", project: "kubernetes-sigs/gateway-api", then: tenants},
		{name: "volume-claim-access-modes", then: accessModes},
		{name: "volume-snapshot", project: "kubernetes-csi/external-snapshotter", then: volumeSnapshot},
	}
}

// TestScenarios applies each sample as its README says, one after the other: they share kinds.
func TestScenarios(t *testing.T) {
	long(t)
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	w.serve(t)
	source := newCRDSource(t)
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			i := w.installScenario(t, s, source)
			i.awaitCalls(t)
			t.Run("Explains", i.explains)
			t.Run("Binds", i.binds)
			t.Run("Then", func(t *testing.T) { s.then(t, i) })
			t.Run("Further", i.runsFurther)
		})
	}
}

// TestScenariosAreAll proves that no sample is without a test.
func TestScenariosAreAll(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("../deploy/samples/*/kustomization.yaml")
	require.NoError(t, err)
	tested := []string{"crossplane"} // TestSamples
	for _, s := range scenarios() {
		tested = append(tested, s.name)
	}
	var found []string
	for _, folder := range folders {
		found = append(found, filepath.Base(filepath.Dir(folder)))
	}
	assert.ElementsMatch(t, found, tested, "We should test every sample.")
}

// installedScenario is in the cluster, without its claims.
type installedScenario struct {
	*installedPreset
	// blocks of commands in the README: the first as commands says, the others for when the claims are there.
	blocks  []docBlock
	classes []*unstructured.Unstructured
}

// installScenario until the test ends.
func (w *world) installScenario(t *testing.T, s scenario, source *crdSource) *installedScenario {
	t.Helper()
	i := &installedScenario{installedPreset: &installedPreset{
		world: w, preset: preset{name: s.name, project: s.project}, folder: filepath.Join(w.deploy, "samples", s.name), crds: t.TempDir(),
		version: map[string]string{}, classKinds: map[string]v1alpha1.ClassKind{},
	}}
	i.blocks = documented(t, "deploy/samples/"+s.name+"/README.md")
	objects := w.rendered(t, i.folder)
	i.installCRDs(t, objects, source)
	for _, command := range i.commands(false) {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // kubectl wait fails at what has no status yet.
			_, _, err := w.Kubectl(t.Context(), nil, command...)
			require.NoError(c, err)
		}, patience, 50*time.Millisecond)
	}
	for _, object := range objects {
		i.place(t, object)
		if object.GetKind() != "Namespace" { // Nobody is there to empty it.
			w.deleteAfter(t, object)
		}
	}
	i.readScenario(t, objects)
	return i
}

// commands are the arguments of kubectl in the first block of the README: what installs the sample,
// or what creates the claims and shows them.
func (i *installedScenario) commands(claims bool) (commands [][]string) {
	install, show, _ := strings.Cut(strings.Join(i.blocks[0].lines, "\n"), "kubectl apply -f ")
	block := install
	if claims {
		block = "kubectl apply -f " + show
	}
	for line := range strings.Lines(block) {
		words := strings.Fields(strings.ReplaceAll(line, " deploy/", " "+i.deploy+"/"))
		commands = append(commands, words[1:])
	}
	return commands
}

// readScenario waits until all is served, and reads the claims.
func (i *installedScenario) readScenario(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for n := range i.claimKinds {
		i.awaitReady(t, &i.claimKinds[n])
	}
	count := map[string]int{}
	for _, object := range objects {
		if resource := i.place(t, object); i.classKinds[resource].Name != "" {
			i.classes = append(i.classes, object)
			count[resource]++
		}
	}
	for name, k := range i.classKinds {
		i.awaitReady(t, &k)
		i.awaitClasses(t, name, count[name])
		i.classKinds[name] = k
	}
	i.readClaims(t, filepath.Join(i.folder, "claims.yaml"))
	require.NotEmpty(t, i.claims)
	for _, claim := range i.claims {
		i.deleteAfter(t, claim.Unstructured)
	}
}

// gets finds what a claim gets in the comment above it: one class, or one of two.
var gets = regexp.MustCompile(`# Gets ([A-Z]\w+) ([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?: or ([A-Z]\w+) ([a-z0-9](?:[-a-z0-9]*[a-z0-9])?))?`)

// promised are the references of which a claim gets one; none if it gets no class.
func (i *installedScenario) promised(t *testing.T, claim exampleClaim) (references []any) {
	t.Helper()
	found := gets.FindStringSubmatch(claim.comment)
	if found == nil {
		require.Regexp(t, `^# Gets no `, claim.comment, claim.GetName())
		return nil
	}
	for n := 1; n < len(found) && found[n] != ""; n += 2 {
		before := len(references)
		for _, class := range i.classes {
			if class.GetKind() == found[n] && class.GetName() == found[n+1] {
				references = append(references, i.by(t, claim.Unstructured).referenceTo(class))
			}
		}
		require.Len(t, references, before+1, "%s: %s", claim.GetName(), claim.comment)
	}
	return references
}

// by the ClaimKind of the claim.
func (i *installedScenario) by(t *testing.T, claim *unstructured.Unstructured) *trial {
	t.Helper()
	resource := i.place(t, claim)
	n := slices.IndexFunc(i.claimKinds, func(k v1alpha1.ClaimKind) bool { return k.Resource() == resource })
	require.GreaterOrEqual(t, n, 0)
	return &trial{installedPreset: i.installedPreset, kind: i.claimKinds[n]}
}

// awaitCalls until the API server calls the webhook of each claim kind, a little later than the entry is there.
func (i *installedScenario) awaitCalls(t *testing.T) {
	t.Helper()
	for _, claim := range i.claims {
		if promised := i.promised(t, claim); len(promised) > 0 {
			i.awaitGets(t, claim.Unstructured, promised...)
		}
	}
}

// awaitGets waits until a claim would get one of these references. It is not created.
func (i *installedScenario) awaitGets(t *testing.T, claim *unstructured.Unstructured, references ...any) {
	t.Helper()
	x := i.by(t, claim)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		probe := claim.DeepCopy()
		require.NoError(c, i.Create(t.Context(), probe, client.DryRunAll))
		require.Contains(c, references, x.reference(c, probe), claim.GetName())
	}, patience, 50*time.Millisecond)
}

// binds the claims, as an author has them created.
func (i *installedScenario) binds(t *testing.T) {
	for _, command := range i.commands(true) {
		assert.NotEmpty(t, i.kubectl(t, command...))
	}
	for _, claim := range i.claims {
		stored := claim.DeepCopy()
		require.NoError(t, i.Get(t.Context(), client.ObjectKeyFromObject(claim), stored))
		got := i.by(t, stored).reference(t, stored)
		if promised := i.promised(t, claim); len(promised) > 0 {
			assert.Contains(t, promised, got, "We should bind %s as its comment says.", claim.GetName())
		} else {
			assert.Contains(t, []any{nil, ""}, got, "We should not bind %s: %s", claim.GetName(), claim.comment)
		}
	}
}

// runsFurther blocks of the README.
func (i *installedScenario) runsFurther(t *testing.T) {
	if len(i.blocks) == 1 {
		return
	}
	session := i.docSession(t)
	for n := range i.blocks[1:] {
		for _, step := range i.blocks[1+n].steps() {
			require.NoError(t, session.run(&step))
		}
	}
}

// explains the claims before they are created, of the cluster and of files.
func (i *installedScenario) explains(t *testing.T) {
	for where, arg := range map[string]string{
		"Cluster": "--kubeconfig=" + i.plane.Kubeconfig,
		"Files":   "--classes=" + write(t, i.kubectl(t, "kustomize", i.folder)),
	} {
		t.Run(where, func(t *testing.T) {
			out, stderr, _, err := i.classbind(t.Context(), "explain", "--output=json", "--filename="+filepath.Join(i.folder, "claims.yaml"), arg)
			require.NoError(t, err)
			var report struct {
				Items []struct {
					Claim            struct{ Name, Namespace, Kind, ClaimKind string }
					Outcome, Message string
					Reference        any
				}
			}
			require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, stderr)
			for _, claim := range i.claims {
				x, found := i.by(t, claim.Unstructured), 0
				for _, item := range report.Items {
					if strings.Join([]string{item.Claim.ClaimKind, item.Claim.Kind, item.Claim.Namespace, item.Claim.Name}, " ") !=
						strings.Join([]string{x.kind.Name, claim.GetKind(), claim.GetNamespace(), claim.GetName()}, " ") {
						continue
					}
					found++
					switch promised := i.promised(t, claim); {
					case len(promised) == 0:
						assert.Contains(t, []string{"Unmatched", "LeftAlone"}, item.Outcome, "%+v", item)
					case claim.GetName() == "explicit":
						assert.Equal(t, "LeftAlone", item.Outcome, "%+v", item)
					default:
						assert.Equal(t, "Bound", item.Outcome, "%+v", item)
						if len(promised) == 1 { // Else it depends on what is bound until then.
							assert.Equal(t, promised[0], item.Reference, "%+v", item)
						}
					}
				}
				assert.Equal(t, 1, found, "We should explain %s: %s%s", claim.GetName(), out, stderr)
			}
		})
	}
}
