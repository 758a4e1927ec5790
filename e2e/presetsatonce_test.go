package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestPresetsAtOnce registers all presets, the samples and made-up kinds at once, and two kinds that are not there.
func TestPresetsAtOnce(t *testing.T) {
	long(t)
	t.Parallel()
	const atOnce = 60
	w, _ := servedWorld(t, controlplane.Options{})
	source := newCRDSource(t)

	var crds, others []string
	registrations := map[string]*unstructured.Unstructured{}
	add := func(objects []*unstructured.Unstructured) {
		for _, object := range objects {
			switch object.GetKind() {
			case "ClaimKind", "ClassKind":
				key := object.GetKind() + "/" + object.GetName()
				require.NotContains(t, registrations, key, "We should apply no registration over another.")
				registrations[key] = object
			case "ClusterRole":
				others = append(others, manifestOf(t, object))
			}
		}
	}
	for _, preset := range kustomizations(t, "kinds") {
		objects := w.rendered(t, filepath.Join(w.deploy, "kinds", preset))
		add(objects)
		var names []string
		for _, k := range some[v1beta1.ClaimKind](t, objects, "ClaimKind") {
			names = append(names, k.Resource())
		}
		for _, k := range some[v1beta1.ClassKind](t, objects, "ClassKind") {
			names = append(names, k.Name)
		}
		for _, name := range names {
			if found, ok := source.find(t, name); ok {
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
	for n := 0; len(registrations) < atOnce; n++ {
		claims, classes := fmt.Sprintf("claims%02d.made-up.test", n), fmt.Sprintf("classes%02d.made-up.test", n)
		w.resources(t, fmt.Sprintf("Claim%02d %s Namespaced", n, claims), fmt.Sprintf("Class%02d %s Cluster", n, classes))
		add(documents(t, claimKind(claims, "{}")+serving(classes, claims)))
	}
	w.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=5m")
	w.apply(t, strings.Join(others, "---\n"))

	manifests := claimKind("claims.absent.test", "{}") + serving("classes.absent.test", "claims.absent.test")
	for _, object := range registrations {
		manifests += "---\n" + manifestOf(t, object)
	}
	w.apply(t, manifests)
	for _, object := range registrations {
		var k client.Object = &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
		if object.GetKind() == "ClassKind" {
			k = &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: object.GetName()}}
		}
		w.awaitReady(t, k)
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.absent.test", v1beta1.ReasonNotInstalled)
	w.awaitReason(t, &v1beta1.ClassKind{}, "classes.absent.test", v1beta1.ReasonNotInstalled)
}
