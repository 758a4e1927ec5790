package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

const (
	registrationsAtOnce = 60
	// maxLookups of two kinds that are not there, in lookupTime: each is looked up again every quarter of a minute,
	// by every part that needs it.
	maxLookups = 12
	lookupTime = 20 * time.Second
)

// TestPresetsAtOnce registers all presets, the samples and made-up kinds at once, and two kinds
// that are not there. It is not parallel, because it measures.
func TestPresetsAtOnce(t *testing.T) {
	long(t)
	w := newWorld(t, controlplane.Options{Audit: true})
	w.serve(t)
	source := newCRDSource(t)

	var crds, others []string
	registrations := map[string]*unstructured.Unstructured{}
	add := func(objects []*unstructured.Unstructured) {
		for _, object := range objects {
			switch object.GetKind() {
			case "ClaimKind", "ClassKind":
				register(t, registrations, object)
			case "ClusterRole":
				others = append(others, manifestOf(t, object))
			}
		}
	}
	for _, p := range presets() {
		objects := w.rendered(t, filepath.Join(w.deploy, "kinds", p.name))
		add(objects)
		for _, k := range all[v1alpha1.ClaimKind](t, objects, "ClaimKind") {
			if found, ok := source.find(t, k.Resource(), p.project); ok {
				crds = append(crds, found.manifest)
			}
		}
		for _, k := range all[v1alpha1.ClassKind](t, objects, "ClassKind") {
			if found, ok := source.find(t, k.Name, p.project); ok {
				crds = append(crds, found.manifest)
			}
		}
	}
	samples := filepath.Join(w.deploy, "samples", "crossplane")
	w.kubectl(t, "apply", "-k", filepath.Join(samples, "crds"))
	add(w.rendered(t, samples))
	slices.Sort(crds)
	_, _, err := w.Kubectl(t.Context(), strings.NewReader(strings.Join(slices.Compact(crds), "---\n")), "apply", "--server-side", "-f", "-")
	require.NoError(t, err)
	others = append(others, vendor("made-up.test"), vendor("absent.test"))
	for n := 0; len(registrations) < registrationsAtOnce; n++ {
		claims, classes := fmt.Sprintf("claims%02d.made-up.test", n), fmt.Sprintf("classes%02d.made-up.test", n)
		w.resources(t, fmt.Sprintf("Claim%02d %s Namespaced", n, claims), fmt.Sprintf("Class%02d %s Cluster", n, classes))
		add(documents(t, claimKind(claims, "{}")+classKind(classes, "{claimKinds: ["+claims+"]}")))
	}
	w.awaitCRDs(t, "--all")
	w.apply(t, strings.Join(others, "---\n"))

	manifests := claimKind("claims.absent.test", "{}") + classKind("classes.absent.test", "{claimKinds: [claims.absent.test]}")
	for _, object := range registrations {
		manifests += "---\n" + manifestOf(t, object)
	}
	w.registerAll(t, manifests, len(registrations)+2)

	w.awaitReason(t, &v1alpha1.ClaimKind{}, "claims.absent.test", v1alpha1.ReasonNotInstalled)
	w.awaitReason(t, &v1alpha1.ClassKind{}, "classes.absent.test", v1alpha1.ReasonNotInstalled)
	w.absent(t, "absent.test")
}

// registerAll applies so many registrations, and waits until all are served whose kinds are there.
func (w *world) registerAll(t *testing.T, manifests string, registrations int) {
	t.Helper()
	start := time.Now()
	w.apply(t, manifests)
	applied := time.Since(start)
	isServed := func(name string, conditions []metav1.Condition) bool {
		return strings.HasSuffix(name, ".absent.test") || meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		claimKinds, classKinds := v1alpha1.ClaimKindList{}, v1alpha1.ClassKindList{}
		require.NoError(c, w.List(t.Context(), &claimKinds))
		require.NoError(c, w.List(t.Context(), &classKinds))
		require.Equal(c, registrations, len(claimKinds.Items)+len(classKinds.Items))
		for i := range claimKinds.Items {
			k := &claimKinds.Items[i]
			require.True(c, isServed(k.Name, k.Status.Conditions), "%s: %v", k.Name, k.Status.Conditions)
		}
		for i := range classKinds.Items {
			k := &classKinds.Items[i]
			require.True(c, isServed(k.Name, k.Status.Conditions), "%s: %v", k.Name, k.Status.Conditions)
		}
	}, patience, 100*time.Millisecond)
	t.Logf("%d registrations: applied in %s, served after %s", registrations, applied, time.Since(start))
}

// register adds a registration, or to one that is there: a class kind may serve claims of several presets.
func register(t *testing.T, registrations map[string]*unstructured.Unstructured, object *unstructured.Unstructured) {
	t.Helper()
	key := object.GetKind() + "/" + object.GetName()
	if former := registrations[key]; former != nil {
		served, _, err := unstructured.NestedStringSlice(former.Object, "spec", "claimKinds")
		require.NoError(t, err)
		more, _, err := unstructured.NestedStringSlice(object.Object, "spec", "claimKinds")
		require.NoError(t, err)
		require.NoError(t, unstructured.SetNestedStringSlice(object.Object, append(served, more...), "spec", "claimKinds"))
	}
	registrations[key] = object
}

// absent kinds of a group, one for claims and one for classes, cost nothing: they have no
// webhook, are not watched, and are looked up now and then.
func (w *world) absent(t *testing.T, group string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		mutating, validating := admissionregistrationv1.MutatingWebhookConfigurationList{}, admissionregistrationv1.ValidatingWebhookConfigurationList{}
		require.NoError(c, w.List(t.Context(), &mutating))
		require.NoError(c, w.List(t.Context(), &validating))
		for _, list := range []any{mutating, validating} {
			text, err := json.Marshal(list)
			require.NoError(c, err)
			require.Contains(c, string(text), "gateway.networking.k8s.io", "We should have the webhooks of the others.")
			assert.NotContains(t, string(text), group, "We should have no webhook.")
		}
	}, patience, 100*time.Millisecond)
	before := len(w.requests(t, group))
	assert.Never(t, func() bool { return len(w.requests(t, group)) > before+maxLookups }, lookupTime, time.Second, "We should look them up now and then.")
	t.Logf("Requests: %d before all others were served, %d in %s after it", before, len(w.requests(t, group))-before, lookupTime)
	for _, request := range w.requests(t, group) {
		assert.Equal(t, "get /apis/"+group, request, "We should neither list nor watch.")
	}
}

// requests of classbind for kinds of a group.
func (w *world) requests(t *testing.T, group string) (requests []string) {
	t.Helper()
	for _, e := range w.audited(t) {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		if e.User.Username == classbind.User && strings.HasPrefix(path, "/apis/"+group) {
			requests = append(requests, e.Verb+" "+path)
		}
	}
	return requests
}
