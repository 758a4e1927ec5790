package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// class of the sample.
func (i *installedScenario) class(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	for _, class := range i.classes {
		if class.GetName() == name {
			return class
		}
	}
	require.Fail(t, "The sample has no such class.", name)
	return nil
}

// claim of the sample that was not created, with a name of its own.
func (i *installedScenario) claim(t *testing.T, name, as string) *unstructured.Unstructured {
	t.Helper()
	for _, claim := range i.claims {
		if claim.GetName() == name {
			copied := claim.DeepCopy()
			copied.SetName(as)
			return copied
		}
	}
	require.Fail(t, "The sample has no such claim.", name)
	return nil
}

// to is the reference of a claim to a class.
func (i *installedScenario) to(t *testing.T, claim *unstructured.Unstructured, class string) any {
	t.Helper()
	return i.by(t, claim).referenceTo(i.class(t, class))
}

// second default class beside another, which is refused, or not.
func (i *installedScenario) second(t *testing.T, class *unstructured.Unstructured) error {
	t.Helper()
	second := i.by(t, i.claims[0].Unstructured).marked(t, class, class.GetName()+"-second")
	i.deleteAfter(t, second)
	return i.Create(t.Context(), second)
}

// refusesSecond default class like this one, beside that default.
func (i *installedScenario) refusesSecond(t *testing.T, class, beside string) {
	t.Helper()
	err := i.second(t, i.class(t, class))
	require.True(t, apierrors.IsForbidden(err), "We should refuse a second default class: %v", err)
	assert.ErrorContains(t, err, "/"+beside+`"`)
}

// moves the default to a class, as the samples say.
func (i *installedScenario) moves(t *testing.T, to, claimKind string) {
	t.Helper()
	out, stderr, exit, err := i.classbind(t.Context(), "set-default", i.class(t, to).GetKind()+"/"+to, "--for", claimKind, "--kubeconfig="+i.plane.Kubeconfig)
	require.NoError(t, err)
	require.Zero(t, exit, "%s%s", out, stderr)
}

// patch an object of the sample.
func (i *installedScenario) patch(t *testing.T, object client.Object, patch string) error {
	t.Helper()
	return i.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// bound is the reference of a claim right after its creation.
func (i *installedScenario) bound(t *testing.T, claim *unstructured.Unstructured) any {
	t.Helper()
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
	require.NoError(t, i.second(t, i.class(t, "legacy-database-azure")), "We should not count the Compositions for a kind that nobody registered.")
	database, bucket := i.claim(t, "orders", "orders-later"), i.claim(t, "pictures", "pictures-later")
	i.moves(t, "database-gcp", "databases")
	i.awaitGets(t, database, i.to(t, database, "database-gcp"))
	i.awaitGets(t, bucket, i.to(t, bucket, "bucket-gcp"))
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
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, i.Get(t.Context(), client.ObjectKeyFromObject(early), early))
			require.Equal(c, "3", i.by(t, early).reference(c, early), "We should bind an instance when there is its plan.")
		}, patience, 20*time.Millisecond)
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
		assert.ErrorContains(t, err, "spec.classSelector.expression")
	})
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
		`{"metadata": {"annotations": {"example.org/access-modes": "ReadWriteMany", "resourceclass.crossplane.io/weight": "3"}}}`))
	i.awaitGets(t, uploads, i.to(t, uploads, "unknown"))
}

func volumeSnapshot(t *testing.T, i *installedScenario) {
	i.refusesSecond(t, "files-retained", "files")
	third := i.class(t, "block").DeepCopy()
	third.SetName("local")
	require.NoError(t, unstructured.SetNestedField(third.Object, "local.csi.example.org", "driver"))
	require.NoError(t, i.second(t, third), "We should accept the default class of one more driver.")
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
