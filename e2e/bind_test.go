package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// bindOutput is one object of what bind prints for a program.
type bindOutput struct {
	Kind, Name, Outcome, Reason, Message           string
	Class                                          struct{ Name string }
	Bound, Unmatched, LeftAlone, Failed, HaveClass int
}

// bind runs the command for a program. It returns what is said of each claim, by name, and the summary.
func (w *world) bind(t *testing.T, kubeconfig string, args ...string) (claims map[string]bindOutput, summary bindOutput, exit int, stderr string) {
	out, stderr, exit := w.classbind(t, append([]string{"bind", "--output=json", "--kubeconfig=" + kubeconfig}, args...)...)
	claims = map[string]bindOutput{}
	for all := json.NewDecoder(strings.NewReader(out)); all.More(); {
		o := bindOutput{}
		require.NoError(t, all.Decode(&o))
		if o.Kind == "Summary" {
			summary = o
		} else {
			claims[o.Name] = o
		}
	}
	return claims, summary, exit, stderr
}

// storedClaims are created before their kind is registered.
const storedClaims = `---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: gold}
spec: {classSelector: {matchLabels: {tier: gold}}, size: 3}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: bronze}
spec: {classSelector: {matchLabels: {tier: bronze}}}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: malformed}
spec: {classSelector: gold}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: paused}
spec: {classSelector: {}, paused: true}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: taken}
spec: {classRef: {apiVersion: stored.test/v1, kind: Class, name: mine}}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: stored-other, name: elsewhere}
spec: {classSelector: {}}
`

// TestBindStored has claims that were stored before their kind was registered, and does with them what an admin would.
func TestBindStored(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	const group, kind = "stored.test", "claims.stored.test"
	w.namespaces(t, "stored-other")
	w.resources(t, "Claim "+kind+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, storedClaims)
	w.serves(t, vendor(group)+claimKind(kind, `{claims: {when: "!(has(claim.spec) && has(claim.spec.paused))", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}}`)+
		serving("classes."+group, kind)+class(group, "Class", "gold", "labels: {tier: gold}, "))
	before := w.claimsIn(t, group, "")
	admin := w.plane.Kubeconfig
	run := func(args ...string) (string, int) {
		out, stderr, exit := w.classbind(t, append(args, "--kubeconfig="+admin)...)
		return out + stderr, exit
	}
	out, exit := run("explain", "claim.stored.test/gold", "--namespace=default")
	assert.Equal(t, 1, exit, out)
	assert.Contains(t, out, "Claim default/gold: stored without a class; created now, it would get Class/gold\n", "We should not say that the claim is bound.")
	assert.Contains(t, out, "classbind bind claims.stored.test gold --namespace default", "We should say how it is bound.")

	report, _, _ := w.status(t, admin)
	section := report.Sections[len(report.Sections)-1]
	assert.Equal(t, 2, section.Unbound[kind], "We should count the claims that are stored without a class: %+v", section)
	assert.True(t, slices.ContainsFunc(section.Notes, func(note string) bool {
		return strings.Contains(note, "2 claims have no class: default/bronze, default/gold") && strings.Contains(note, "classbind bind claims.stored.test --all-namespaces --dry-run")
	}), "We should say which they are, and the command that binds them: %q", section.Notes)

	viewer := must(w.plane.UserKubeconfig("bind-viewer"))(t)
	w.kubectl(t, "create", "clusterrole", "bind-viewer", "--verb=list", "--resource=claimkinds.classbind.io,classkinds.classbind.io,claims.stored.test,classes.stored.test")
	w.kubectl(t, "create", "clusterrole", "bind-viewer-namespaces", "--verb=get", "--resource=namespaces")
	w.kubectl(t, "create", "clusterrolebinding", "bind-viewer-namespaces", "--clusterrole=bind-viewer-namespaces", "--user=bind-viewer")
	w.kubectl(t, "create", "clusterrolebinding", "bind-viewer", "--clusterrole=bind-viewer", "--user=bind-viewer")
	all := map[string]string{"gold": "Bound", "bronze": "Unmatched", "malformed": "Failed", "paused": "LeftAlone", "elsewhere": "LeftAlone"}
	outcomes := func(claims map[string]bindOutput) map[string]string {
		found := map[string]string{}
		for name, c := range claims {
			found[name] = c.Outcome
		}
		return found
	}
	claims, summary, exit, _ := w.bind(t, viewer, kind, "-A", "--dry-run")
	assert.Equal(t, all, outcomes(claims), "We should say what would become of each.")
	assert.Equal(t, 2, exit, "We should fail with a malformed claim.")
	assert.Equal(t, [5]int{1, 1, 2, 1, 1}, [5]int{summary.Bound, summary.Unmatched, summary.LeftAlone, summary.Failed, summary.HaveClass}, "%+v", summary)
	_, _, exit, stderr := w.bind(t, viewer, kind, "-A")
	assert.Equal(t, 2, exit)
	assert.Contains(t, stderr, `cannot patch resource "claims"`, "We should say which right is missing.")
	assert.Equal(t, before, w.claimsIn(t, group, ""), "We should have written nothing.")

	claims, _, exit, _ = w.bind(t, admin, "Claim.stored.test", "taken", "bronze", "--namespace=default")
	assert.Equal(t, map[string]string{"taken": "LeftAlone", "bronze": "Unmatched"}, outcomes(claims), "We should bind the named claims alone.")
	assert.Equal(t, 1, exit, "We should say that there is no class.")
	out, exit = run("bind", kind, "--all-namespaces")
	assert.Equal(t, 2, exit, out)
	for _, line := range []string{
		"default/gold: bound to Class/gold\n", "default/bronze: not bound (NoMatchingClass): no class for this claim", "default/malformed: not bound (MalformedClaim): spec.classSelector",
		"default/paused: left alone (NotYet)", "stored-other/elsewhere: left alone (NamespaceNotSelected)", "1 bound, 1 without a class, 2 left alone, 1 failed; 1 had their class\n",
	} {
		assert.Contains(t, out, line)
	}
	for i, after := range w.claimsIn(t, group, "") {
		if after.GetName() == "gold" {
			boundAlone(t, &before[i], &after)
		} else {
			assert.Equal(t, before[i], after, "We should not write a claim that gets no class.")
		}
	}
	out, exit = run("explain", "claims.stored.test/gold", "--namespace=default")
	assert.Equal(t, 0, exit, out)
	assert.Contains(t, out, "left alone")

	out, exit = run("bind", "clams."+group)
	assert.Equal(t, 2, exit)
	assert.Contains(t, out, "did you mean", "We should say which kind was meant.")
}

// boundAlone checks that a claim got the reference to its class by one write, and that nothing else of it changed.
func boundAlone(t *testing.T, before, after *unstructured.Unstructured) {
	assert.NotEmpty(t, classOf(after), "We should bind the claim %s.", after.GetName())
	assert.Equal(t, before.GetGeneration()+1, after.GetGeneration(), "We should write the claim once.")
	managed := after.GetManagedFields()
	if i := slices.IndexFunc(managed, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == v1beta1.FieldManager }); assert.GreaterOrEqual(t, i, 0, "%+v", managed) {
		own := map[string]map[string]any{}
		assert.NoError(t, json.Unmarshal(managed[i].FieldsV1.GetRawBytes(), &own))
		assert.Len(t, own, 1)
		assert.Len(t, own["f:spec"], 1)
		assert.Contains(t, own["f:spec"], "f:classRef", "We should own the reference alone.")
		managed = slices.Delete(managed, i, i+1)
	}
	rest := after.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, "spec", "classRef")
	rest.SetManagedFields(managed)
	rest.SetGeneration(before.GetGeneration())
	rest.SetResourceVersion(before.GetResourceVersion())
	assert.Equal(t, before.Object, rest.Object, "We should change nothing else.")
}

// through returns the kubeconfig of a proxy of the API server. meddle may answer a request itself, and says if it did.
func (w *world) through(t *testing.T, meddle func(http.ResponseWriter, *http.Request) bool) string {
	transport := must(rest.TransportFor(w.config))(t)
	to := must(url.Parse(w.config.Host))(t)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !meddle(rw, r) {
			proxy.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: %q}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n", server.URL), 0o600))
	return file
}

func failure(w http.ResponseWriter, code int, reason metav1.StatusReason, meta metav1.ListMeta) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, ListMeta: meta, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: string(reason), //nolint:gosec // It is a code of HTTP.
	})
	return true
}

// TestBindLeavesAlone has a claim with a reference that would be replaced while it is created, and one that needs no class.
func TestBindLeavesAlone(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	const group, kind = "leaves.test", "claims.leaves.test"
	w.resources(t, "Claim "+kind+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, `{apiVersion: leaves.test/v1, kind: Claim, metadata: {namespace: default, name: preset}, spec: {classRef: {apiVersion: leaves.test/v1, kind: Class, name: usual}, classSelector: {}}}
---
{apiVersion: leaves.test/v1, kind: Claim, metadata: {namespace: default, name: none}, spec: {}}
`)
	w.serves(t, vendor(group)+serving("classes."+group, kind)+class(group, "Class", "gold", "")+
		claimKind(kind, "{claims: {when: \"claim.?spec.classRef.name.orValue('') in ['', 'usual']\"}, selector: {whenAbsent: DefaultIfAny}}"))
	before := w.claimsIn(t, group, "")
	claims, summary, exit, stderr := w.bind(t, w.plane.Kubeconfig, kind, "--all-namespaces")
	assert.Zero(t, exit, stderr)
	assert.Equal(t, 1, summary.HaveClass, "We should keep a class that may be in use: %v", claims)
	assert.Equal(t, "LeftAlone", claims["none"].Outcome, "We should not call it a failure that a claim does without a class.")
	assert.Equal(t, before, w.claimsIn(t, group, ""), "We should write to none.")
	out, _, _ := w.classbind(t, "status", "--kubeconfig="+w.plane.Kubeconfig)
	assert.NotContains(t, out, "classbind bind "+kind, "We should not recommend a command that does nothing.")
}

// TestBindInterfered binds 150 claims, two pages, while others interfere: the API server asks to wait, and forgets the list, authors
// change claims, delete them and bind them, and the classes change.
func TestBindInterfered(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	const claims, group, kind = 150, "interfered.test", "claims.interfered.test"
	w.resources(t, "Claim "+kind+" Namespaced", "Class classes."+group+" Cluster")
	w.createMany(t, group, claims)
	w.serves(t, vendor(group)+claimKind(kind, "{choice: {strategy: LeastClaims}}")+serving("classes."+group, kind)+
		class(group, "Class", "a", "labels: {tier: gold}, ")+class(group, "Class", "b", "labels: {tier: gold}, "))
	named := func(name string) *unstructured.Unstructured { return unopinionated(group, name) }
	first := sync.Once{}
	var patched, throttled, expired atomic.Int64
	merge := func(name, change string) error {
		return w.Patch(t.Context(), named(name), client.RawPatch(types.MergePatchType, []byte(change)))
	}
	proxy := w.through(t, func(rw http.ResponseWriter, r *http.Request) bool {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case r.URL.Query().Get("continue") != "" && expired.Add(1) == 1:
			// The list goes on with the next page, as it is now.
			return failure(rw, http.StatusGone, metav1.StatusReasonExpired, metav1.ListMeta{Continue: r.URL.Query().Get("continue")})
		case r.Method != http.MethodPatch:
			return false
		case patched.Add(1)%50 == 1 && throttled.Add(1) <= 3:
			rw.Header().Set("Retry-After", "1")
			return failure(rw, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, metav1.ListMeta{})
		case name == "claim-10" || name == "claim-11" || name == "claim-12":
			first.Do(func() {
				assert.NoError(t, merge("claim-10", `{"spec": {"size": 7}}`))
				assert.NoError(t, w.Delete(t.Context(), named("claim-11")))
				assert.NoError(t, merge("claim-12", `{"spec": {"classRef": {"apiVersion": "interfered.test/v1", "kind": "Class", "name": "mine"}}}`))
			})
		}
		return false
	})
	began := time.Now()
	said, summary, exit, stderr := w.bind(t, proxy, kind)
	assert.Zero(t, exit, "%s%+v", stderr, summary)
	assert.GreaterOrEqual(t, time.Since(began), 3*time.Second, "We should wait as long as the API server asks.")
	assert.GreaterOrEqual(t, throttled.Load(), int64(3), "We should be asked to wait.")
	assert.GreaterOrEqual(t, expired.Load(), int64(2), "We should go on with a list that expired.")
	assert.Equal(t, claims-2, summary.Bound, "%+v", summary)
	assert.Equal(t, "LeftAlone", said["claim-12"].Outcome, "We should leave its class to a claim that got one meanwhile.")
	byClass := map[string]int{}
	for _, c := range w.claimsOf(t, group) {
		byClass[classOf(&c)]++
		if c.GetName() == "claim-10" {
			size, _, _ := unstructured.NestedInt64(c.Object, "spec", "size")
			assert.EqualValues(t, 7, size, "We should keep what an author changes meanwhile.")
		}
	}
	assert.Equal(t, map[string]int{"Class/a": 74, "Class/b": 74, "Class/mine": 1}, byClass, "We should give each class as many claims.")
}

// TestBindKilled kills the command again and again while it binds 10,000 claims. The history of the claims shows that each is
// bound once, and that nothing else changes.
func TestBindKilled(t *testing.T) {
	long(t)
	const claims, group, kind = 10_000, "many.test", "claims.many.test"
	w := newWorld(t, controlplane.Options{})
	w.resources(t, "Claim "+kind+" Namespaced", "Class classes."+group+" Cluster")
	w.createMany(t, group, claims)
	w.serve(t)
	w.serves(t, vendor(group)+claimKind(kind, "{}")+serving("classes."+group, kind)+
		class(group, "Class", "a", "labels: {tier: gold}, ")+class(group, "Class", "b", "labels: {tier: gold}, "))

	before := map[string]*unstructured.Unstructured{}
	for _, c := range w.claimsOf(t, group) {
		before[c.GetName()] = &c
	}
	require.Len(t, before, claims)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "ClaimList"})
	require.NoError(t, w.List(t.Context(), list, client.Limit(1)))
	api := must(dynamic.NewForConfig(w.config))(t)
	history, err := api.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "claims"}).
		Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	require.NoError(t, err)
	writes := make(chan map[string][]string, 1) // The versions of each claim.
	go func() {
		versions := map[string][]string{}
		for e := range history.ResultChan() { // At once: the API server waits for no slow reader.
			c, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type != watch.Modified {
				versions[""] = append(versions[""], string(e.Type))
				continue
			}
			versions[c.GetName()] = append(versions[c.GetName()], c.GetResourceVersion())
			if _, last, _ := unstructured.NestedString(c.Object, "spec", "end"); last {
				break
			}
		}
		writes <- versions
	}()

	kills, said := 0, map[string]int{}
	for done := false; !done; {
		done = w.bindUntil(t, kind, 1+(kills*337)%1500, said)
		if !done {
			kills++
		}
	}
	assert.GreaterOrEqual(t, kills, 5, "We should have killed the command.")
	for name, times := range said {
		if times > 1 {
			t.Errorf("We should bind %s once, and said so %d times.", name, times)
		}
	}
	_, summary, exit, stderr := w.bind(t, w.plane.Kubeconfig, kind)
	assert.Zero(t, exit, stderr)
	assert.Equal(t, claims, summary.HaveClass, "We should leave none, and find nothing more to do: %+v", summary)

	after := w.claimsOf(t, group)
	require.NoError(t, w.Patch(t.Context(), unopinionated(group, "claim-0"), client.RawPatch(types.MergePatchType, []byte(`{"spec": {"end": "yes"}}`))))
	versions := <-writes
	history.Stop()
	assert.Empty(t, versions[""], "We should see nothing but updates.")
	for i := range after {
		name, want := after[i].GetName(), []string{after[i].GetResourceVersion()}
		if name == "claim-0" { // The mark of the end came after it.
			require.Len(t, versions[name], 2)
			versions[name] = versions[name][:1]
		}
		require.Equal(t, want, versions[name], "We should write %s once, and then no more.", name)
		if boundAlone(t, before[name], &after[i]); t.Failed() {
			return
		}
	}
	t.Logf("%d claims bound, the command killed %d times; %d of them were told", claims, kills, len(said))
}

// bindUntil runs the command and kills it once it has told of so many claims. It reports whether the command ended before.
func (w *world) bindUntil(t *testing.T, kind string, most int, said map[string]int) (ended bool) {
	cmd := exec.CommandContext(t.Context(), command, "bind", kind, "--kubeconfig="+w.plane.Kubeconfig) //nolint:gosec // It runs the command under test.
	out := must(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if name, bound := strings.CutPrefix(lines.Text(), "default/"); bound {
			name, _, _ = strings.Cut(name, ": bound to ")
			said[name]++
			if most--; most == 0 {
				require.NoError(t, cmd.Process.Kill())
				_, _ = io.Copy(io.Discard, out)
				break
			}
		}
	}
	err := cmd.Wait()
	failed := (*exec.ExitError)(nil)
	if most == 0 && errors.As(err, &failed) {
		return false
	}
	require.NoError(t, err)
	return true
}
