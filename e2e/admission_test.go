package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestApplyTogether applies files that hold a class and the claim that needs it. The watch may be faster than kubectl; for half of the
// files there is none, since classbind may only list their classes, and it has to read live.
func TestApplyTogether(t *testing.T) {
	long(t)
	t.Parallel()
	w := sharedWorld(t)
	w.register(t, "together.test", "{}")
	w.resources(t, "Other others.unwatched.together.test Cluster")
	w.apply(t, strings.Replace(vendor("unwatched.together.test"), "[get, list, watch]", "[list]", 1)+classKind("others.unwatched.together.test", "{claimKinds: [{name: claims.together.test}]}"))
	w.awaitClasses(t, "others.unwatched.together.test", 0)

	const files = 100
	dir := t.TempDir()
	for i := range files {
		group, kind := "together.test", "Class"
		if i%2 == 0 {
			group, kind = "unwatched.together.test", "Other"
		}
		manifest := class(group, kind, fmt.Sprint("class-", i), fmt.Sprintf("labels: {for: claim-%d}, ", i)) +
			"---\n" + strings.Replace(claim("together.test", fmt.Sprint("claim-", i)), "{}", fmt.Sprintf("{matchLabels: {for: claim-%d}}", i), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), []byte(manifest), 0o600))
	}
	w.kubectl(t, "apply", "-f", dir)
	for _, claim := range w.claimsOf(t, "together.test") {
		_, class, _ := strings.Cut(classOf(&claim), "/")
		assert.Equal(t, strings.Replace(claim.GetName(), "claim", "class", 1), class, "We should bind every claim to the class before it in its file.")
	}

	if w.plane == nil {
		return // There is no audit log to look into.
	}
	live := 0
	for _, e := range w.audited(t) {
		if e.Verb == "list" && e.User.Username == classbind.User && strings.HasPrefix(e.RequestURI, "/apis/unwatched.together.test/v1/others?labelSelector=for%3Dclaim-") {
			live++
		}
	}
	t.Logf("%d live reads", live)
	assert.Positive(t, live, "We should read live what the watch has not yet shown.")
}

// TestSpared counts at the server which claims the API server calls it for.
func TestSpared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{Audit: true})
	r := w.serve(t)
	w.register(t, "spared.test", "{claims: {skipIfSet: [{path: .spec.resourceRef}, {path: .spec.in.namespace}, {path: .spec.a-b}]}}", class("spared.test", "Class", "only", ""))
	w.apply(t, classKind("classes.spared.test", "{claimKinds: [{name: claims.spared.test}, {name: pods}, {name: services}, {name: jobs.batch}]}"))
	for _, kind := range []string{"pods", "services", "jobs.batch"} {
		w.apply(t, claimKind(kind, "{reference: {annotation: example.org/class, form: Name}}")) // Their schemas have no .spec.classRef.
		w.awaitClaims(t, kind)
	}
	configuration := func() string {
		return w.kubectl(t, "get", "mutatingwebhookconfiguration", v1beta1.LastConfiguration, "-o", "jsonpath={.metadata.resourceVersion}")
	}
	unchanged := configuration()

	for name, tc := range map[string]struct {
		reason string
		spec   string
		calls  int
	}{
		"ClassReference":      {"We should not be called for a claim with a class reference.", "{classRef: {name: mine}}", 0},
		"EmptyClassReference": {"We should not be called for a claim with an empty class reference.", "{classRef: ''}", 0},
		"ResourceReference":   {"We should not be called for a static claim.", "{resourceRef: {name: db}}", 0},
		"Keywords":            {"We should not be called for a field with the name of a CEL keyword.", "{in: {namespace: x}}", 0},
		"Dash":                {"We should not be called for a field with a dash.", "{a-b: 1}", 0},
		"Null":                {"We should be called for references that are null.", "{classRef: null, resourceRef: null}", 1},
		"ParentIsNoObject":    {"We should be called for a claim with text for an object, to say so.", "{in: text}", 1},
		"NoSpec":              {"We should be called for a claim without a spec.", "", 1},
		"SpecIsText":          {"We should be called for a claim with text for a spec, to say so.", "text", 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := calls(t, r)
			manifest := fmt.Sprintf("apiVersion: spared.test/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\n", strings.ToLower(name))
			if tc.spec != "" {
				manifest += "spec: " + tc.spec
			}
			_, _, err := w.create(t, manifest)
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				require.EqualValues(t, http.StatusUnprocessableEntity, status.Status().Code, "%v", err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tc.calls, calls(t, r)-before, tc.reason)
		})
	}

	t.Run("OtherVerbs", func(t *testing.T) {
		bound := w.created(t, claim("spared.test", "other-verbs"))
		before := calls(t, r)
		bound.SetLabels(map[string]string{"a": "b"})
		require.NoError(t, w.Update(t.Context(), bound))
		require.NoError(t, w.Delete(t.Context(), bound))
		assert.Equal(t, before, calls(t, r), "We should be called for creations only.")
	})

	t.Run("NothingChanged", func(t *testing.T) {
		for i := range 10 { // Each has the configuration looked at again.
			w.kubectl(t, "annotate", "--overwrite", "secret", "classbind-ca", "--namespace=classbind-system", fmt.Sprint("looked-at=", i))
		}
		assert.Equal(t, unchanged, configuration(), "We should not write a webhook configuration in which nothing changes.")
	})

	t.Run("Audited", func(t *testing.T) {
		assert.Equal(t, map[string]string{
			"class": "Class/only", "candidates": "1", "strategy": "WeightedRandom", "reason": "MatchingClass",
		}, w.annotated(t, "other-verbs"), "We should say why in the audit log.")
	})

	t.Run("Uninstalled", func(t *testing.T) {
		// There is no controller here that would end a namespace's deletion.
		w.kubectl(t, "delete", "-k", w.deploy, "--wait=false")
		w.awaitBound(t, claim("spared.test", "uninstalled"), "", "We should neither block nor bind claims once we are uninstalled.")
		assert.Never(t, func() bool {
			return w.Get(t.Context(), client.ObjectKey{Name: v1beta1.LastConfiguration}, &admissionregistrationv1.MutatingWebhookConfiguration{}) == nil
		}, time.Second, 100*time.Millisecond, "We should not bring the webhook configuration back while we still run.")
	})
}

func calls(t *testing.T, r *replica) int {
	n := must(r.Answered(t.Context(), v1beta1.BindPath+"{name}"))(t)
	return n
}

// annotated is what classbind annotated of a claim's creation.
func (w *world) annotated(t *testing.T, name string) map[string]string {
	annotations := map[string]string{}
	for _, e := range w.audited(t) {
		if e.Verb != "create" || e.ObjectRef == nil || e.ObjectRef.Name != name {
			continue
		}
		for key, value := range e.Annotations {
			if webhook, key, _ := strings.Cut(key, "/"); webhook == "claims.spared.test.bind.classbind.io" {
				annotations[key] = value
			}
		}
	}
	return annotations
}

// TestUnavailable has classbind down, then up but without knowing all classes, and then as before.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t)
	w.resources(t, "Claim claims.strict.test Namespaced", "Claim claims.lenient.test Namespaced", "Other others.strict.test Namespaced",
		"Class classes.strict.test Cluster")
	w.apply(t, vendor("strict.test")+vendor("stuck.test")+
		claimKind("claims.strict.test", "{admission: {failurePolicy: Fail}}")+claimKind("claims.lenient.test", "{admission: {failurePolicy: Ignore}}")+
		classKind("classes.strict.test", "{claimKinds: [{name: claims.strict.test}, {name: claims.lenient.test}]}")+class("strict.test", "Class", "only", ""))
	w.awaitClaims(t, "claims.strict.test")
	w.awaitClaims(t, "claims.lenient.test")
	w.awaitClasses(t, "classes.strict.test", 1)
	const outage, late = "outage.test", 100
	w.register(t, outage, "{whenUnmatched: BindLater, admission: {failurePolicy: Ignore}}", class(outage, "Class", "gold", "labels: {tier: gold}, "))
	all := w.reproducible(t)
	same := all(client.DryRunAll)
	r.Kill()

	// others is what no ClaimKind names, and secrets what classbind itself needs.
	others := func(t *testing.T, name string) {
		for what, manifest := range map[string]string{
			"a kind that nobody registered": fmt.Sprintf("apiVersion: strict.test/v1\nkind: Other\nmetadata: {namespace: default, name: %s}", name),
			"what classbind itself needs":   fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {namespace: default, name: %s}", name),
			"kube-system":                   strings.ReplaceAll(claim("strict.test", name), "namespace: default", "namespace: kube-system"),
			"a claim that has its class":    strings.ReplaceAll(claim("strict.test", name+"-explicit"), "classSelector: {}", "classRef: {name: mine}"),
		} {
			_, _, err := w.create(t, manifest)
			require.NoError(t, err, "We should never block %s.", what)
		}
	}
	// policies are what decides while classbind cannot.
	policies := func(t *testing.T, name, message string) {
		w.refuses(t, claim("strict.test", name), message, "We should have the claim refused under Fail.")
		w.binds(t, claim("lenient.test", name), "", "We should have the claim admitted under Ignore.")
	}

	t.Run("Down", func(t *testing.T) {
		others(t, "down")
		policies(t, "down", "connection refused")
		w.createMany(t, outage, late)
		for _, claim := range w.claimsOf(t, outage) {
			require.Empty(t, classOf(&claim), "We should be down.")
		}
	})

	t.Run("Unsynced", func(t *testing.T) {
		// An aggregated API server that is down: the kind exists, and does not answer.
		w.apply(t, `---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.stuck.test}
spec: {group: stuck.test, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: default, name: nobody}}
`+classKind("classes.stuck.test", "{claimKinds: [{name: claims.strict.test}]}"))
		w.served(t, "classes.stuck.test")
		r := w.start(t, "--webhook-bind-address="+strings.TrimPrefix(r.URL, "https://"), "--webhook-url="+r.URL)
		eventually(t, func(c *attempt) {
			err := r.Probe(t.Context())
			require.ErrorContains(c, err, "[-]classes failed", "We should not be ready.")
			require.ErrorContains(c, err, "[+]certificate ok", "We should serve TLS.")
		})
		before := calls(t, r)
		others(t, "unsynced")
		policies(t, "unsynced", "classbind cannot answer: not all registered classes have been listed yet")
		assert.Equal(t, 2, calls(t, r)-before, "We should have been asked, and have answered 503.")

		w.kubectl(t, "delete", "classkind", "classes.stuck.test")
		eventually(t, func(c *attempt) { require.NoError(c, r.Probe(t.Context())) })
		w.binds(t, claim("strict.test", "synced"), "Class/only", "We should bind again as soon as nothing is missing.")
		assert.Equal(t, same, all(client.DryRunAll), "We should give a claim the same class after a restart.")
		w.awaitKind(t, "claims."+outage, "We should bind the claims of the outage.", func(c *attempt, k *v1beta1.ClaimKind) {
			require.EqualValues(c, late, *k.Status.BoundClaims)
		})
		w.boundOnce(t, outage, late)
	})
}

// served has replicas that start remember that a predecessor offered the classes of a kind.
func (w *world) served(t *testing.T, classKind string) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.ClassConfiguration}, c))
	memory := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(c.Annotations[v1beta1.MemoryAnnotation]), &memory), "We should have remembered what was served.")
	classKinds, _ := memory["classKinds"].([]any)
	memory["classKinds"] = append(classKinds, classKind)
	text := must(json.Marshal(memory))(t)
	c.Annotations[v1beta1.MemoryAnnotation] = string(text)
	require.NoError(t, w.Update(t.Context(), c))
}

// reproducible creates the same claims over and over. It returns which class each gets.
func (w *world) reproducible(t *testing.T) (all func(...client.CreateOption) map[string]string) {
	const group, claims = "same.test", 30
	var classes []string
	for i := range 10 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{}", classes...)
	all = func(o ...client.CreateOption) map[string]string {
		got := map[string]string{}
		for i := range claims {
			c := w.created(t, claim(group, fmt.Sprint("claim-", i)), o...)
			got[c.GetName()] = classOf(c)
		}
		return got
	}
	want := all(client.DryRunAll)
	for range 2 {
		assert.Equal(t, want, all(), "We should give a claim what --dry-run=server said, and one that is created again the same class.")
		require.NoError(t, w.DeleteAllOf(t.Context(), object(group, "Claim", ""), client.InNamespace("default")))
	}
	w.apply(t, class(group, "Class", "new", ""))
	w.awaitClasses(t, "classes."+group, len(classes)+1)
	moved := 0
	for name, class := range all(client.DryRunAll) {
		if class == "Class/new" {
			moved++
			continue
		}
		assert.Equal(t, want[name], class, "We should move only the claims that go to a new class.")
	}
	assert.Positive(t, moved, "We should give a new class its share.")
	return all
}
