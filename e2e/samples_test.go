package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
)

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
	t.Helper()
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
	w.kubectl(t, "apply", "-f", filepath.Join(samples, "claims.yaml"))
}

// TestSamples applies deploy/samples/crossplane.
func TestSamples(t *testing.T) {
	t.Parallel()
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
		failing = "(" + v1alpha1.ConditionDefaultedByPolicy + " +)?" // It comes a moment after the others.
	}
	assert.Regexp(t, `^NAME +STRATEGY +CLASSES +DEFAULT +BOUND +WAITING +FAILING +READY +REASON +AGE
mysqlinstances.database.crossplane.io +WeightedRandom +4 +CloudSQLInstanceClass/gitlab-experimental +`+failing+`True +Served +\w+
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
