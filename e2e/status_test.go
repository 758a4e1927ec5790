package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// statusReport is what a program reads of the report of status.
type statusReport struct {
	Sections []struct {
		Name, State, Summary string
		Findings             []struct{ Where, What, Do string }
		Unread               []string
	}
}

// findings are SECTION: WHERE: WHAT, a line each.
func (r statusReport) findings() string {
	var lines []string
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			lines = append(lines, s.Name+": "+f.Where+": "+f.What)
		}
	}
	return strings.Join(lines, "\n")
}

// status runs the command with a kubeconfig.
func (w *world) status(ctx context.Context, kubeconfig string) (report statusReport, exit int, stderr string, err error) {
	cmd := exec.CommandContext(ctx, command, "status", "--output=json", "--kubeconfig="+kubeconfig) //nolint:gosec // It runs the command under test.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		exit, stderr, err = failed.ExitCode(), string(failed.Stderr), nil
	}
	if err == nil && len(out) > 0 {
		err = json.Unmarshal(out, &report)
	}
	return report, exit, stderr, err
}

// TestStatus breaks an installation in one way after the other, and has the command say
// of each what is broken.
func TestStatus(t *testing.T) {
	t.Parallel()
	const group = "status.test"
	w := newWorld(t, controlplane.Options{})
	replica := w.serve(t)
	w.resources(t, "Claim claims."+group+" Namespaced", "Other others."+group+" Namespaced", "Gold golds."+group+" Cluster")
	w.kubectl(t, "label", "namespace", "default", "bind=yes")
	w.apply(t, vendor("storage.k8s.io")+
		claimKind("persistentvolumeclaims", "{classRefFormat: Name, paths: {classRef: .spec.storageClassName, skipIfSet: [.spec.volumeName]}}")+
		classKind("storageclasses.storage.k8s.io", "{claimKinds: [persistentvolumeclaims], default: {annotation: storageclass.kubernetes.io/is-default-class}}"))
	w.apply(t, vendor(group)+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: excluded}\n"+
		claimKind("claims."+group, "{namespaceSelector: {matchLabels: {bind: 'yes'}}}")+claimKind("others."+group, "{}")+
		classKind("golds."+group, "{claimKinds: [claims."+group+", others."+group+"]}")+
		class(group, "Gold", "usual", isDefault)+class(group, "Gold", "going", ""))
	w.awaitClaims(t, "claims."+group)
	w.awaitClaims(t, "others."+group)
	w.awaitClaims(t, "persistentvolumeclaims")
	w.awaitClasses(t, "golds."+group, 2)
	w.awaitGuard(t, group, "Gold", "golds."+group)
	_, _, err := w.create(t, "apiVersion: "+group+"/v1\nkind: Claim\nmetadata: {namespace: default, name: lost}\n"+
		"spec: {classRef: {apiVersion: "+group+"/v1, kind: Gold, name: going}}\n")
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		report, exit, stderr, err := w.status(t.Context(), w.plane.Kubeconfig)
		require.NoError(c, err)
		require.Empty(c, report.findings())
		require.Zero(c, exit, stderr)
		for _, s := range report.Sections {
			require.Equal(c, "OK", s.State, "%s: %q", s.Name, s.Unread)
		}
	}, patience, 100*time.Millisecond, "We should find nothing in an installation that works.")

	t.Run("OfAStranger", func(t *testing.T) { w.strangersStatus(t) })

	// From here on nobody mends what is broken, and each adds to what was broken before.
	require.NoError(t, replica.Stop())
	w.breakOneByOne(t, group)
}

// strangersStatus is what those see who may read little or nothing.
func (w *world) strangersStatus(t *testing.T) {
	t.Helper()
	stranger, err := w.plane.UserKubeconfig("stranger")
	require.NoError(t, err)
	_, exit, stderr, err := w.status(t.Context(), stranger)
	require.NoError(t, err)
	assert.Equal(t, 2, exit, "We should have nothing to say without the registrations.")
	assert.Contains(t, stderr, "cannot list ClaimKinds")

	w.kubectl(t, "create", "clusterrole", "status-reader", "--verb=list", "--resource=claimkinds.classbind.io,classkinds.classbind.io")
	w.kubectl(t, "create", "clusterrolebinding", "status-reader", "--clusterrole=status-reader", "--user=stranger")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		report, exit, stderr, err := w.status(t.Context(), stranger)
		require.NoError(c, err)
		require.Zero(c, exit, stderr)
		require.Empty(c, report.findings(), "We should not take for broken what the user may not read.")
		for _, s := range report.Sections {
			if s.Name != "kinds" {
				require.Equal(c, "Unknown", s.State, s.Name)
				require.NotEmpty(c, s.Unread, "We should say what the user may not read.")
			}
		}
	}, patience, 100*time.Millisecond)
}

func (w *world) breakOneByOne(t *testing.T, group string) {
	t.Helper()
	for _, tc := range []struct {
		name   string
		breaks func()
		want   string
	}{
		{"NoReplica", func() {}, "replicas: leases/classbind-system/classbind-leader: no replica leads"},
		{
			"RoleMissing", func() { w.kubectl(t, "delete", "clusterrole", group) },
			"rights: classkind/golds." + group + ": " + classbind.User + " may not list, watch golds of " + group,
		},
		{
			// The condition is what the leader says of such a path.
			"PathWithTypo", func() {
				w.kubectl(t, "patch", "claimkind", "claims."+group, "--subresource=status", "--type=json", "-p",
					`[{"op": "add", "path": "/status/conditions/-", "value": {"type": "PathsValid", "status": "False", "reason": "NoSuchField", `+
						`"message": ".spec.clasRef is not in the schema", "lastTransitionTime": "2026-01-01T00:00:00Z"}}]`)
			},
			"kinds: claimkind/claims." + group + ": PathsValid is False (NoSuchField): .spec.clasRef is not in the schema",
		},
		{
			"EntryEdited", func() {
				w.kubectl(t, "patch", "mutatingwebhookconfiguration", "classbind", "--type=strategic", "-p",
					`{"webhooks": [{"name": "claims.`+group+`.bind.classbind.io", "failurePolicy": "Ignore"}]}`)
			},
			"webhook entries: mutatingwebhookconfigurations/classbind: the entry claims." + group + ".bind.classbind.io is not as classbind writes it, in failurePolicy",
		},
		{
			"EntryGone", func() {
				w.kubectl(t, "patch", "validatingwebhookconfiguration", "classbind", "--type=merge", "-p", `{"webhooks": []}`)
			},
			"webhook entries: validatingwebhookconfigurations/classbind: a second default class of golds." + group + " is not refused: it has no entry",
		},
		{
			"TwoDefaults", func() { w.createUnguarded(t, class(group, "Gold", "second", isDefault)) },
			"default classes: claimkind/claims." + group + ": claims." + group + " has 2 default classes",
		},
		{
			"WeightMalformed", func() {
				w.createUnguarded(t, class(group, "Gold", "heavy", "annotations: {resourceclass.crossplane.io/weight: much}, "))
			},
			"weights: golds." + group + "/heavy: its weight counts as 1: ",
		},
		{
			"StorageClassOverrules", func() {
				w.createUnguarded(t, `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: slow, labels: {tier: iron}, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: disk.test
`)
				// Until the API server knows the StorageClass, it asks the replica, which is not there.
				w.createUnguarded(t, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: default, name: disk, annotations: {classbind.io/class-selector: tier=gold}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
			},
			"claims: claimkind/persistentvolumeclaims: 1 claim has the default StorageClass of Kubernetes, which the selector does not match: default/disk",
		},
		{
			"ClassGone", func() { w.kubectl(t, "delete", "golds."+group, "going") },
			`claims: claimkind/claims.` + group + `: 1 claim has a class that is gone: default/lost ("golds.` + group + `/going")`,
		},
		{
			"NamespaceExcluded", func() {
				w.apply(t, "apiVersion: "+group+"/v1\nkind: Claim\nmetadata: {namespace: excluded, name: left-alone}\n")
			},
			"claims: namespaces/excluded: it is excluded from claims." + group + ", and 1 claim has no class: excluded/left-alone",
		},
		{
			"CertificateExpired", func() { w.expireCA(t) },
			"certificates: secrets/classbind-system/classbind-ca: its ca.crt expired at ",
		},
		{
			"CRDGone", func() { w.kubectl(t, "delete", "crd", "others."+group) },
			"kinds: claimkind/others." + group + ": the API server serves no such resource",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name != "NoReplica" { // It is broken already.
				report, _, _, err := w.status(t.Context(), w.plane.Kubeconfig)
				require.NoError(t, err)
				require.NotContains(t, report.findings(), tc.want, "We should not find it before.")
			}
			tc.breaks()
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				report, exit, stderr, err := w.status(t.Context(), w.plane.Kubeconfig)
				require.NoError(c, err)
				require.Equal(c, 1, exit, stderr)
				require.Contains(c, report.findings(), tc.want)
			}, patience, 100*time.Millisecond)
		})
	}
}

// createUnguarded creates what needs an answer of classbind, once the API server does not
// ask it any more.
func (w *world) createUnguarded(t *testing.T, manifest string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, _, err := w.create(t, manifest)
		require.NoError(c, err)
	}, patience, 100*time.Millisecond)
}

// expireCA puts an expired CA in the place of classbind's.
func (w *world) expireCA(t *testing.T) {
	t.Helper()
	expired := (&certtest.Pair{}).Sign(t, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})
	secret := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1alpha1.CASecret}, secret))
	secret.Data[corev1.ServiceAccountRootCAKey] = expired.PEM()
	require.NoError(t, w.Update(t.Context(), secret))
}
