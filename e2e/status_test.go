package e2e

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

type statusReport struct {
	Sections []struct {
		Name, State, Summary string
		Findings             []struct{ Where, What, Do string }
		Notes                []string
		Unbound              map[string]int
		Unread               []struct{ What, Why, Do string }
	}
}

// findings are SECTION: WHERE: WHAT, and what to do in a line of its own, if it is said.
func (r statusReport) findings() (all []string) {
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			text := s.Name + ": " + f.Where + ": " + f.What
			if f.Do != "" {
				text += "\n  Do: " + f.Do
			}
			all = append(all, untimed(text))
		}
	}
	return all
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	leader = regexp.MustCompile(`the leader is \S+`)
)

// untimed replaces what differs between any two runs.
func untimed(text string) string {
	return leader.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "the leader is NAME")
}

func (w *world) classbind(t require.TestingT, args ...string) (stdout, stderr string, exit int) {
	var out, errOut strings.Builder
	cmd := exec.CommandContext(context.Background(), command, args...) //nolint:gosec // It runs the command under test.
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "GORACE=atexit_sleep_ms=0"), &out, &errOut
	if err := cmd.Run(); !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// reportOf a command that prints JSON.
func reportOf[T any](t *testing.T, w *world, args ...string) (report T) {
	out, stderr, _ := w.classbind(t, args...)
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, stderr)
	return report
}

func (w *world) status(t require.TestingT, kubeconfig string) (report statusReport, exit int, stderr string) {
	out, stderr, exit := w.classbind(t, "status", "--output=json", "--kubeconfig="+kubeconfig)
	if len(out) > 0 {
		require.NoError(t, json.Unmarshal([]byte(out), &report))
	}
	return report, exit, stderr
}

// awaitStatus waits until exactly so much is found, and returns the table of it. Three dots stand for any end.
func (w *world) awaitStatus(t *testing.T, reason string, want ...string) (report statusReport, table string) {
	want = slices.Clone(want)
	slices.Sort(want)
	eventually(t, func(c *attempt) {
		var exit int
		var stderr string
		report, exit, stderr = w.status(c, w.plane.Kubeconfig)
		found := report.findings()
		slices.Sort(found)
		for n := range min(len(found), len(want)) {
			if start, cut := strings.CutSuffix(want[n], "…"); cut && strings.HasPrefix(found[n], start) {
				want[n] = found[n]
			}
		}
		require.Equal(c, strings.Join(want, "\n"), strings.Join(found, "\n"), reason)
		require.Equal(c, min(len(want), 1), exit, stderr)
		table, stderr, exit = w.classbind(c, "status", "--kubeconfig="+w.plane.Kubeconfig)
		require.Equal(c, min(len(want), 1), exit, stderr)
		for _, f := range want {
			_, f, _ = strings.Cut(f, ": ")
			require.Contains(c, untimed(table), "\n"+f+"\n", "We should tell people the same.")
		}
		table += stderr
		require.NotContains(c, table, "("+v1beta1.ReasonNotConfigured+")", "We should wait for what passes within seconds.")
	})
	return report, table
}

// TestStatus breaks an installation with the samples in one way after the other, has the
// command say what is broken, and nothing else, and mends it.
func TestStatus(t *testing.T) {
	t.Parallel()
	w, replica := servedWorld(t, controlplane.Options{})
	w.applySamples(t)
	report, _ := w.awaitStatus(t, "We should find nothing in an installation that works.")
	for _, s := range report.Sections {
		assert.Equal(t, "OK", s.State, "%s: %q", s.Name, s.Unread)
	}
	t.Run("OfAStranger", func(t *testing.T) { w.strangersStatus(t) })
	w.breakOneByOne(t)
	t.Run("DefaultStorageClass", func(t *testing.T) { w.overruleSelectors(t) })

	require.NoError(t, replica.Stop())
	w.breakWithoutReplica(t)
	replica = w.serve(t)
	w.awaitStatus(t, "We should see a replica mend what was broken while there was none.")
	require.NoError(t, replica.Stop())
	t.Run("CertManager", func(t *testing.T) { w.breakCertManager(t) })
}

func (w *world) strangersStatus(t *testing.T) {
	stranger := must(w.plane.UserKubeconfig("stranger"))(t)
	_, exit, stderr := w.status(t, stranger)
	assert.Equal(t, 2, exit, "We should have nothing to say without the registrations.")
	assert.Contains(t, stderr, "cannot list ClaimKinds")

	w.kubectl(t, "create", "clusterrole", "status-reader", "--verb=list", "--resource=claimkinds.classbind.io,classkinds.classbind.io")
	w.kubectl(t, "create", "clusterrolebinding", "status-reader", "--clusterrole=status-reader", "--user=stranger")
	eventually(t, func(c *attempt) {
		report, exit, stderr := w.status(c, stranger)
		require.Zero(c, exit, stderr)
		require.Empty(c, report.findings(), "We should not take for broken what the user may not read.")
		for _, s := range report.Sections {
			if s.Name != "kinds" {
				require.Equal(c, "Unknown", s.State, s.Name)
				require.NotEmpty(c, s.Unread, "We should say what the user may not read.")
			}
		}
	})
}

// breakOneByOne what a replica that leads does not mend.
func (w *world) breakOneByOne(t *testing.T) {
	samples := filepath.Join(w.deploy, "samples", "crossplane")
	apply := func(file string) func(*testing.T) {
		return func(t *testing.T) { w.kubectl(t, "apply", "-f", filepath.Join(samples, file)) }
	}
	patch := func(t *testing.T, kind, spec string) {
		w.kubectl(t, "patch", "claimkind", kind, "--type=merge", "-p", `{"spec": `+spec+`}`)
	}
	severalDefaults := func(claimKind string) string {
		return "kinds: claimkind/" + claimKind + ": SingleDefault is False (SeveralDefaults): a claim without a selector gets one of 2 classes; " +
			"leave the mark on one of CloudSQLInstanceClass/gitlab-experimental, RDSInstanceClass/gitlab-experimental"
	}
	var said string
	for _, tc := range []struct {
		name          string
		breaks, mends func(*testing.T)
		want          []string
		shown         bool
	}{
		{
			name:   "PathWithTypo",
			breaks: func(t *testing.T) { patch(t, sampleRedis, `{"reference": {"path": ".spec.clasRef"}}`) },
			mends:  func(t *testing.T) { patch(t, sampleRedis, `{"reference": {"path": ".spec.classRef"}}`) },
			want: []string{"kinds: claimkind/" + sampleRedis + ": PathsValid is False (ReferencePruned): no claim is bound, because the API server would remove the reference to its class: " +
				"reference.path: the schema has no field .spec.clasRef (did you mean .spec.classRef?): correct spec.reference.path and spec.reference.form, or the schema"},
		},
		{
			name: "TwoDefaults",
			breaks: func(t *testing.T) {
				w.unguarded(t, sampleRDS, "gitlab-experimental", "resourceclass.crossplane.io/is-default-class=true")
			},
			mends: func(t *testing.T) {
				out, stderr, exit := w.classbind(t, "set-default", sampleCloudSQL+"/gitlab-experimental", "--for", sampleMySQL+","+samplePostgres, "--kubeconfig="+w.plane.Kubeconfig)
				require.Zero(t, exit, out+stderr)
			},
			want: []string{severalDefaults(sampleMySQL), severalDefaults(samplePostgres)},
		},
		{
			name: "ClassGone", mends: apply("classes.yaml"), shown: true,
			breaks: func(t *testing.T) { said = w.kubectl(t, "delete", "rdsinstanceclass", "gitlab-production") },
			want: []string{"claims: claimkind/" + samplePostgres + `: 1 claim has a class that is gone: acme-team/gitlab-praefect-database ("` + sampleRDS + "/gitlab-production\")\n" +
				"  Do: create the class again, or delete the claims and create them again, to get another"},
		},
		{
			name:   "CRDGone",
			breaks: func(t *testing.T) { w.kubectl(t, "delete", "crd", sampleRedis) },
			mends:  func(t *testing.T) { w.applySamples(t) },
			want:   []string{"kinds: claimkind/" + sampleRedis + ": Ready is False (NotInstalled): …"},
		},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			tc.breaks(t)
			_, table := w.awaitStatus(t, "We should find what is broken, once.", tc.want...)
			if tc.shown && policiesServed(t) { // Without policies, the status has one note more.
				compareWithPage(t, "$ kubectl delete rdsinstanceclass gitlab-production\n"+said+"$ classbind status\n"+table)
			}
			tc.mends(t)
			w.awaitStatus(t, "We should find nothing once it is mended.")
		})
		require.True(t, ok, "What follows would find that, too.")
	}
}

// unguarded annotates a class while its kind is not registered.
func (w *world) unguarded(t *testing.T, classKind, class, annotation string) {
	w.remove(t, "classkinds.classbind.io", classKind)
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), nil, "annotate", "--overwrite", classKind, class, annotation)
		require.NoError(c, err)
	}, "We should see the API server ask no more.")
	w.kubectl(t, "apply", "-f", filepath.Join(w.deploy, "samples", "crossplane", "kinds.yaml"))
}

func compareWithPage(t *testing.T, said string) {
	shown := documented(t, "docs/explain-and-status.md")[0]
	assert.Equal(t, untimed(strings.Join(shown.lines, "\n")+"\n"), untimed(said), "We should show on the page what the commands print.")
}

// overruleSelectors of PersistentVolumeClaims by a default StorageClass.
func (w *world) overruleSelectors(t *testing.T) {
	mark := `annotations: {storageclass.kubernetes.io/is-default-class: "true"}`
	w.apply(t, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: slow, labels: {tier: iron}, "+mark+"}\nprovisioner: disk.test\n")
	w.apply(t, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: default, name: disk, annotations: {classbind.io/class-selector: tier=gold}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	w.apply(t, vendor("storage.k8s.io")+
		claimKind("persistentvolumeclaims", "{claims: {skipIfSet: [{path: .spec.volumeName}]}, reference: {path: .spec.storageClassName, form: Name}}")+
		classKind("storageclasses.storage.k8s.io", "{claimKinds: [{name: persistentvolumeclaims}], default: {annotation: storageclass.kubernetes.io/is-default-class}}"))
	w.awaitStatus(t, "We should find that selectors do nothing.",
		`kinds: claimkind/persistentvolumeclaims: SelectorsHeeded is False (DefaultStorageClass): the API server gives every claim without a StorageClass the default one, "slow", `+
			"before classbind is asked, so its class selector does nothing: kubectl annotate storageclass slow storageclass.kubernetes.io/is-default-class-")
	w.kubectl(t, "delete", "claimkind/persistentvolumeclaims", "classkind/storageclasses.storage.k8s.io")
	w.awaitStatus(t, "We should find nothing once it is mended.")
}

// breakWithoutReplica what a replica would mend at once.
func (w *world) breakWithoutReplica(t *testing.T) {
	const noReplica = "replicas: leases/classbind-system/classbind-leader: no replica leads, so nobody keeps the entries, the status and the CA\n" +
		"  Do: start a replica, or see the log of those that run: kubectl describe pods --namespace classbind-system --selector app.kubernetes.io/name=classbind, and kubectl logs with the same"
	const classes = "validatingwebhookconfigurations/" + v1beta1.ClassConfiguration
	patch := func(t *testing.T, configuration, entry string) {
		w.kubectl(t, "patch", configuration, "--type=strategic", "-p", `{"webhooks": [`+entry+`]}`)
	}
	const gone = "webhook entries: classkind/" + sampleAzure + ": a second default class is not refused: there is no webhook entry\n" +
		"  Do: the leader writes it: see the sections replicas and kinds, and kubectl describe classkind/" + sampleAzure
	const expired = "certificates: secrets/classbind-system/classbind-ca: its ca.crt expired at TIME\n" +
		"  Do: have the replicas make another: kubectl delete secret --namespace classbind-system classbind-ca"
	for _, tc := range []struct {
		name   string
		breaks func(*testing.T)
		want   []string // of all until now
	}{
		{"NoReplica", func(*testing.T) {}, []string{noReplica}},
		{"EntryGone", func(t *testing.T) {
			patch(t, classes, `{"name": "`+sampleAzure+`.guard.classbind.io", "$patch": "delete"}`)
		}, []string{noReplica, gone}},
		{"CertificateExpired", func(t *testing.T) { w.expireCA(t) }, []string{noReplica, gone, expired}},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			tc.breaks(t)
			report, _ := w.awaitStatus(t, "We should find what is broken, once.", tc.want...)
			assert.Equal(t, "replicas", report.Sections[0].Name, "We should say first that there is no replica.")
			assert.Equal(t, "7 of 7 ready, as the last leader wrote", report.Sections[3].Summary, "We should not vouch for the status that kubectl shows.")
		})
		require.True(t, ok, "What follows would find that, too.")
	}
}

// breakCertManager has the replica use certificates of cert-manager's, which the test writes in its place.
func (w *world) breakCertManager(t *testing.T) {
	var manifest strings.Builder
	for _, o := range w.rendered(t, filepath.Join(w.deploy, certManager)) {
		if o.GetKind() == "Deployment" || o.GetName() == "classbind-cert-manager" {
			text := must(yaml.Marshal(o.Object))(t)
			manifest.WriteString("---\n" + string(text))
		}
	}
	w.apply(t, manifest.String())
	ca := certtest.NewCA(t)
	serving := ca.Sign(t, &x509.Certificate{DNSNames: []string{"localhost"}})
	key := must(x509.MarshalPKCS8PrivateKey(serving.Key))(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: classbind.Namespace, Name: v1beta1.TLSSecret}, Type: corev1.SecretTypeTLS}
	secret.Data = map[string][]byte{
		corev1.ServiceAccountRootCAKey: ca.PEM(), corev1.TLSCertKey: serving.PEM(),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	require.NoError(t, w.Create(t.Context(), secret))
	dir := t.TempDir()
	for name, text := range secret.Data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	w.serve(t, "--certs=cert-manager", "--cert-dir="+dir)
	w.awaitStatus(t, "We should find nothing wrong with the other kind of certificates.")
}

func (w *world) expireCA(t *testing.T) {
	expired := (&certtest.Pair{}).Sign(t, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})
	secret := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1beta1.CASecret}, secret))
	secret.Data[corev1.ServiceAccountRootCAKey] = expired.PEM()
	require.NoError(t, w.Update(t.Context(), secret))
}
