package ui

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/classbind/classbind/e2e/classbind"
)

// TestStates has nothing to see, for each reason.
func TestStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, "classbind is not installed in this cluster.")
	b.accessible("not installed")

	w.install(t)
	b.says("No ClaimKind is registered, so classbind binds no claim.")
	b.accessible("no registrations")

	w.kubectl(t, "", "apply", "-k", w.deploy+"/samples/crossplane/crds")
	w.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all")
	w.kubectl(t, "apiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: "+databases+
		"}\nspec: {classes: {fits: [{name: x, expression: \"class.metadata.name != '<img src=x onerror=alert(1)>'\"}]}}\n",
		"apply", "-f", "-")
	b.open(u.at(kindPath), "No class is offered to these claims.")
	b.accessible("no classes")
	assert.Zero(t, eval[int](b, "document.querySelectorAll('main img').length"))

	require.NoError(t, w.Stop())
	b.says("Stale.")
	b.accessible("stale")
}

// TestHostile has a class that is called like a script, which is a name that Kubernetes allows ClusterRoles.
func TestHostile(t *testing.T) {
	t.Parallel()
	const kind, name = "claims.hostile.test", "<img src=x onerror=alert(1)>"
	w := newWorld(t)
	w.install(t)
	w.kubectl(t, classbind.CRD("Claim", kind, "Namespaced", classbind.AnySchema), "apply", "-f", "-")
	const roles = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: '" + name +
		"', labels: {from: outside}, annotations: {classbind.io/weight: '%s'}}\n"
	w.kubectl(t, fmt.Sprintf(roles, "<b>much</b>")+"---\napiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: "+kind+"}\n---\n"+
		"apiVersion: classbind.io/v1beta1\nkind: ClassKind\nmetadata: {name: clusterroles.rbac.authorization.k8s.io}\nspec: {claimKinds: [{name: "+kind+"}]}\n---\n"+
		"apiVersion: hostile.test/v1\nkind: Claim\nmetadata: {name: a, namespace: default}\nspec: {classSelector: {matchLabels: {from: outside}}}\n---\n"+
		"apiVersion: hostile.test/v1\nkind: Claim\nmetadata: {name: b, namespace: default}\nspec: {classRef: {apiVersion: "+
		"rbac.authorization.k8s.io/v1, kind: ClusterRole, name: '"+name+"'}}\n",
		"apply", "-f", "-")
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, kind)
	shows := func(screen string) {
		t.Helper()
		b.says("ClusterRole/" + name)
		assert.Zero(t, eval[int](b, "document.querySelectorAll('main img, main b').length"), "We should show a name as text: %s", screen)
		b.accessible("hostile " + screen)
	}
	b.open(u.at("/kind?name="+kind), kind)
	shows("kind")
	b.open(u.at("/claim?kind="+kind+"&namespace=default&name=a"), "Drawn")
	shows("claim")
	b.open(u.at("/claim?kind="+kind+"&namespace=default&name=b"), "The decision")
	shows("bound claim")
	b.open(u.at("/whatif"), "Predict")
	b.run(chromedp.SetValue("#kind", kind), chromedp.SetValue("#changes", fmt.Sprintf(roles, "2")), chromedp.Click("main button"))
	b.says("would get another class")
	shows("whatif")
}

// TestRights is for somebody who may read nothing, and then what is registered alone.
func TestRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install(t)
	w.kubectl(t, "", "create", "serviceaccount", "nobody")
	token, _, err := w.Kubectl(t.Context(), strings.NewReader(""), "create", "token", "nobody")
	require.NoError(t, err)
	kubeconfig := t.TempDir() + "/kubeconfig"
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: %q, certificate-authority-data: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: %q}}]\n", w.Config.Host, base64.StdEncoding.EncodeToString(
		w.Config.CAData,
	), strings.TrimSpace(token))
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	u, b := startUI(t, kubeconfig), newTab(t)
	b.open(u.url, "You do not have the rights to read what is registered.")
	b.accessible("no rights")

	w.kubectl(t, classbind.CRD("Claim", "claims.rights.test", "Namespaced", classbind.AnySchema)+
		"---\napiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: claims.rights.test}\n",
		"apply", "-f", "-")
	w.kubectl(t, "", "create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=claimkinds.classbind.io,classkinds.classbind.io")
	w.kubectl(t, "", "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:nobody")
	b.says("not read")
	b.accessible("some rights")
	b.open(u.at("/kind?name=claims.rights.test"), "Not everything could be read.")
	b.says("The claims could not be read.")
	b.accessible("a kind whose claims may not be read")
	assert.Contains(t, b.text(), "forbidden", "We should say what is missing.")
}

// thousands is a number as the page writes it.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }

// memory is the peak of what a process held, in MiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kib := 0
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib / 1024
}

// TestLarge has 10,000 classes and 100,000 claims, some of which have no class. It measures, so it runs alone.
func TestLarge(t *testing.T) {
	classes, claims := 10_000, 100_000
	if testing.Short() {
		classes, claims = 1_000, 5_000
	}
	const group, kind = "large.test", "claims.large.test"
	w := newWorld(t)
	w.install(t)
	w.kubectl(t, classbind.CRD("Claim", kind, "Namespaced", classbind.AnySchema)+classbind.CRD(
		"Class", "classes."+group, "Cluster", classbind.AnySchema,
	), "apply", "-f", "-")
	w.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all")
	w.kubectl(t, "apiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: "+kind+
		"}\n---\napiVersion: classbind.io/v1beta1\nkind: ClassKind\nmetadata: {name: classes."+group+
		"}\nspec: {claimKinds: [{name: "+kind+"}]}\n", "apply", "-f", "-")
	api, err := dynamic.NewForConfig(w.Config)
	require.NoError(t, err)
	create := func(n int, plural, namespace string, object func(i int) map[string]any) {
		t.Helper()
		all, ctx := errgroup.WithContext(t.Context())
		all.SetLimit(16)
		for i := range n {
			all.Go(func() error {
				_, err := api.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).Namespace(namespace).
					Create(ctx, &unstructured.Unstructured{Object: object(i)}, metav1.CreateOptions{})
				return err
			})
		}
		require.NoError(t, all.Wait())
	}
	create(classes, "classes", "", func(i int) map[string]any {
		return map[string]any{
			"apiVersion": group + "/v1", "kind": "Class",
			"metadata": map[string]any{"name": fmt.Sprintf("class-%05d", i), "labels": map[string]any{"a": fmt.Sprint(i % (classes / 10))}},
		}
	})
	create(claims, "claims", "default", func(i int) map[string]any {
		spec := map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"a": fmt.Sprint(i % (classes/10 + 1))}}}
		if i%10 != 0 {
			spec["classRef"] = map[string]any{"apiVersion": group + "/v1", "kind": "Class", "name": fmt.Sprintf("class-%05d", i%classes)}
		}
		return map[string]any{
			"apiVersion": group + "/v1", "kind": "Claim", "metadata": map[string]any{"name": fmt.Sprintf("claim-%06d", i)}, "spec": spec,
		}
	})
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, kind)
	path := "/kind?name=" + kind
	b.open(u.at(path), "1 to 50 of "+thousands(classes))
	b.accessible("large")
	const firstPaint = `new Promise((done) => new PerformanceObserver((l) => ` +
		`done(l.getEntriesByName("first-contentful-paint")[0].startTime)).observe({type: "paint", buffered: true}))`
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>nothing") }))
	defer empty.Close()
	paint := func(url, says string) float64 {
		var took []float64
		for range 5 {
			b.open(url, says)
			took = append(took, eval[float64](b, firstPaint))
		}
		return slices.Min(took) // What others take of the machine only adds to it.
	}
	alone, worst := paint(empty.URL, "nothing"), 0.
	for _, target := range []string{
		"/", path, path + "&classes-search=class-00999", path + "&waiting-page=3",
		"/claim?kind=" + kind + "&namespace=default&name=claim-000010",
	} {
		least := paint(u.at(target), "")
		t.Logf("%s: first contentful paint after %.0f ms", target, least)
		worst = max(worst, least)
	}
	b.open(u.at(path+"&classes-search=class-00999"), "class-00999")
	b.run(chromedp.Focus("#classes-search"))
	peak := memory(t, u.cmd.Process.Pid)
	t.Logf("%d classes, %d claims: the slowest page after %.0f ms, and at most %d MiB of memory", classes, claims, worst, peak)
	assert.Less(t, worst, max(1000, 10*alone), "The first paint should come within a second, in ms, or ten times what an empty page takes here.")
	assert.Less(t, peak, 300, "The command should need less memory, in MiB.")
}
