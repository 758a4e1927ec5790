package e2e

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
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
		{name: "datastores", then: datastores},
		{name: "managed-resource", project: "crossplane/crossplane", then: managedResource},
		{name: "resource-class", then: resourceClass},
		{name: "service-fabrik", then: serviceFabrik},
		{name: "tenants", project: "kubernetes-sigs/gateway-api", then: tenants},
		{name: "use", project: "kubernetes-sigs/gateway-api", then: tenantsUse},
		{name: "volume-claim-access-modes", then: accessModes},
		{name: "volume-snapshot", project: "kubernetes-csi/external-snapshotter", then: volumeSnapshot},
	}
}

// TestScenarios applies each sample as its README says, one after the other: they share kinds.
func TestScenarios(t *testing.T) {
	long(t)
	t.Parallel()
	w, _ := servedWorld(t, controlplane.Options{}, "--in-flight-window="+hardWindow.String())
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
	tested := []string{"crossplane"} // TestSamples
	for _, s := range scenarios() {
		tested = append(tested, s.name)
	}
	assert.ElementsMatch(t, kustomizations(t, "samples"), tested, "We should test every sample.")
}

// installedScenario is in the cluster, without its claims.
type installedScenario struct {
	*installedPreset
	// blocks of commands in the README: the first as commands says, the others for when the claims are there.
	blocks  []docBlock
	classes []*unstructured.Unstructured
}

func (w *world) installScenario(t *testing.T, s scenario, source *crdSource) *installedScenario {
	i := &installedScenario{installedPreset: &installedPreset{
		world: w, preset: preset{name: s.name, project: s.project}, folder: filepath.Join(w.deploy, "samples", s.name), crds: t.TempDir(),
		version: map[string]string{}, classKinds: map[string]v1beta1.ClassKind{},
	}}
	i.blocks = documented(t, "deploy/samples/"+s.name+"/README.md")
	objects := w.rendered(t, i.folder)
	i.installCRDs(t, objects, source)
	for _, command := range i.commands(false) {
		eventually(t, func(c *attempt) { // kubectl wait fails at what has no status yet.
			_, _, err := w.Kubectl(t.Context(), nil, command...)
			require.NoError(c, err)
		})
	}
	for _, object := range objects {
		i.place(t, object)
		if object.GetKind() != "Namespace" { // Nobody is there to empty it.
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

// promised are the references of which a claim gets one; none if it gets no class.
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
		if promised := i.promised(t, claim); len(promised) > 0 {
			i.awaitGets(t, claim.Unstructured, promised...)
		}
	}
}

// awaitGets waits until a claim would get one of these references. It is not created.
func (i *installedScenario) awaitGets(t *testing.T, claim *unstructured.Unstructured, references ...any) {
	x := i.by(t, claim)
	eventually(t, func(c *attempt) {
		probe := claim.DeepCopy()
		require.NoError(c, i.Create(t.Context(), probe, client.DryRunAll))
		require.Contains(c, references, x.reference(c, probe), claim.GetName())
	})
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
			assert.Contains(t, []any{nil, ""}, got, "We should not bind %s: %s", claim.GetName(), claim.comment)
		}
	}
}

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
			items := i.explain(t, filepath.Join(i.folder, "claims.yaml"), arg)
			for _, claim := range i.claims {
				x, found := i.by(t, claim.Unstructured), 0
				for _, item := range items {
					if strings.Join([]string{item.Claim.ClaimKind, item.Claim.Kind, item.Claim.Namespace, item.Claim.Name}, " ") !=
						strings.Join([]string{x.kind.Name, claim.GetKind(), claim.GetNamespace(), claim.GetName()}, " ") {
						continue
					}
					found++
					switch promised := i.promised(t, claim); {
					case where == "Files" && x.kind.Spec.Classes.Use != nil: // Who may use a class, files do not say.
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
				assert.Equal(t, 1, found, "We should explain %s.", claim.GetName())
			}
		})
	}
}

func withName[T interface{ GetName() string }](t *testing.T, all []T, name string) T {
	n := slices.IndexFunc(all, func(o T) bool { return o.GetName() == name })
	require.GreaterOrEqual(t, n, 0, "The sample has no %s.", name)
	return all[n]
}

func (i *installedScenario) class(t *testing.T, name string) *unstructured.Unstructured {
	return withName(t, i.classes, name)
}

// claim of the sample that was not created, with a name of its own.
func (i *installedScenario) claim(t *testing.T, name, as string) *unstructured.Unstructured {
	claim := withName(t, i.claims, name).DeepCopy()
	claim.SetName(as)
	return claim
}

func (i *installedScenario) to(t *testing.T, claim *unstructured.Unstructured, class string) any {
	return i.by(t, claim).referenceTo(i.class(t, class))
}

func (i *installedScenario) second(t *testing.T, class *unstructured.Unstructured) *unstructured.Unstructured {
	return i.by(t, i.claims[0].Unstructured).marked(t, class, class.GetName()+"-second")
}

func (i *installedScenario) refusesSecond(t *testing.T, class, beside string) {
	assert.ErrorContains(t, i.refused(t, i.second(t, i.class(t, class))), "/"+beside+`"`)
}

func (i *installedScenario) acceptsSecond(t *testing.T, class *unstructured.Unstructured, reason string) {
	second := i.second(t, class)
	i.deleteAfter(t, second)
	require.NoError(t, i.Create(t.Context(), second), reason)
}

func (i *installedScenario) moves(t *testing.T, to, claimKind string) {
	out, stderr, exit := i.classbind(t, "set-default", i.class(t, to).GetKind()+"/"+to, "--for", claimKind, "--kubeconfig="+i.plane.Kubeconfig)
	require.Zero(t, exit, "%s%s", out, stderr)
}

func (i *installedScenario) patch(t *testing.T, object client.Object, patch string) error {
	return i.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (i *installedScenario) bound(t *testing.T, claim *unstructured.Unstructured) any {
	i.deleteAfter(t, claim)
	require.NoError(t, i.Create(t.Context(), claim))
	return i.by(t, claim).reference(t, claim)
}

func cheapest(t *testing.T, i *installedScenario) {
	hundred := i.claim(t, "hundred", "hundred-later")
	require.NoError(t, i.patch(t, i.class(t, "unpriced").DeepCopy(), `{"metadata": {"annotations": {"example.org/price": "3.99"}}}`))
	i.awaitGets(t, hundred, i.to(t, hundred, "unpriced"))
	four := i.claim(t, "four", "four-later")
	require.NoError(t, i.patch(t, i.class(t, "six").DeepCopy(), `{"metadata": {"annotations": {"example.org/price": "0.01"}}}`))
	i.awaitGets(t, four, i.to(t, four, "six"))
}

func compositions(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "database-gcp", "database-aws")
	i.refusesSecond(t, "bucket-aws", "bucket-gcp")
	i.acceptsSecond(t, i.class(t, "legacy-database-azure"), "We should not count the Compositions for a kind that nobody registered.")
	database, bucket := i.claim(t, "orders", "orders-later"), i.claim(t, "pictures", "pictures-later")
	i.moves(t, "database-gcp", "databases")
	i.awaitGets(t, database, i.to(t, database, "database-gcp"))
	i.awaitGets(t, bucket, i.to(t, bucket, "bucket-gcp"))
}

func datastores(t *testing.T, i *installedScenario) {
	database := i.claim(t, "database", "full-of-namespace")
	require.NoError(t, unstructured.SetNestedField(database.Object, "10.5Gi", "spec", "size"))
	require.Nil(t, i.bound(t, database), "We should round up, and give a namespace no more than its part.")
	other := i.claim(t, "database", "of-another-namespace")
	other.SetNamespace("kube-public")
	require.Equal(t, i.to(t, other, "fast"), i.bound(t, other))
	named := other.DeepCopy()
	named.SetName("named")
	named.SetNamespace("kube-node-lease")
	named.SetResourceVersion("")
	err := i.Create(t.Context(), named)
	require.ErrorContains(t, err, "full: 100 of 100", "We should refuse a Disk that names a full Datastore.")
}

func managedResource(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "default", "shared")
	claim := i.claim(t, "pictures", "pictures")
	file := write(t, manifestOf(t, claim))
	i.kubectl(t, "replace", "-f", file)
	require.NoError(t, i.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	assert.Equal(t, i.to(t, claim, "shared"), i.by(t, claim).reference(t, claim),
		"We should put the reference back where the schema puts its default.")
}

func resourceClass(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "mysql-production", "mysql-standard")
	i.refusesSecond(t, "postgresql-production", "postgresql-standard")
	mysql, postgresql := i.claim(t, "wordpress", "wordpress-later"), i.claim(t, "gitlab", "gitlab-later")
	i.moves(t, "mysql-production", "mysqlinstances")
	i.awaitGets(t, mysql, i.to(t, mysql, "mysql-production"))
	i.awaitGets(t, postgresql, i.to(t, postgresql, "postgresql-standard"))

	moved := i.class(t, "postgresql-standard").DeepCopy()
	err := i.patch(t, moved, `{"claimKind": "MySQLInstance"}`)
	require.True(t, apierrors.IsForbidden(err), "We should refuse a default class that moves to where there is one: %v", err)
	assert.ErrorContains(t, err, "mysql-production")
}

func serviceFabrik(t *testing.T, i *installedScenario) {
	t.Run("Spreads", func(t *testing.T) {
		counts := map[any]int{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			counts[i.bound(t, i.claim(t, "small", "small-"+name))]++
		}
		// The instance that its author gave cluster 1 counts there.
		assert.Equal(t, map[any]int{"1": 2, "2": 3}, counts, "We should give an instance the cluster with the fewest.")
	})
	plan := func(name, content string) *unstructured.Unstructured {
		return documents(t, `{apiVersion: osb.servicefabrik.io/v1alpha1, kind: SFPlan, metadata: {namespace: interoperator, name: `+name+`},
spec: {id: `+name+`, name: `+name+`, templates: [{action: clusterSelector, type: gotemplate, content: "`+content+`"}]}}`)[0]
	}
	t.Run("Waits", func(t *testing.T) {
		early := i.claim(t, "early", "early")
		medium := plan("medium", "plan=dedicated")
		i.deleteAfter(t, medium)
		require.NoError(t, i.Create(t.Context(), medium))
		eventually(t, func(c *attempt) {
			require.NoError(c, i.Get(t.Context(), client.ObjectKeyFromObject(early), early))
			require.Equal(c, "3", i.by(t, early).reference(c, early), "We should bind an instance when there is its plan.")
		})
	})
	t.Run("OneFile", func(t *testing.T) {
		huge, claim := plan("huge", "plan=dedicated"), i.claim(t, "dedicated", "of-one-file")
		require.NoError(t, unstructured.SetNestedField(claim.Object, "huge", "spec", "planId"))
		i.deleteAfter(t, huge)
		i.deleteAfter(t, claim)
		i.apply(t, manifestOf(t, huge)+"---\n"+manifestOf(t, claim))
		require.NoError(t, i.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		assert.Equal(t, "3", i.by(t, claim).reference(t, claim), "We should know a plan that was applied with the instance.")
	})
	t.Run("GoTemplate", func(t *testing.T) {
		templated, claim := plan("templated", "plan={{ .planId }}"), i.claim(t, "dedicated", "templated")
		require.NoError(t, unstructured.SetNestedField(claim.Object, "templated", "spec", "planId"))
		i.deleteAfter(t, templated)
		require.NoError(t, i.Create(t.Context(), templated))
		err := i.Create(t.Context(), claim)
		require.True(t, apierrors.IsInvalid(err), "We should refuse a selector that is none: %v", err)
		assert.ErrorContains(t, err, "spec.selector.expression")
	})
}

func tenantsUse(t *testing.T, i *installedScenario) {
	edge := i.claim(t, "edge", "refused")
	edge.SetNamespace("playground")
	err := i.Create(t.Context(), edge)
	require.True(t, apierrors.IsForbidden(err), "We should refuse what the namespace may not use: %v", err)
	require.ErrorContains(t, err, "it may use GatewayClass/shared")
	assert.NotContains(t, err.Error(), "acme-edge", "We should name none that it may not use.")
	named := i.claim(t, "web", "named")
	require.NoError(t, unstructured.SetNestedField(named.Object, "globex-edge", "spec", "gatewayClassName"))
	err = i.Create(t.Context(), named)
	require.True(t, apierrors.IsForbidden(err), "We should refuse a class that the author names: %v", err)
	require.ErrorContains(t, err, "classbind classes gateways.gateway.networking.k8s.io -n acme-shop")
}

func tenants(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "acme-internal", "acme")
	i.refusesSecond(t, "shared", "shared")
	err := i.patch(t, i.class(t, "globex").DeepCopy(), `{"metadata": {"labels": {"tenant": "acme"}}}`)
	require.True(t, apierrors.IsForbidden(err), "We should refuse a default class that moves to a tenant that has one: %v", err)

	theirs := i.claim(t, "internal", "theirs")
	theirs.SetNamespace("globex-web")
	err = i.Create(t.Context(), theirs)
	require.True(t, apierrors.IsForbidden(err), "We should give nobody the class of another tenant: %v", err)
	require.ErrorContains(t, err, "1 of another tenant")

	web := i.claim(t, "web", "web-later")
	web.SetNamespace("playground")
	i.awaitGets(t, web, i.to(t, web, "shared"))
	i.kubectl(t, "label", "namespace", "playground", "tenant=globex")
	i.awaitGets(t, web, i.to(t, web, "globex"))
	i.moves(t, "acme-internal", "gateways")
	acme := i.claim(t, "web", "web-later")
	acme.SetNamespace("acme-web")
	i.awaitGets(t, acme, i.to(t, acme, "acme-internal"))
	i.awaitGets(t, web, i.to(t, web, "globex"))
}

func accessModes(t *testing.T, i *installedScenario) {
	_, warnings, err := i.create(t, manifestOf(t, i.claim(t, "fast-uploads", "fast-uploads-later")), client.DryRunAll)
	require.NoError(t, err)
	require.NotEmpty(t, warnings)
	assert.Contains(t, warnings[len(warnings)-1], "1 not for all access modes of the claim", "We should say why the class that it selects does not do.")
	uploads := i.claim(t, "uploads", "uploads-later")
	require.NoError(t, i.patch(t, i.class(t, "unknown").DeepCopy(),
		`{"metadata": {"annotations": {"example.org/access-modes": "ReadWriteMany", "classbind.io/weight": "3"}}}`))
	i.awaitGets(t, uploads, i.to(t, uploads, "unknown"))
}

func volumeSnapshot(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "files-retained", "files")
	third := i.class(t, "block").DeepCopy()
	third.SetName("local")
	require.NoError(t, unstructured.SetNestedField(third.Object, "local.csi.example.org", "driver"))
	i.acceptsSecond(t, third, "We should accept the default class of one more driver.")
	scratch := i.claim(t, "scratch", "scratch-later")
	i.awaitGets(t, scratch, "local-second")

	i.moves(t, "files-retained", "volumesnapshots")
	uploads, database := i.claim(t, "uploads", "uploads-later"), i.claim(t, "database", "database-later")
	i.awaitGets(t, uploads, i.to(t, uploads, "files-retained"))
	i.awaitGets(t, database, i.to(t, database, "block"))

	claim := documents(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: default, name: of-one-file},
spec: {accessModes: [ReadWriteOnce], storageClassName: block, resources: {requests: {storage: 1Gi}}}}`)[0]
	require.NoError(t, unstructured.SetNestedField(database.Object, "of-one-file", "spec", "source", "persistentVolumeClaimName"))
	i.deleteAfter(t, claim)
	i.deleteAfter(t, database)
	i.apply(t, manifestOf(t, claim)+"---\n"+manifestOf(t, database))
	require.NoError(t, i.Get(t.Context(), client.ObjectKeyFromObject(database), database))
	assert.Equal(t, "block", i.by(t, database).reference(t, database), "We should know a volume claim that was applied with the snapshot.")
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
	assert.Regexp(t, `^NAME +STRATEGY +CLASSES +DEFAULT +BOUND +WAITING +FAILING +READY +REASON +AGE
mysqlinstances.database.crossplane.io +WeightedRandom +4 +gitlab-experimental +`+failing+`True +Served +\w+
$`, w.kubectl(t, "get", "claimkinds", "mysqlinstances.database.crossplane.io"))
	assert.Regexp(t, `^NAME +CLASSES +CLAIMS +FAILING +READY +REASON +AGE
redisclasses.cache.azure.crossplane.io +1 +True +Served +\w+
$`, w.kubectl(t, "get", "classkinds", "redisclasses.cache.azure.crossplane.io"))

	bound, _, err := w.create(t, `
apiVersion: cache.crossplane.io/v1alpha1
kind: RedisCluster
metadata: {namespace: acme-team, name: large}
spec: {classSelector: {matchLabels: {stack: gitlab, grade: production}}}`)
	require.NoError(t, err)
	assert.Equal(t, "CloudMemorystoreInstanceClass/really-quite-a-lot-of-memory", classOf(bound),
		"We should be able to use the class with more memory than an integer can count.")
}
