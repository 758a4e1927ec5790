package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
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
  names: {plural: claims, kind: Claim, listKind: ClaimList, singular: claim, shortNames: [exc]}
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
            x-kubernetes-validations:
            - {rule: "!has(self.min) || self.min <= self.max", message: min must not be above max, fieldPath: .min}
            - {rule: "self.max != 13", messageExpression: "'no maximum ' + (self.max > 12 ? 'like that' : 'at all')"}
            - {rule: "self.max >= oldSelf.max", message: the maximum does not shrink}
            properties:
              min: {type: integer}
              max: {type: integer, default: 7}
              zone: {type: string, pattern: "^[a-z]+$"}
              size: {type: string, enum: [small, large]}
              users: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              network: {type: object, required: [name], properties: {name: {type: string}}}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              port: {x-kubernetes-int-or-string: true}
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
		"Kind":         {"We should find a claim by its kind.", []string{"Claim.explain.test/mine", "-n", "default", "--with", gold}, 0, "Claim default/mine: bound to Class/gold"},
		"ShortName":    {"We should find a claim by its short name, as kubectl does.", []string{"exc/mine", "-n", "default"}, 1, "Claim default/mine: no class"},
		"Absent":       {"We should say that a claim is not there.", []string{"claims.explain.test/absent", "-n", "default"}, 2, `"absent" not found`},
		"WrongField":   {"We should read the schema that the API server publishes.", []string{"-f", claim("explain.test/v1", "Claim", "classselector")}, 2, "spec.classselector: the schema has no such field: did you mean spec.classSelector?"},
		"WrongVersion": {"We should know which versions are served.", []string{"-f", claim("explain.test/v2", "Claim", "classSelector")}, 2, "the API server does not serve Claim of explain.test/v2: set apiVersion to explain.test/v1"},
		"WrongKind":    {"We should know which kinds are served.", []string{"-f", claim("explain.test/v1", "Clam", "classSelector")}, 2, "did you mean explain.test/v1 Claim of claims.explain.test?"},
		"BuiltIn":      {"We should find nothing wrong in a right claim without a CRD.", []string{"-f", volume("volumeMode: Block"), "--with", volumes}, 1, "PersistentVolumeClaim default/a: no class"},
		"BuiltInField": {"We should read the published schema of a kind without a CRD.", []string{"-f", volume("storageClassname: a"), "--with", volumes}, 2, "spec.storageClassname: the schema has no such field: did you mean spec.storageClassName?"},
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
	t.Run("AsKubectl", w.explainsAsKubectl)
}

// explainsAsKubectl compares what explain says of a claim with what the API server says of its creation: for
// those who may read the CRD, and for others, who have its published schema alone.
func (w *world) explainsAsKubectl(t *testing.T) {
	w.apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: explain.test}
rules:
- {apiGroups: [classbind.io], resources: [claimkinds, classkinds], verbs: [list]}
- {apiGroups: [explain.test], resources: [classes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: explain.test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: explain.test}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader.explain.test}]
`)
	config, err := clientcmd.LoadFromFile(w.plane.Kubeconfig)
	require.NoError(t, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "reader.explain.test"
	}
	reader := filepath.Join(t.TempDir(), "reader.kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, reader))
	_, _, err = w.plane.Kubectl(t.Context(), nil, "get", "crd", "claims.explain.test", "--kubeconfig", reader)
	require.ErrorContains(t, err, "Forbidden")
	for name, tc := range map[string]struct {
		spec   string
		errors int
	}{
		"Right":    {"{min: 1, max: 2, size: small, zone: a, users: [a], network: {name: a}, port: http, template: {apiVersion: v1, kind: A, metadata: {name: a}}}", 0},
		"Default":  {"{min: 7}", 0},
		"Rule":     {"{min: 8}", 1},
		"Message":  {"{max: 13}", 1},
		"Two":      {"{min: 14, max: 13, zone: A}", 3},
		"Type":     {"{max: many}", 1},
		"Enum":     {"{size: middle}", 1},
		"Pattern":  {"{zone: A1}", 1},
		"Required": {"{network: {}}", 1},
		"Set":      {"{users: [a, a]}", 1},
		"Embedded": {"{template: {apiVersion: v1, metadata: {name: A}}}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			claim := write(t, "{apiVersion: explain.test/v1, kind: Claim, metadata: {name: a, namespace: default}, spec: "+tc.spec+"}")
			_, _, refused := w.plane.Kubectl(t.Context(), nil, "create", "--dry-run=server", "-f", claim)
			require.Equal(t, tc.errors > 0, refused != nil, "%v", refused)
			for _, kubeconfig := range []string{w.plane.Kubeconfig, reader} {
				cmd := exec.CommandContext(t.Context(), command, "explain", "-f", claim, "-o", "json", "--kubeconfig", kubeconfig) //nolint:gosec // It runs the command under test.
				cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
				out, _ := cmd.Output()
				var report struct {
					Items []struct {
						Outcome string
						Errors  []struct{ Field, Message string }
						Notes   []string
					}
				}
				require.NoError(t, json.Unmarshal(out, &report), "%s", out)
				item := report.Items[0]
				require.Len(t, item.Errors, tc.errors, "We should find what the API server finds: %v %v", item, refused)
				for _, note := range item.Notes {
					assert.NotContains(t, note, "not checked against the schema", "We should find a schema.")
				}
				for _, e := range item.Errors {
					// Older API servers give each message of a rule a value, which is only its type.
					theirs := strings.ReplaceAll(refused.Error(), `Invalid value: "object": `, "Invalid value: ")
					assert.Contains(t, theirs, e.Field+": "+strings.TrimSuffix(e.Message, ": set it"), "We should say what the API server says.")
				}
			}
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
