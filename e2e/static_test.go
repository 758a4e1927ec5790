package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/controlplane"
)

func docFile(t *testing.T, page, name string) string {
	root, _ := docRoot(t)
	_, text, found := strings.Cut(readText(t, filepath.Join(root, page)), "\n# file: "+name+"\n")
	require.True(t, found, "We should find the file %s in %s.", name, page)
	text, _, _ = strings.Cut(text, "\n```")
	return text
}

// TestStaticPolicy has an API server with the files of docs/security.md, which keep cluster admins from turning classbind off.
func TestStaticPolicy(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs an API server of its own.")
	const page = "docs/security.md"
	dir := t.TempDir()
	manifests, config := filepath.Join(dir, "admission"), filepath.Join(dir, "config.yaml")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "classbind.yaml"), []byte(docFile(t, page, "admission/classbind.yaml")), 0o600))
	text := strings.Replace(docFile(t, page, "admission-control.yaml"), "/etc/kubernetes/admission", manifests, 1)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	w := newWorld(t, controlplane.Options{APIServerFlags: map[string]string{"admission-control-config-file": config}})
	w.resources(t, "Claim claims.static.test Namespaced", "Class classes.static.test Cluster")
	w.serve(t)
	w.apply(t, vendor("static.test")+claimKind("claims.static.test", "{classes: {use: {subject: Namespace}}}")+
		classKind("classes.static.test", "{claimKinds: [{name: claims.static.test}]}"))
	// The leader fills what it owns.
	w.kubectl(t, "wait", "--for=jsonpath={.webhooks[0].name}=claims.static.test.bind.classbind.io", "mutatingwebhookconfiguration/zz-classbind")
	policy := "validatingadmissionpolicy/claims.static.test.use.classbind.io"
	w.kubectl(t, "wait", "--for=create", policy)

	admin, member := []string{"--as=jane", "--as-group=system:masters"}, []string{"--as=joe", "--as-group=system:masters", "--as-group=classbind-admins"}
	for name, args := range map[string][]string{
		"Delete":     {"delete", "mutatingwebhookconfiguration", "zz-classbind"},
		"DeleteAll":  {"delete", "validatingwebhookconfigurations", "--all"},
		"Empty":      {"patch", "mutatingwebhookconfiguration", "zz-classbind", "--type=json", `--patch=[{"op": "remove", "path": "/webhooks"}]`},
		"Policy":     {"delete", policy},
		"Collection": {"delete", "--raw=/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, err := w.Kubectl(t.Context(), nil, append(args, admin...)...)
			require.Error(t, err, "%s", out)
			assert.Contains(t, stderr, "only classbind and the group classbind-admins may change what makes the API server call classbind")
		})
	}
	w.kubectl(t, append([]string{"annotate", "mutatingwebhookconfiguration", "zz-classbind", "a=b"}, member...)...)
}
