package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExplain asks a real API server for schemas, and for claims by their kinds.
func TestExplain(t *testing.T) {
	t.Parallel()
	if inPods() {
		t.Skip("It needs the kubeconfig of an admin.")
	}
	w := sharedWorld(t)
	w.apply(t, vendor("explain.test")+`
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: claims.explain.test}
spec:
  group: explain.test
  scope: Namespaced
  names: {plural: claims, kind: Claim, listKind: ClaimList, singular: claim}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
              classRef: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: classes.explain.test}
spec:
  group: explain.test
  scope: Cluster
  names: {plural: classes, kind: Class, listKind: ClassList, singular: class}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`+claimKind("claims.explain.test", "{}")+classKind("classes.explain.test", "{claimKinds: [claims.explain.test]}"))
	w.awaitCRDs(t, "claims.explain.test", "classes.explain.test")
	w.awaitClasses(t, "classes.explain.test", 0)
	w.awaitClaims(t, "claims.explain.test")
	stored := write(t, `
apiVersion: explain.test/v1
kind: Claim
metadata: {name: mine, namespace: default}
spec: {classSelector: {matchLabels: {tier: gold}}}
`)
	w.kubectl(t, "apply", "-f", stored)
	gold := write(t, `
apiVersion: explain.test/v1
kind: Class
metadata: {name: gold, labels: {tier: gold}}
`)
	claim := func(apiVersion, kind, field string) string {
		return write(t, "{apiVersion: "+apiVersion+", kind: "+kind+", metadata: {name: a, namespace: default}, spec: {"+field+": {matchLabels: {tier: gold}}}}")
	}
	volumes := write(t, claimKind("persistentvolumeclaims", "{reference: {path: .spec.storageClassName, form: Name}}")+
		classKind("storageclasses.storage.k8s.io", "{claimKinds: [persistentvolumeclaims]}"))
	volume := func(field string) string {
		return write(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: default, annotations: {classbind.io/class-selector: tier=none}}, "+
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, "+field+"}}")
	}
	pvc := write(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: default}, spec: {storageClassName: a}}")
	for name, tc := range map[string]struct {
		reason string
		args   []string
		status int
		want   string
	}{
		"File":         {"We should explain a claim without a mistake.", []string{"-f", stored}, 1, "Claim default/mine: no class"},
		"With":         {"We should put a class on top of the cluster's.", []string{"-f", stored, "--with", gold}, 0, "Claim default/mine: bound to Class/gold"},
		"Resource":     {"We should find a claim of the cluster.", []string{"claims.explain.test/mine", "-n", "default", "--with", gold}, 0, "Claim default/mine: bound to Class/gold"},
		"Absent":       {"We should say that a claim is not there.", []string{"claims.explain.test/absent", "-n", "default"}, 2, `cannot get the claim "claims.explain.test/absent": there is none of this name`},
		"WrongField":   {"We should read the schema that the API server publishes.", []string{"-f", claim("explain.test/v1", "Claim", "classselector")}, 2, "spec.classselector: the schema has no such field: did you mean spec.classSelector?"},
		"WrongVersion": {"We should know which versions are served.", []string{"-f", claim("explain.test/v2", "Claim", "classSelector")}, 2, "the API server does not serve Claim of explain.test/v2: set apiVersion to explain.test/v1"},
		"WrongKind":    {"We should know which kinds are served.", []string{"-f", claim("explain.test/v1", "Clam", "classSelector")}, 2, "no ClaimKind registers this kind: did you mean Claim?"},
		"NotServed":    {"We should refuse a kind of a registered group that is not served.", []string{"-f", claim("explain.test/v1", "Postgres", "classSelector")}, 2, "the API server does not serve Postgres of explain.test/v1"},
		"BuiltIn":      {"We should find nothing wrong in a right claim without a CRD.", []string{"-f", volume("volumeMode: Block"), "--with", volumes}, 1, "PersistentVolumeClaim default/a: no class"},
		"BuiltInField": {"We should know the fields that the ClaimKind reads of a kind without a CRD.", []string{"-f", volume("storageClassname: a"), "--with", volumes}, 2, "spec.storageClassname: did you mean spec.storageClassName?"},
		"NotRegistered": {
			"We should leave alone a kind of the API server's own.", []string{"-f", pvc}, 0, "left alone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), command, append([]string{"explain"}, tc.args...)...) //nolint:gosec // It runs the command under test.
			cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig, "GORACE=atexit_sleep_ms=0")
			out, _ := cmd.CombinedOutput()
			assert.Equal(t, tc.status, cmd.ProcessState.ExitCode(), "%s: %s", tc.reason, out)
			assert.Contains(t, string(out), tc.want, tc.reason)
			assert.NotContains(t, string(out), "not checked", "We should find a schema.")
		})
	}
}

// write a manifest, and return its file.
func write(t *testing.T, manifest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(file, []byte("---\n"+manifest), 0o600)) // Older kubectls take a first brace for JSON.
	return file
}
