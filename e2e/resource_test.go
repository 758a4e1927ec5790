package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestClaimKindsOfOneResource has a kind of claim with two references, and ClaimKinds that want the same one.
func TestClaimKindsOfOneResource(t *testing.T) {
	w := sharedWorld(t)

	t.Run("TwoReferences", func(t *testing.T) {
		t.Parallel()
		const group = "two.test"
		w.resources(t, "Tier tiers.two.test Cluster")
		w.install(t, vendor(group)+class(group, "Class", "only", "")+class(group, "Tier", "first", "")+
			claimKind("claims.two.test", "{}")+serving("classes.two.test", "claims.two.test")+
			claimKind("tiers.two", `{claims: {resource: claims.two.test}, reference: {path: .spec.tierRef}, selector: {path: .spec.tierSelector, annotation: two.test/tiers}}`)+
			serving("tiers.two.test", "tiers.two"))
		w.awaitClasses(t, "classes.two.test", 1)
		w.awaitClasses(t, "tiers.two.test", 1)
		w.awaitClaims(t, "claims.two.test")
		eventually(t, func(c *attempt) {
			bound, _, err := w.create(t, strings.Replace(claim(group, "both"), "name: both", "name: both, annotations: {two.test/tiers: '!absent'}", 1), client.DryRunAll)
			require.NoError(c, err)
			assert.Equal(t, "Class/only", classOf(bound), "We should write the first reference.")
			tier, _, _ := unstructured.NestedString(bound.Object, "spec", "tierRef", "name")
			require.Equal(c, "first", tier, "We should write the second reference, too.")
		})
	})

	t.Run("Conflict", func(t *testing.T) {
		t.Parallel()
		const group, kind = "rivals.test", "claims.rivals.test"
		w.resources(t, "Other others.rivals.test Cluster")
		w.register(t, group, "{}", class(group, "Class", "only", ""))
		w.apply(t, class(group, "Other", "other", ""))
		w.apply(t, claimKind("a-rival", "{claims: {resource: claims.rivals.test}}"))
		w.awaitReason(t, &v1beta1.ClaimKind{}, "a-rival", v1beta1.ReasonNoClassKind)
		w.binds(t, claim(group, "one"), "Class/only", "We should bind claims until the ClaimKind whose name comes first can bind them.")

		w.apply(t, serving("others.rivals.test", "a-rival"))
		eventually(t, func(c *attempt) {
			two, _, err := w.create(t, claim(group, "two"), client.DryRunAll)
			assert.NotEmpty(t, classOf(two), "We should refuse no claim meanwhile, and have none created without a class. %v", err)
			require.Equal(c, "Other/other", classOf(two))
		}, "We should bind claims by the ClaimKind whose name comes first.")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse, `"a-rival", whose name comes first`)

		w.kubectl(t, "delete", "claimkind", "a-rival")
		w.awaitBound(t, claim(group, "two"), "Class/only", "We should serve the other when the first is gone.")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	})

	t.Run("ResourceIsFixed", func(t *testing.T) {
		t.Parallel()
		w.apply(t, claimKind("fixed.test", "{claims: {resource: claims.fixed.test}}"))
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(claimKind("fixed.test", "{claims: {resource: others.fixed.test}}")), "apply", "-f", "-")
		require.ErrorContains(t, err, "the resource cannot be changed")
	})

	t.Run("PodPriority", func(t *testing.T) {
		t.Parallel()
		w.apply(t, claimKind("pod-priorities", "{claims: {resource: pods, skipIfSet: []}, reference: {path: .spec.priorityClassName, form: Name}}"))
		w.awaitReason(t, &v1beta1.ClaimKind{}, "pod-priorities", v1beta1.ReasonUnsuitable)
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "pod-priorities", v1beta1.ConditionReady, metav1.ConditionFalse, "the API server sets the priority of a pod before it asks webhooks")
		assert.NotContains(t, w.kubectl(t, "get", "mutatingwebhookconfiguration", "-o", "jsonpath={.items[*].webhooks[*].name}"), "pod-priorities",
			"We should not be asked about pods.")
	})
}

// convertTopology converts Clusters between v1beta1, where the class is a string, and v1beta2, where it is an object.
func convertTopology(w http.ResponseWriter, r *http.Request) {
	type request struct {
		UID               types.UID        `json:"uid"`
		DesiredAPIVersion string           `json:"desiredAPIVersion"`
		Objects           []map[string]any `json:"objects"`
	}
	type response struct {
		UID              types.UID        `json:"uid"`
		ConvertedObjects []map[string]any `json:"convertedObjects"`
		Result           metav1.Status    `json:"result"`
	}
	review := struct {
		metav1.TypeMeta `json:",inline"`
		Request         *request  `json:"request,omitempty"`
		Response        *response `json:"response,omitempty"`
	}{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	for _, object := range review.Request.Objects {
		if name, set, _ := unstructured.NestedString(object, "spec", "topology", "class"); set {
			unstructured.RemoveNestedField(object, "spec", "topology", "class")
			_ = unstructured.SetNestedField(object, name, "spec", "topology", "classRef", "name")
		} else if name, set, _ := unstructured.NestedString(object, "spec", "topology", "classRef", "name"); set {
			unstructured.RemoveNestedField(object, "spec", "topology", "classRef")
			_ = unstructured.SetNestedField(object, name, "spec", "topology", "class")
		}
		object["apiVersion"] = review.Request.DesiredAPIVersion
	}
	review.Response = &response{review.Request.UID, review.Request.Objects, metav1.Status{Status: metav1.StatusSuccess}}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// TestVersionOfClaims upgrades the CRD of claims to a version with another path, and then takes the old version away.
func TestVersionOfClaims(t *testing.T) {
	w := sharedWorld(t)
	const group, kind = "upgrade.test", "clusters.upgrade.test"
	server := httptest.NewTLSServer(http.HandlerFunc(convertTopology))
	t.Cleanup(server.Close)
	version := func(name, field string, served, storage bool) string {
		return fmt.Sprintf(`
  - name: %s
    served: %t
    storage: %t
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {topology: {type: object, properties: {version: {type: string}, %s}}}}`, name, served, storage, field)
	}
	const asString, asObject = "class: {type: string}", "classRef: {type: object, properties: {name: {type: string}}}"
	crd := func(versions ...string) string {
		return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  scope: Namespaced
  names: {kind: Cluster, plural: clusters}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}}
  versions:%s
`, kind, group, server.URL, base64.StdEncoding.EncodeToString(caOf(server)), strings.Join(versions, ""))
	}
	cluster := func(version, name string) string {
		return fmt.Sprintf("apiVersion: %s/%s\nkind: Cluster\nmetadata: {namespace: default, name: %s}\nspec: {topology: {version: v1.36.0}}\n", group, version, name)
	}
	w.resources(t, "Class classes.upgrade.test Cluster", "Claim claims.upgrade.test Namespaced")
	w.apply(t, crd(version("v1beta1", asString, true, true)))
	w.serves(t, vendor(group)+class(group, "Class", "only", "annotations: {resourceclass.crossplane.io/is-default-class: 'true'}, ")+
		serving("classes.upgrade.test", "clusters.upgrade.test", "claims.upgrade.test")+
		claimKind(kind, "{claims: {skipIfSet: []}, reference: {path: .spec.topology.class, form: Name}}"))
	bound := w.created(t, cluster("v1beta1", "before"))
	class, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "class")
	require.Equal(t, "only", class)

	w.apply(t, crd(version("v1beta1", asString, true, false), version("v1beta2", asObject, true, true)))
	eventually(t, func(c *attempt) {
		out, _, err := w.Kubectl(t.Context(), nil, "get", "--raw", "/apis/upgrade.test/v1beta2")
		require.NoError(c, err)
		require.Contains(c, out, "clusters")
	})
	// The round of another registration looks at all entries again.
	w.apply(t, claimKind("claims.upgrade.test", "{}"))
	w.awaitClaims(t, "claims.upgrade.test")
	bound = w.created(t, cluster("v1beta1", "unchanged"))
	class, _, _ = unstructured.NestedString(bound.Object, "spec", "topology", "class")
	assert.Equal(t, "only", class, "We should go on binding manifests that nobody changed.")
	eventually(t, func(c *attempt) {
		var err error
		bound, _, err = w.create(t, cluster("v1beta2", "new"))
		require.NoError(c, err) // Discovery may not know the version yet.
	})
	class, _, _ = unstructured.NestedString(bound.Object, "spec", "topology", "classRef", "name")
	assert.Equal(t, "only", class, "We should bind claims of the new version, which the API server converts.")
	k := &v1beta1.ClaimKind{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: kind}, k))
	assert.Equal(t, "v1beta1", k.Status.Version, "We should have pinned the version that was preferred.")

	w.apply(t, crd(version("v1beta1", asString, false, false), version("v1beta2", asObject, true, true)))
	w.awaitReason(t, &v1beta1.ClaimKind{}, kind, v1beta1.ReasonVersionNotServed)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse, "v1beta2: write the paths for one of these, and set spec.claims.version to it")
	w.awaitRefused(t, cluster("v1beta2", "refused"), `its paths are written for version "v1beta1"`, "We should not let a claim be created without a class in silence.")

	w.apply(t, claimKind(kind, "{claims: {version: v1beta2, skipIfSet: []}, reference: {path: .spec.topology.classRef, form: LocalObjectReference}}"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.awaitReference(t, documents(t, cluster("v1beta2", "mended"))[0], []string{"spec", "topology", "classRef", "name"}, "only")
}

// manyPaths is how many claim kinds are registered with long paths: more than
// v1beta1.MaxEntriesBytes has room for, and more than etcd takes in one object.
const manyPaths = 40

// longPaths is a spec with as many paths to skip as the schema allows, each of ten names: nine of so many letters, and the last of so many.
func longPaths(letters, last int) string {
	paths := make([]string, 16)
	for i := range paths {
		paths[i] = strings.Repeat("."+strings.Repeat("a", letters), 9) + "." + strings.Repeat(string(rune('a'+i)), last)
	}
	return "{claims: {skipIfSet: [{path: " + strings.Join(paths, "}, {path: ") + "}]}}"
}

// TestManyLongPaths registers more than the webhook configuration has room for: two thirds of it with the longest paths that the schema
// allows, which are the most to store, and the rest with as many names of one letter, which are the most to compile for their length. It is
// not parallel: the API server compiles for seconds.
func TestManyLongPaths(t *testing.T) {
	long(t)
	w := newWorld(t, controlplane.Options{Audit: true})
	resources := []string{
		"Claim claims.before.test Namespaced", "Class classes.before.test Cluster",
		"Claim claims.later.test Namespaced", "Class classes.later.test Cluster", "Class classes.long.test Cluster",
	}
	var long strings.Builder
	var served []string
	for i := range manyPaths {
		resources = append(resources, fmt.Sprintf("Claim%02d %s Namespaced", i, manyPathsKind(i)))
		spec := longPaths(24, 30)
		if i%3 == 1 {
			spec = longPaths(1, 1)
		}
		long.WriteString(claimKind(manyPathsKind(i), spec))
		served = append(served, manyPathsKind(i))
	}
	w.resources(t, resources...)
	w.apply(t, vendor("long.test")+classKind("classes.long.test", "{claimKinds: [{name: "+strings.Join(served, "}, {name: ")+"}]}"))
	for _, group := range []string{"before.test", "later.test"} {
		w.apply(t, vendor(group)+serving("classes."+group, "claims."+group)+class(group, "Class", "only", ""))
	}
	bound := func(group, name string) {
		w.binds(t, claim(group, name), "Class/only", "We should bind the claims of others.")
	}

	w.apply(t, claimKind("claims.before.test", "{}"))
	w.serve(t)
	w.awaitClaims(t, "claims.before.test")
	w.awaitClasses(t, "classes.before.test", 1)
	w.apply(t, long.String())
	entries := w.awaitLongPaths(t)
	t.Logf("%d of %d have an entry; the configuration has %d bytes.", entries, manyPaths, w.claimEntries(t).Size())
	assert.Greater(t, entries, 10, "We should leave out no more than has to be.")
	assert.Less(t, entries, manyPaths, "We should leave out what has no room.")
	bound("before.test", "with")

	w.apply(t, claimKind("claims.later.test", "{reference: {path: .spec.classRef, onUnbind: Allow}}")) // Its conditions are short.
	w.awaitClaims(t, "claims.later.test")                                                              // There is room for what is small.
	w.awaitClasses(t, "classes.later.test", 1)
	bound("later.test", "with")

	w.kubectl(t, "patch", "claimkind", "claims.before.test", "--type=merge", "-p", `{"spec":{"claims":{"skipIfSet":[{"path":".spec.other"}]}}}`)
	eventually(t, func(c *attempt) {
		entries := w.claimEntries(t)
		require.Equal(c, "claims.before.test"+v1beta1.BindSuffix, entries.Webhooks[0].Name)
		require.Contains(c, entries.Webhooks[0].MatchConditions[1].Expression, `["other"]`)
	}, "We should write the change of a registration.")
	bound("before.test", "changed")
	assert.Equal(t, entries, w.awaitLongPaths(t), "We should leave out the same.")
	w.noWriteFailed(t)
}

func manyPathsKind(i int) string { return fmt.Sprintf("claims%02d.long.test", i) }

func (w *world) claimEntries(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.LastConfiguration}, configuration))
	return configuration
}

// awaitLongPaths waits until the status of each of manyPaths reports whether there is
// an entry for it, and returns how many have one: the first that were registered.
func (w *world) awaitLongPaths(t *testing.T) (served int) {
	eventually(t, func(c *attempt) {
		has := map[string]bool{}
		for _, e := range w.claimEntries(t).Webhooks {
			has[e.Name] = true
		}
		served = 0
		for i := range manyPaths {
			k := &v1beta1.ClaimKind{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: manyPathsKind(i)}, k))
			ready := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady)
			require.NotNil(c, ready)
			if has[k.Name+v1beta1.BindSuffix] {
				require.Equal(c, v1beta1.ReasonServed, ready.Reason)
				require.Equal(c, i, served, "We should leave out the last by name.")
				served++
				continue
			}
			require.Equal(c, v1beta1.ReasonTooLarge, ready.Reason, "We should say in the status that there is no room.")
			require.Contains(c, ready.Message, "claims are not bound: the webhook configuration has no room for its entry")
		}
	})
	return served
}

// noWriteFailed of the webhook configuration for claims, but for conflicts, after which the next is better.
func (w *world) noWriteFailed(t *testing.T) {
	var writes int
	var slowest time.Duration
	for _, e := range w.audited(t) {
		if e.Verb != "patch" || e.Stage != auditv1.StageResponseComplete || e.ObjectRef == nil || e.ObjectRef.Resource != "mutatingwebhookconfigurations" {
			continue
		}
		writes++
		slowest = max(slowest, e.StageTimestamp.Sub(e.RequestReceivedTimestamp.Time))
		assert.Contains(t, []int32{http.StatusOK, http.StatusConflict}, e.ResponseStatus.Code, "We should write nothing that the API server refuses.")
	}
	t.Logf("The API server took %s for the slowest of %d writes.", slowest.Round(time.Millisecond), writes)
	assert.NotZero(t, writes)
}
