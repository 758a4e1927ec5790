package e2e

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestScenarios applies each folder of deploy/samples that shows what expressions are for as its README says, one after the other: they share
// kinds. The comment above each of its claims says what the claim gets.
func TestScenarios(t *testing.T) {
	long(t)
	t.Parallel()
	w, _ := servedWorld(t, controlplane.Options{})
	source := newCRDSource(t)
	for _, name := range kustomizations(t, "samples") {
		if name == "crossplane" {
			continue // TestSamples
		}
		t.Run(name, func(t *testing.T) {
			i := w.installScenario(t, name, source)
			i.awaitCalls(t)
			t.Run("Binds", i.binds)
			t.Run("Further", i.runsFurther)
		})
	}
}

// installedScenario is in the cluster, without its claims.
type installedScenario struct {
	*installedPreset
	// blocks of commands in the README: the first as commands says, the others for when the claims are there.
	blocks  []docBlock
	classes []*unstructured.Unstructured
}

func (w *world) installScenario(t *testing.T, name string, source *crdSource) *installedScenario {
	i := &installedScenario{installedPreset: &installedPreset{
		world: w, preset: preset{name: name}, folder: filepath.Join(w.deploy, "samples", name), crds: t.TempDir(),
		version: map[string]string{}, classKinds: map[string]v1beta1.ClassKind{},
	}}
	i.blocks = documented(t, "deploy/samples/"+name+"/README.md")
	objects := w.rendered(t, i.folder)
	i.installCRDs(t, objects, source)
	for _, resource := range i.related {
		i.installCRD(t, source, resource)
	}
	for _, command := range i.commands(false) {
		eventually(t, func(c *attempt) { // kubectl wait fails at what has no status yet.
			_, _, err := w.Kubectl(t.Context(), nil, command...)
			require.NoError(c, err)
		})
	}
	for _, object := range objects {
		i.place(t, object)
		if object.GetKind() == "ResourceQuota" {
			w.countQuota(t, object)
		}
		if object.GetKind() != "Namespace" { // No controller is there to empty it.
			w.deleteAfter(t, object)
		}
	}
	i.awaitServed(t)
	for _, object := range objects {
		if i.classKinds[i.place(t, object)].Name != "" {
			i.classes = append(i.classes, object)
		}
	}
	i.readClaims(t, filepath.Join(i.folder, "claims.yaml"))
	require.NotEmpty(t, i.claims)
	for _, claim := range i.claims {
		i.deleteAfter(t, claim.Unstructured)
	}
	return i
}

// countQuota stands in for the controller that counts what a namespace uses: nothing yet. Without a count, the API server refuses what the
// quota limits.
func (w *world) countQuota(t *testing.T, object *unstructured.Unstructured) {
	quota := &corev1.ResourceQuota{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(object), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{}}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.Quantity{}
	}
	require.NoError(t, w.Status().Update(t.Context(), quota))
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

// gets finds what a claim gets in the comment above it: one class, or one of two.
var gets = regexp.MustCompile(`# Gets ([A-Z]\w+) ([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?: or ([A-Z]\w+) ([a-z0-9](?:[-a-z0-9]*[a-z0-9])?))?`)

// promised are the references; a claim gets one; none if it gets no class.
func (i *installedScenario) promised(t *testing.T, claim exampleClaim) (references []any) {
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

func (i *installedScenario) by(t *testing.T, claim *unstructured.Unstructured) *trial {
	resource := i.place(t, claim)
	n := slices.IndexFunc(i.claimKinds, func(k v1beta1.ClaimKind) bool { return k.Resource() == resource })
	require.GreaterOrEqual(t, n, 0)
	return &trial{installedPreset: i.installedPreset, kind: i.claimKinds[n], base: claim}
}

// awaitCalls until the API server calls the webhook of each claim kind, a little later than the entry is there.
func (i *installedScenario) awaitCalls(t *testing.T) {
	for _, claim := range i.claims {
		promised := i.promised(t, claim)
		eventually(t, func(c *attempt) {
			probe := claim.DeepCopy()
			if err := i.Create(t.Context(), probe, client.DryRunAll); len(promised) > 0 {
				require.NoError(c, err)
				require.Contains(c, promised, i.by(t, claim.Unstructured).reference(c, probe), claim.GetName())
			}
		})
	}
}

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
			given := i.by(t, stored).reference(t, claim.Unstructured)
			if list, isList := given.([]any); isList && isWithin(list, got) { // The API server fills in defaults.
				continue
			}
			assert.Contains(t, []any{nil, "", given}, got, "We should not bind %s: %s", claim.GetName(), claim.comment)
		}
	}
}

// isWithin reports whether a value has all fields of another one.
func isWithin(given, got any) bool {
	switch given := given.(type) {
	case []any:
		list, _ := got.([]any)
		return slices.EqualFunc(given, list, isWithin)
	case map[string]any:
		fields, _ := got.(map[string]any)
		for name, value := range given {
			if !isWithin(value, fields[name]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(given, got)
	}
}

func (i *installedScenario) runsFurther(t *testing.T) {
	if len(i.blocks) == 1 {
		return
	}
	session := docSessionWith(t, i.plane.Kubeconfig)
	for n := range i.blocks[1:] {
		for _, step := range i.blocks[1+n].steps() {
			require.NoError(t, session.run(&step))
		}
	}
}

const (
	samplePostgres    = "postgresqlinstances.database.crossplane.io"
	sampleMySQL       = "mysqlinstances.database.crossplane.io"
	sampleRedis       = "redisclusters.cache.crossplane.io"
	sampleRDS         = "rdsinstanceclasses.database.aws.crossplane.io"
	sampleCloudSQL    = "cloudsqlinstanceclasses.database.gcp.crossplane.io"
	sampleMemorystore = "cloudmemorystoreinstanceclasses.cache.gcp.crossplane.io"
	sampleAzure       = "redisclasses.cache.azure.crossplane.io"
)

// applySamples of deploy/samples/crossplane, as its kustomization says.
func (w *world) applySamples(t *testing.T) {
	samples := filepath.Join(w.deploy, "samples", "crossplane")
	w.kubectl(t, "apply", "-k", filepath.Join(samples, "crds"))
	w.awaitCRDs(t, samplePostgres, sampleMySQL, sampleRedis, sampleRDS, sampleCloudSQL, sampleAzure, sampleMemorystore)
	w.kubectl(t, "apply", "-k", samples)
	for _, kind := range []string{samplePostgres, sampleMySQL, sampleRedis} {
		w.awaitClaims(t, kind)
	}
	w.awaitClasses(t, sampleRDS, 2)
	w.awaitClasses(t, sampleCloudSQL, 2)
	w.awaitClasses(t, sampleMemorystore, 3)
	w.awaitClasses(t, sampleAzure, 1)
	w.noWarnings(t, w.rendered(t, samples))
	w.kubectl(t, "apply", "-f", filepath.Join(samples, "claims.yaml"))
}

// TestSamples applies deploy/samples/crossplane.
func TestSamples(t *testing.T) {
	w := sharedWorld(t)
	w.applySamples(t)

	out := w.kubectl(t, "get", "postgresqlinstances,mysqlinstances,redisclusters", "--namespace=acme-team", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.spec.classRef.kind}/{.spec.classRef.name}{"\n"}{end}`)
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, class, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[name] = class
	}
	for name, want := range map[string][]string{
		"gitlab-database":          {"RDSInstanceClass/gitlab-experimental", "CloudSQLInstanceClass/gitlab-experimental"},
		"gitlab-praefect-database": {"RDSInstanceClass/gitlab-production", "CloudSQLInstanceClass/gitlab-production"},
		"app-database":             {"CloudSQLInstanceClass/gitlab-experimental"},
		"billing-database":         {"/"},
		"wordpress-database":       {"CloudSQLInstanceClass/gitlab-experimental"},
		"my-cache":                 {"CloudMemorystoreInstanceClass/gcp-dev", "RedisClass/azure-dev"},
		"gitlab-cache":             {"CloudMemorystoreInstanceClass/cheap-redis", "CloudMemorystoreInstanceClass/really-quite-a-lot-of-memory"},
		"session-cache":            {"/"},
	} {
		assert.Contains(t, want, got[name], "We should bind %s as its comment says.", name)
	}

	failing := ""
	if !policiesServed(t) {
		failing = "(" + v1beta1.ConditionDefaultedByPolicy + " +)?" // It comes a moment after the others.
	}
	for registration, want := range map[string]string{
		"claimkinds/mysqlinstances.database.crossplane.io": `^NAME +STRATEGY +CLASSES +DEFAULT +BOUND +WAITING +FAILING +READY +REASON +AGE
mysqlinstances.database.crossplane.io +WeightedRandom +4 +gitlab-experimental +` + failing + `True +Served +\w+
$`,
		"classkinds/redisclasses.cache.azure.crossplane.io": `^NAME +CLASSES +CLAIMS +FAILING +READY +REASON +AGE
redisclasses.cache.azure.crossplane.io +1 +True +Served +\w+
$`,
	} {
		eventually(t, func(c *attempt) { // A class kind is guarded a moment after it is served.
			printed, _, err := w.Kubectl(t.Context(), nil, "get", registration)
			require.NoError(c, err)
			require.Regexp(c, want, printed)
		})
	}

	bound, _, err := w.create(t, `
apiVersion: cache.crossplane.io/v1alpha1
kind: RedisCluster
metadata: {namespace: acme-team, name: large}
spec: {classSelector: {matchLabels: {stack: gitlab, grade: production}}}`)
	require.NoError(t, err)
	assert.Equal(t, "CloudMemorystoreInstanceClass/really-quite-a-lot-of-memory", classOf(bound),
		"We should be able to use the class with more memory than an integer can count.")
}
