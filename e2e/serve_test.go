package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/clientcert"
	"github.com/classbind/classbind/e2e/controlplane"
)

const clientsKinds = "clients.test"

// clientsWorld has a claim kind with one class, and no replica yet.
func clientsWorld(t *testing.T, o controlplane.Options) *world {
	w := newWorld(t, o)
	w.install(t, vendor(clientsKinds)+claimKind("claims.clients.test", "{}")+serving("classes.clients.test", "claims.clients.test")+
		class(clientsKinds, "Class", "only", ""))
	return w
}

func (w *world) reviewWith(t *testing.T, r *replica, certificate *tls.Certificate) (int, string, error) {
	review := must(w.review("claims.clients.test"))(t)
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // It is the client that is verified.
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	return exchange(t.Context(), stranger, http.MethodPost, r.URL+v1beta1.BindPath+"claims.clients.test", "application/json", string(review))
}

// TestClients has a replica that answers the API server and nobody else.
func TestClients(t *testing.T) {
	t.Parallel()
	w := clientsWorld(t, controlplane.Options{})
	files := w.plane.Clients
	// serve with these flags alone.
	serve := func(t *testing.T, flags ...string) *replica {
		w.anybody = true
		defer func() { w.anybody = false }()
		return w.serve(t, flags...)
	}

	t.Run("Known", func(t *testing.T) {
		r := w.serve(t)
		w.awaitClaims(t, "claims.clients.test")
		w.awaitClasses(t, "classes.clients.test", 1)
		w.binds(t, claim(clientsKinds, "known"), "Class/only", "We should answer the API server.")

		_, _, err := w.reviewWith(t, r, nil)
		require.Error(t, err, "We should not answer who has no certificate.")
		stranger := must(files.Issue("system:node:a"))(t)
		status, text, err := w.reviewWith(t, r, &stranger)
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status, "We should not answer another client of the same CA.")
		assert.NotContains(t, text, "only", "We should tell it nothing.")
		elsewhere := must(clientcert.Write(t.TempDir(), "", "*"))(t)
		impostor := must(elsewhere.Certificate())(t)
		_, _, err = w.reviewWith(t, r, &impostor)
		require.Error(t, err, "We should not answer who has the name from another CA.")
		own := must(files.Certificate())(t)
		status, text, err = w.reviewWith(t, r, &own)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, text)
		require.NoError(t, r.Stop())
		assert.Equal(t, 1, strings.Count(r.log.String(), "client didn't provide a certificate"), "We should log who had no certificate, and not our own looks at ourselves.")
	})

	t.Run("Replaced", func(t *testing.T) {
		elsewhere := must(clientcert.Write(t.TempDir(), "", "*"))(t)
		file := filepath.Join(t.TempDir(), "ca.crt")
		put := func(from clientcert.Files) {
			text := must(os.ReadFile(from.CA()))(t)
			require.NoError(t, os.WriteFile(file+".new", text, 0o600))
			require.NoError(t, os.Rename(file+".new", file))
		}
		put(elsewhere)
		r := serve(t, "--client-ca-file="+file, "--client-name="+clientcert.Name)
		w.awaitRefused(t, claim(clientsKinds, "refused"), "tls: ", "We should not answer an API server of another CA.")
		put(files)
		w.awaitBound(t, claim(clientsKinds, "replaced"), "Class/only", "We should answer it when its CA is there, without a restart.")
		require.NoError(t, r.Stop())
	})

	t.Run("OtherName", func(t *testing.T) {
		r := serve(t, "--client-ca-file="+files.CA(), "--client-name=somebody-else")
		w.awaitRefused(t, claim(clientsKinds, "misnamed"), "--client-name", "We should have the API server say what is wrong.")
		require.NoError(t, r.Stop())
	})

	t.Run("Anybody", func(t *testing.T) {
		r := serve(t)
		status, text, err := w.reviewWith(t, r, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, "We should answer where the API server cannot be told to present a certificate. %s", text)
		w.awaitBound(t, claim(clientsKinds, "anybody"), "Class/only", "We should answer anybody.")
		require.NoError(t, r.Stop())
	})
}

// TestClientsRecipe follows docs/install.md, on a control plane that has nothing of it.
func TestClientsRecipe(t *testing.T) {
	long(t)
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("It needs openssl, as the page does.")
	}
	const folder, service = "/etc/kubernetes/classbind", "classbind.classbind-system.svc"
	script, give := clientsRecipe(t, folder)

	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(script, folder, dir)).CombinedOutput() //nolint:gosec // The script is in our documents.
	require.NoError(t, err, "%s", out)
	kubeconfig := filepath.Join(dir, "webhooks.kubeconfig")
	resolver := must(webhook.NewDefaultAuthenticationInfoResolver(kubeconfig))(t)
	account := must(resolver.ClientConfigForService("classbind", classbind.Namespace, 443))(t)
	assert.Equal(t, filepath.Join(dir, "client.crt"), account.CertFile, "We should name the Service as the API server does.")

	// Here, it is a process of the host, at a URL.
	written, err := os.ReadFile(kubeconfig) //nolint:gosec // The folder is the test's own.
	require.NoError(t, err)
	require.Contains(t, string(written), service)
	require.NoError(t, os.WriteFile(kubeconfig, bytes.ReplaceAll(written, []byte(service), []byte(`"*"`)), 0o600)) //nolint:gosec // The folder is the test's own.
	w := clientsWorld(t, controlplane.Options{APIServerFlags: map[string]string{"admission-control-config-file": filepath.Join(dir, "admission.yaml")}})
	w.kubectl(t, strings.Fields(strings.ReplaceAll(give, folder, dir))[1:]...)
	mounted := filepath.Join(dir, "mounted.crt")
	text := w.kubectl(t, "--namespace", classbind.Namespace, "get", "configmap", "classbind-clients", "--output", `jsonpath={.data.ca\.crt}`)
	require.NoError(t, os.WriteFile(mounted, []byte(text), 0o600))
	w.anybody = true // The flags are ours.
	w.serve(t, "--client-ca-file="+mounted, "--client-name=kube-apiserver")
	w.awaitClaims(t, "claims.clients.test")
	w.awaitClasses(t, "classes.clients.test", 1)
	w.binds(t, claim(clientsKinds, "recipe"), "Class/only", "")
}

// clientsRecipe is what docs/install.md has the admin run: a script that makes the certificates,
// and the command that gives classbind the CA.
func clientsRecipe(t *testing.T, folder string) (script, give string) {
	const page = "docs/install.md"
	blocks := documented(t, page)
	require.Len(t, blocks, 2, "We should run all of it.")
	text := must(os.ReadFile("../" + page))(t)
	require.Contains(t, string(text), "--admission-control-config-file="+folder+"/admission.yaml")
	require.Len(t, blocks[1].lines, 1)
	require.True(t, strings.HasPrefix(blocks[1].lines[0], "kubectl "), blocks[1].lines[0])
	return strings.Join(blocks[0].lines, "\n"), blocks[1].lines[0]
}

// TestMetricsSecure has a replica serve its metrics as deploy/ has it.
func TestMetricsSecure(t *testing.T) {
	w, _ := sharedReplica(t)
	r := w.serve(t, "--metrics-secure") // Since the other leads, this one does not.
	url := strings.Replace(r.MetricsURL, "http:", "https:", 1)

	secret := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1beta1.CASecret}, secret))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]), "We should have the CA where the ServiceMonitor looks for it.")
	prometheus := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}}}
	clientset := must(kubernetes.NewForConfig(w.config))(t)
	token := func(name string) string {
		require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})))
		request := must(clientset.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
		return request.Status.Token
	}
	get := func(token string) (int, string) {
		request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := prometheus.Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body := must(io.ReadAll(response.Body))(t)
		return response.StatusCode, string(body)
	}

	status, _ := get("")
	assert.Equal(t, http.StatusUnauthorized, status, "We should tell nothing to who does not say who it is.")
	status, _ = get("made-up")
	assert.Equal(t, http.StatusUnauthorized, status, "We should tell nothing to who makes a token up.")
	scraper := token("scraper")
	status, text := get(scraper)
	assert.Equal(t, http.StatusForbidden, status, "We should tell nothing to who may not read metrics.")
	assert.Contains(t, text, "classbind-metrics-reader", "We should say what helps.")
	w.kubectl(t, "create", "clusterrolebinding", "scraper", "--clusterrole=classbind-metrics-reader", "--serviceaccount=default:scraper")
	eventually(t, func(c *attempt) {
		status, text := get(scraper)
		require.Equal(c, http.StatusOK, status)
		require.Contains(c, text, "classbind_certificate_expiry_timestamp_seconds")
	}, "We should let in who may.")
	response, err := prometheus.Get(r.MetricsURL)
	if err == nil {
		_ = response.Body.Close()
	}
	assert.True(t, err != nil || response.StatusCode == http.StatusBadRequest, "We should not serve them over HTTP too.")
}

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
		serving("classes.static.test", "claims.static.test"))
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

// TestRestart kills replicas, whose successors serve their certificates at once where the
// API servers have long known the CA, and only there.
func TestRestart(t *testing.T) {
	long(t)
	const group = "restart.test"
	w, r := servedWorld(t, controlplane.Options{})
	w.register(t, group, "{}", class(group, "Class", "gold", ""))
	// Its successors are behind the same address, as behind a Service.
	address := []string{"--webhook-url=" + r.URL, "--webhook-bind-address=" + strings.TrimPrefix(r.URL, "https://")}
	r.Kill()

	r = w.serve(t, address...)
	assert.Contains(t, r.log.String(), holdsBack, "We should give the API servers time to see entries that were just written.")
	for begin := time.Now(); strings.Contains(r.log.String(), holdsBack); {
		require.Less(t, time.Since(begin), patience, "We should not wait where the entries have had our CA for long.")
		r.Kill()
		killed := time.Now()
		r = w.serve(t, address...)
		t.Logf("ready %s after it was killed", time.Since(killed))
	}
	w.binds(t, claim(group, "afterwards"), "Class/gold", "We should answer the API server as soon as we are ready.")
}

// holdsBack is what a replica logs that waits before it serves its certificate.
const holdsBack = "for less than 5s"

// TestRestore restores etcd from a backup that does not have a class, while claims ask for it all the time.
func TestRestore(t *testing.T) {
	long(t)
	const (
		group = "restore.test"
		// looks is long enough for a replica to have looked at the storage's version.
		looks = 5 * time.Second
	)
	w := newWorld(t, controlplane.Options{})
	r := must(w.run())(t)
	t.Cleanup(r.Kill)
	r.logFailure(t)
	require.NoError(t, r.Ready(t.Context()))
	w.register(t, group, "{}", class(group, "Class", "kept", "labels: {tier: kept}, "))
	require.NoError(t, w.plane.Backup())

	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(class(group, "Class", "lost", "labels: {tier: lost}, ")), "apply", "-f", "-")
		require.NoError(c, err)
	})
	w.awaitClasses(t, "classes."+group, 2)
	claims := &unending{w: w, claim: func(tier string) *unstructured.Unstructured {
		return documents(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, generateName: c-}\n"+
			"spec: {classSelector: {matchLabels: {tier: %s}}}\n", group, tier))[0]
	}}
	stop := claims.create(t)
	require.Eventually(t, func() bool {
		return claims.count("lost", "Class/lost", claims.begun) > 500 && time.Since(claims.begun) > looks
	},
		patience, 10*time.Millisecond, "We should have claims bound to the class that will be lost.")

	require.NoError(t, w.plane.Restore())
	restored := time.Now()
	select {
	case <-r.Ended():
	case <-time.After(patience):
		require.Fail(t, "We should see the replica end that knows of a class which does not exist.")
	}
	ended := time.Now()
	require.Error(t, r.Stop(), "We should see in the exit status that the replica could not go on.")
	assert.Contains(t, r.log.String(), "restored from a backup", "We should say why it ended.")
	w.serve(t, "--webhook-url="+r.URL, "--webhook-bind-address="+strings.TrimPrefix(r.URL, "https://"))
	ready := time.Now()
	require.Eventually(t, func() bool {
		return claims.count("kept", "Class/kept", ready) > 100 && claims.count("lost", "", ready) > 100
	}, patience, 10*time.Millisecond, "We should see claims bound to the class that there is, and not to the one that was lost.")
	stop()
	assert.Zero(t, claims.count("lost", "Class/lost", ended), "We should bind no claim to a class that does not exist once that is known.")
	t.Logf("the replica ended %s after the API server was back, and its successor was ready %s later; meanwhile, %d claims got the lost class",
		ended.Sub(restored), ready.Sub(ended), claims.count("lost", "Class/lost", restored))
}

// unending claims are created one after the other, for each tier in turn, whatever becomes of those before.
type unending struct {
	w     *world
	claim func(tier string) *unstructured.Unstructured
	begun time.Time

	mu  sync.Mutex
	all []given
}

type given struct {
	asked       time.Time
	tier, class string
}

func (u *unending) create(t *testing.T) (stop func()) {
	u.begun = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, tier := range []string{"lost", "kept"} {
		running.Go(func() {
			for ctx.Err() == nil {
				o, asked := u.claim(tier), time.Now()
				if err := u.w.Create(ctx, o, &client.CreateOptions{}); err != nil {
					continue // The API server is away, or the replica, and the claim is refused.
				}
				u.mu.Lock()
				u.all = append(u.all, given{asked, tier, classOf(o)})
				u.mu.Unlock()
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func (u *unending) count(tier, class string, since time.Time) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, g := range u.all {
		if g.tier == tier && g.class == class && !g.asked.Before(since) {
			n++
		}
	}
	return n
}

// TestBusyPort starts replicas whose ports another process has.
func TestBusyPort(t *testing.T) {
	notInPods(t, "It starts processes beside the control plane.")
	w := sharedWorld(t) // Its replica leads, so that these write nothing.
	busy := must(net.Listen("tcp", "localhost:0"))(t)
	defer func() { _ = busy.Close() }()
	flags := []string{"--webhook-bind-address", "--health-probe-bind-address", "--metrics-bind-address", "--pprof-bind-address"}
	free := must(classbind.FreePorts(len(flags)))(t)
	for _, flag := range flags {
		t.Run(flag, func(t *testing.T) {
			args := []string{"serve", "--kubeconfig=" + w.kubeconfig, "--namespace=" + classbind.Namespace}
			for i, other := range flags {
				address := "localhost:" + free[i]
				if other == flag {
					address = busy.Addr().String()
				}
				args = append(args, other+"="+address)
			}
			out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput() //nolint:gosec // It runs the command under test.
			require.Error(t, err)
			assert.Contains(t, string(out), "error: cannot listen: ", "We should not blame the cluster.")
			assert.Contains(t, string(out), busy.Addr().String(), "We should name the address.")
		})
	}
}

// TestStatusNonsense overwrites the status of every registration all the time, while claims are created,
// replicas are replaced and a kind is registered.
func TestStatusNonsense(t *testing.T) {
	long(t)
	notInPods(t, "It replaces processes beside the control plane.")
	const group, meanwhile, claims = "nonsense.test", "meanwhile.test", 200
	w := newWorld(t, controlplane.Options{})
	balancer, replicas := w.serveBehind(t, 3)
	var classes []string
	for i := range 10 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{whenUnmatched: BindLater}", classes...)
	var want []string
	for i := range claims {
		dry := w.created(t, claim(group, fmt.Sprint("claim-", i)), client.DryRunAll)
		want = append(want, classOf(dry))
	}
	var before []string
	eventually(t, func(c *attempt) {
		before = w.statuses(t, group)
		require.Contains(c, strings.Join(before, ""), `"served":true`)
	})

	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var written atomic.Int64
	begin := time.Now()
	for range 8 { // One alone writes ten times a second.
		writers.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					w.writeNonsense(t, int(written.Add(1))) //nolint:contextcheck // It ends with the test.
				}
			}
		})
	}
	created := 0
	create := func(reason string) {
		for range claims / 4 {
			w.binds(t, claim(group, fmt.Sprint("claim-", created)), want[created], reason)
			created++
		}
	}
	create("We should bind claims as ever.")
	for i, old := range replicas {
		r := w.serve(t, "--webhook-url="+balancer.URL)
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
		balancer.Remove(strings.TrimPrefix(old.URL, "https://"))
		require.NoError(t, old.Stop())
		create(fmt.Sprintf("We should bind them as ever after we have replaced replica %d.", i))
	}
	w.install(t, lateVendor(meanwhile)+claimKind("claims."+meanwhile, "{}")+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}, {name: claims."+meanwhile+"}]}"))
	eventually(t, func(c *attempt) {
		bound, _, err := w.create(t, claim(meanwhile, "a"), client.DryRunAll)
		require.NoError(c, err)
		require.NotEmpty(c, classOf(bound))
	}, "We should serve a kind that is registered meanwhile.")
	stop()
	writers.Wait()
	t.Logf("overwrote the status of all registrations %d times, %.0f times a second", written.Load(), float64(written.Load())/time.Since(begin).Seconds())
	eventually(t, func(c *attempt) { require.Equal(c, before, w.statuses(t, group)) }, "We should have the status right again.")
}

func (w *world) registrations(t *testing.T) (all []unstructured.Unstructured) {
	for _, kind := range []string{"ClaimKindList", "ClassKindList"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
		require.NoError(t, w.List(t.Context(), list))
		all = append(all, list.Items...)
	}
	return all
}

// statuses of the registrations of a group, but for times and counts of claims.
func (w *world) statuses(t *testing.T, group string) (all []string) {
	for _, k := range w.registrations(t) {
		if !strings.HasSuffix(k.GetName(), "."+group) {
			continue
		}
		status, _, _ := unstructured.NestedMap(k.Object, "status")
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			delete(c.(map[string]any), "lastTransitionTime")
			delete(c.(map[string]any), "observedGeneration")
		}
		for _, count := range []string{"boundClaims", "waitingClaims", "claims"} {
			delete(status, count)
		}
		text := must(json.Marshal(status))(t)
		all = append(all, k.GetName()+" "+string(text))
	}
	return all
}

func (w *world) writeNonsense(t *testing.T, n int) {
	conditions := func(status string, reasons ...string) (all []map[string]any) {
		for i, kind := range []string{"Ready", "PathsValid", "LateBinding", "Nonsense"} {
			all = append(all, map[string]any{
				"type": kind, "status": status, "reason": reasons[i%len(reasons)], "message": "nonsense", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
			})
		}
		return all
	}
	nonsense := []map[string]any{
		{"version": "v9", "selectorAbsent": true, "required": []string{".spec", ".spec.classRef"}, "served": false, "classes": 99, "conditions": conditions("False", "ReferencePruned", "PathsInvalid")},
		{"version": nil, "selectorAbsent": nil, "required": nil, "served": true, "classes": 0, "conditions": conditions("True", "Served")},
		{"version": "v1", "served": nil, "conditions": conditions("Unknown", "NotConfigured", "Conflict")},
		{"conditions": nil},
	}
	patch := must(json.Marshal(map[string]any{"status": nonsense[n%len(nonsense)]}))(t)
	all := w.registrations(t)
	concurrently(t, len(all), func(i int) error {
		return client.IgnoreNotFound(w.Status().Patch(t.Context(), &all[i], client.RawPatch(types.MergePatchType, patch)))
	})
}

// TestRestoredInAnotherOrder takes all registrations of one cluster into another, where the last comes first. Of those that
// are in each other's way, the same are served.
func TestRestoredInAnotherOrder(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "restored.test"
	registrations := claimKind("claims."+group, "{selector: {whenAbsent: Any}}") +
		claimKind("again."+group, "{claims: {resource: claims."+group+"}, choice: {strategy: HighestWeight}, selector: {whenAbsent: Any}}") +
		claimKind("tickets."+group, "{reference: {path: .spec.className, form: Name}, choice: {strategy: Random}}") +
		claimKind("orders."+group, "{classes: {kinds: [{name: others."+group+"}]}, whenUnmatched: Deny}") +
		classKind("classes."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group)) +
		classKind("others."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group))
	classes := ""
	for i := range 4 {
		for _, kind := range []string{"Class", "Other"} {
			classes += class(group, kind, fmt.Sprintf("%s-%d", strings.ToLower(kind), i), fmt.Sprintf("annotations: {classbind.io/weight: '%d'}, labels: {tier: 't%d'}, ", i+1, i%2))
		}
	}
	start := func() *world {
		w, _ := servedWorld(t, controlplane.Options{})
		w.resources(t, "Claim claims."+group+" Namespaced", "Ticket tickets."+group+" Namespaced", "Order orders."+group+" Namespaced",
			"Class classes."+group+" Cluster", "Other others."+group+" Cluster")
		w.apply(t, lateVendor(group)+classes)
		return w
	}
	answers := func(w *world) (all []string) {
		for _, kind := range []string{"again", "tickets", "orders"} {
			w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+"."+group, v1beta1.ConditionReady, metav1.ConditionTrue, "")
		}
		w.awaitReason(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ReasonConflict)
		w.awaitClasses(t, "classes."+group, 4)
		w.awaitClasses(t, "others."+group, 4)
		for _, kind := range []string{"Claim", "Ticket", "Order"} {
			for i := range 20 {
				metadata := []string{fmt.Sprintf(", annotations: {classbind.io/class-selector: tier=t%d}", i/2%3), ""}[i%2]
				bound, warnings, err := w.create(t, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: c%d%s}\nspec: {}\n", group, kind, i, metadata), client.DryRunAll)
				all = append(all, fmt.Sprint(kind, i, bound.Object["spec"], warnings, err))
			}
		}
		return all
	}

	w := start()
	w.apply(t, registrations)
	want := answers(w)
	assert.Contains(t, strings.Join(want, ""), "other-", "We should reach both kinds of class.")
	backup := w.registrations(t)
	require.Len(t, backup, 6)

	w = start()
	slices.Reverse(backup)
	for i := range backup {
		w.restore(t, &backup[i])
	}
	assert.Equal(t, want, answers(w), "We should serve the same claims in the same way.")
}

func (w *world) restore(t *testing.T, object *unstructured.Unstructured) {
	name := object.GetName()
	delete(object.Object, "status")
	delete(object.Object, "metadata")
	object.SetName(name)
	require.NoError(t, w.Create(t.Context(), object))
	created := object.GetCreationTimestamp()
	eventually(t, func(c *attempt) {
		probe, _, err := w.create(t, claimKind("probe.restored.test", "{}"), client.DryRunAll)
		require.NoError(c, err)
		require.True(c, created.Time.Before(probe.GetCreationTimestamp().Time))
	})
}
