package e2e

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
)

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
	_, stderr, exit := w.classbind(t, "bind", kind, "--kubeconfig="+w.plane.Kubeconfig)
	assert.Zero(t, exit, "We should leave none: %s", stderr)

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

// bindUntil runs the command and kills it once it has printed so many claims. It reports whether the command ended before.
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
