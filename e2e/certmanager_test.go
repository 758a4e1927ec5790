package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

// issuers are two that need nothing, and one that needs the Secret of a CA.
const issuers = `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: blue, labels: {trust: blue}}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: green, labels: {trust: green}}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: authority, labels: {trust: authority}}
spec: {ca: {secretName: authority}}
`

// certificateOf an issuer that it selects by a label. Its Secret has its name, and is one of a CA.
func certificateOf(name, trust string) string {
	return fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {namespace: default, name: %[1]s, annotations: {classbind.io/class-selector: trust=%[2]s}}
spec: {secretName: %[1]s, commonName: %[1]s.test, isCA: true}
`, name, trust)
}

// TestCertManager has cert-manager's own controller issue the certificates that the preset binds, and write the status of the issuers.
func TestCertManager(t *testing.T) {
	long(t)
	notInPods(t, "It runs cert-manager's controller as a process of this host.")
	t.Parallel()
	w, _ := servedWorld(t, controlplane.Options{})
	crds, p := newCRDSource(t), presetsWith["cert-manager"]
	p.name = "cert-manager"
	w.installPreset(t, p, crds).installCRD(t, crds, "certificaterequests.cert-manager.io")
	w.apply(t, issuers)

	reference, issuer := []string{"spec", "issuerRef"}, func(kind, name string) any {
		return map[string]any{"group": "cert-manager.io", "kind": kind, "name": name}
	}
	leaf := certificateOf("leaf", "authority")
	w.awaitReference(t, documents(t, leaf)[0], reference, issuer("Issuer", "authority")) // It has no status yet.

	w.runCertManager(t)
	w.awaitIssued(t, "clusterissuers.cert-manager.io", "blue", "True")
	w.awaitIssued(t, "clusterissuers.cert-manager.io", "green", "True")
	w.awaitIssued(t, "issuers.cert-manager.io", "authority", "False")
	w.awaitRefused(t, leaf, "not offered by their kind", "We should bind to no issuer that says that it is not ready.")

	authority := w.created(t, certificateOf("authority", "green"))
	assert.Equal(t, issuer("ClusterIssuer", "green"), at(authority, reference...))
	w.awaitIssued(t, "certificates.cert-manager.io", "authority", "True")

	w.awaitIssued(t, "issuers.cert-manager.io", "authority", "True")
	w.awaitReference(t, documents(t, leaf)[0], reference, issuer("Issuer", "authority"))
	w.created(t, leaf)
	w.awaitIssued(t, "certificates.cert-manager.io", "leaf", "True")
	assert.Equal(t, w.secret(t, "authority")[corev1.TLSCertKey], w.secret(t, "leaf")["ca.crt"], "We should see the bound issuer sign.")
}

// runCertManager until the test ends.
func (w *world) runCertManager(t *testing.T) {
	command := filepath.Join(t.TempDir(), "certmanager")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".") //nolint:gosec // What it builds is ours.
	build.Dir, build.Env = "certmanager", append(os.Environ(), "CGO_ENABLED=0")
	output(t, build)

	run := exec.Command(command) //nolint:gosec // It was built above.
	run.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig)
	must(run.StdinPipe())(t) // It closes when this process ends, however it does.
	r := &replica{log: &progress.Log{}}
	r.Process = must(classbind.Run(run, r.log))(t)
	r.logFailure(t)
	t.Cleanup(func() { assert.NoError(t, r.Stop()) })
}

// awaitIssued waits until cert-manager reports whether an issuer or a certificate is ready.
func (w *world) awaitIssued(t *testing.T, resource, name, ready string) {
	object := w.named(t, resource, name)
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		require.True(c, slices.ContainsFunc(conditions, func(condition any) bool {
			return has(condition.(map[string]any), map[string]any{"type": "Ready", "status": ready})
		}), "%s %s: %v", resource, name, conditions)
	})
}

// secret in the namespace default.
func (w *world) secret(t *testing.T, name string) map[string][]byte {
	s := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, s))
	return s.Data
}
