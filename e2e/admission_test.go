package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestApplyTogether applies files that hold a class and the claim that needs it. The watch may be faster than kubectl; for half of the
// files there is none, since classbind may only list their classes, and it has to read live.
func TestApplyTogether(t *testing.T) {
	long(t)
	w := sharedWorld(t)
	w.register(t, "together.test", "{}")
	w.resources(t, "Other others.unwatched.together.test Cluster")
	w.apply(t, strings.Replace(vendor("unwatched.together.test"), "[get, list, watch]", "[list]", 1)+serving("others.unwatched.together.test", "claims.together.test"))
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
	w, r := servedWorld(t, controlplane.Options{Audit: true})
	w.register(t, "spared.test", "{claims: {skipIfSet: [{path: .spec.resourceRef}, {path: .spec.in.namespace}, {path: .spec.a-b}]}}", class("spared.test", "Class", "only", ""))
	w.apply(t, serving("classes.spared.test", "claims.spared.test", "pods", "services", "jobs.batch"))
	for _, kind := range []string{"pods", "services", "jobs.batch"} {
		w.apply(t, claimKind(kind, "{reference: {annotation: example.org/class, form: Name}}")) // Their schemas have no .spec.classRef.
		w.awaitClaims(t, kind)
	}
	configuration := func() string {
		return w.kubectl(t, "get", "mutatingwebhookconfiguration", v1beta1.LastConfiguration, "-o", "jsonpath={.metadata.resourceVersion}")
	}
	unchanged := configuration()

	for name, tc := range map[string]struct {
		reason, spec string
		calls        int
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
			ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: classbind.Namespace, Name: v1beta1.CASecret}}
			require.NoError(t, w.Patch(t.Context(), ca, client.RawPatch(types.MergePatchType, []byte(metadataPatch("annotations", fmt.Sprint("looked-at=", i))))))
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
	return must(r.Answered(t.Context(), v1beta1.BindPath+"{name}"))(t)
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
	w, r := servedWorld(t, controlplane.Options{})
	w.resources(t, "Claim claims.strict.test Namespaced", "Claim claims.lenient.test Namespaced", "Other others.strict.test Namespaced",
		"Class classes.strict.test Cluster")
	w.serves(t, vendor("strict.test")+vendor("stuck.test")+
		claimKind("claims.strict.test", "{admission: {failurePolicy: Fail}}")+claimKind("claims.lenient.test", "{admission: {failurePolicy: Ignore}}")+
		serving("classes.strict.test", "claims.strict.test", "claims.lenient.test")+class("strict.test", "Class", "only", ""))
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
`+serving("classes.stuck.test", "claims.strict.test"))
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

		w.remove(t, "classkinds.classbind.io", "classes.stuck.test")
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

// TestAnnotate has claims say why they have their class, whoever gave it.
func TestAnnotate(t *testing.T) {
	w := sharedWorld(t)
	const group = "annotate.test"
	w.register(t, group, "{choice: {annotate: Decision}, admission: {defaulting: Policy}, whenUnmatched: BindLater}")
	late := w.created(t, claim(group, "late"))
	began := time.Now().Truncate(time.Second)
	w.apply(t, class(group, "Class", "only", isDefault))
	record := func(t require.TestingT, claim *unstructured.Unstructured) (r map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(claim.GetAnnotations()[v1beta1.DecisionAnnotation]), &r))
		at := must(time.Parse(time.RFC3339, fmt.Sprint(r["time"])))(t)
		assert.WithinRange(t, at, began, time.Now(), "We should say when.")
		delete(r, "time")
		return r
	}
	want := map[string]any{"reason": "MatchingClass", "class": "Class/only", "strategy": "WeightedRandom", "candidates": 1.0}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKeyFromObject(late), late))
		require.Equal(c, want, record(c, late))
	}, "We should annotate a claim that is bound later.")
	w.awaitClasses(t, "classes."+group, 1)

	stored := w.created(t, claim(group, "now"))
	assert.Equal(t, want, record(t, stored), "We should annotate a claim that is bound when it is created.")
	unopinionated := w.created(t, manifestOf(t, unopinionated(group, "default")), client.DryRunAll)
	want["reason"] = "DefaultClass"
	assert.Equal(t, want, record(t, unopinionated), "We should not leave the default class to a policy, which cannot tell the time.")

	why := stored.GetAnnotations()
	stored.SetAnnotations(nil)
	unstructured.RemoveNestedField(stored.Object, "spec", "classRef")
	require.NoError(t, w.Update(t.Context(), stored))
	assert.Equal(t, "Class/only", classOf(stored))
	assert.Equal(t, why, stored.GetAnnotations(), "We should put back the reason with the class.")
	if inPods() {
		return // What follows needs the kubeconfig of an admin.
	}
	out, _, _ := w.classbind(t, "explain", "claims."+group+"/now", "--namespace=default", "--kubeconfig="+w.plane.Kubeconfig)
	assert.Contains(t, out, `it was bound to "Class/only" at `)
	assert.Contains(t, out, `created now, it would get "Class/only"`)
}

// TestBindWhen has claims that are not to be bound, or not yet, and claims that are to be bound although they have a reference.
func TestBindWhen(t *testing.T) {
	w, asks := sharedReplica(t)
	register := func(t *testing.T, group, spec string) {
		w.install(t, kinds(group, spec)+class(group, "Class", "only", ""))
		w.awaitClasses(t, "classes."+group, 1)
	}
	manifest := func(group, name, metadata, spec string) string {
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s%s}\nspec: {classSelector: {}%s}\n", group, name, metadata, spec)
	}
	// asked waits until the API server calls us for a claim that is to be bound, and left until we leave it alone.
	asked := func(t *testing.T, manifest string) { w.awaitBound(t, manifest, "Class/only", "") }
	left := func(t *testing.T, manifest string) { w.awaitBound(t, manifest, "", "") }
	// after a change, a claim is bound.
	after := func(t *testing.T, manifest string, change func()) {
		claim, warnings := w.warned(t, manifest)
		assert.Empty(t, warnings, "We should not warn of what is meant to be.")
		assert.Never(t, func() bool {
			return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil || classOf(claim) != ""
		}, time.Second, 100*time.Millisecond, "We should not bind it yet.")
		change()
		begin := time.Now()
		require.Eventually(t, func() bool {
			return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && classOf(claim) != ""
		}, patience, 5*time.Millisecond)
		t.Logf("Bound after %s", time.Since(begin))
		events := &eventsv1.EventList{}
		require.NoError(t, w.List(t.Context(), events, client.InNamespace("default")))
		for _, e := range events.Items {
			assert.False(t, e.Regarding.UID == claim.GetUID() && e.Reason == v1beta1.EventNoMatchingClass, "We should tell nobody to look for a class: %s", e.Note)
		}
	}

	t.Run("Delayed", func(t *testing.T) {
		const group = "delayed.test"
		register(t, group, `{claims: {when: "has(claim.metadata.annotations) && 'delayed.test/node' in claim.metadata.annotations // set by the scheduler"}, whenUnmatched: BindLater}`)
		asked(t, manifest(group, "probe", ", annotations: {delayed.test/node: a}", ""))
		before := asks("claims." + group)
		after(t, manifest(group, "waits", "", ""), func() {
			require.NoError(t, w.annotate(t, "claims.delayed.test", "waits", "delayed.test/node=a"))
		})
		assert.Zero(t, asks("claims."+group)-before, "We should not be called for a claim that is not to be bound yet.")
	})

	t.Run("Related", func(t *testing.T) {
		const group = "related.test"
		w.resources(t, "Plan plans.related.test Namespaced")
		plan := func(ready bool) string {
			return fmt.Sprintf("---\napiVersion: related.test/v1\nkind: Plan\nmetadata: {namespace: default, name: small}\nspec: {ready: %t}\n", ready)
		}
		w.apply(t, plan(true))
		register(t, group, `{claims: {when: "has(related.plan) && related.plan.spec.ready"}, classes: {related: [{name: plan, resource: plans.related.test, nameExpression: claim.spec.plan}]}, whenUnmatched: BindLater}`)
		asked(t, manifest(group, "probe", "", ", plan: small"))
		w.apply(t, plan(false))
		left(t, manifest(group, "probe", "", ", plan: small"))
		after(t, manifest(group, "waits", "", ", plan: small"), func() { w.apply(t, plan(true)) })
		after(t, manifest(group, "absent", "", ", plan: large"), func() { w.apply(t, strings.ReplaceAll(plan(true), "small", "large")) })
		w.awaitWaiting(t, "claims.related.test", 0)
	})

	t.Run("Namespace", func(t *testing.T) {
		const group = "phase.test"
		w.namespaces(t, "phases")
		label := func(phase string) { w.kubectl(t, "label", "--overwrite", "namespace", "phases", "phase="+phase) }
		label("run")
		register(t, group, `{claims: {when: "has(namespace.metadata.labels.phase) && namespace.metadata.labels.phase == 'run'"}, whenUnmatched: BindLater}`)
		in := func(name string) string {
			return strings.Replace(manifest(group, name, "", ""), "default", "phases", 1)
		}
		asked(t, in("probe"))
		label("plan")
		left(t, in("probe"))
		after(t, in("waits"), func() { label("run") })
	})

	t.Run("Fails", func(t *testing.T) {
		const group = "fails.test"
		w.resources(t, "Claim claims.fails.test Namespaced", "Class classes.fails.test Cluster")
		w.apply(t, "apiVersion: fails.test/v1\nkind: Claim\nmetadata: {namespace: default, name: old}\nspec: {}\n")
		register(t, group, `{claims: {when: "claim.spec.ready"}}`)
		asked(t, manifest(group, "probe", "", ", ready: true"))
		_, _, err := w.create(t, manifest(group, "fails", "", ""))
		refusedWith(t, err, http.StatusForbidden, "claim.spec.ready", "no such key: ready")
		require.NoError(t, w.annotate(t, "claims.fails.test", "old", "a=b"))
		w.kubectl(t, "delete", "claims.fails.test", "old")
	})

	t.Run("Refused", func(t *testing.T) {
		const group = "refused.test"
		// To the API server, a request is no map.
		register(t, group, `{claims: {when: "claim.spec.ready && request['userInfo'].username != 'nobody'"}}`)
		asked(t, manifest(group, "probe", "", ", ready: true"))
		before := asks("claims." + group)
		w.binds(t, manifest(group, "early", "", ", ready: false"), "", "")
		assert.Equal(t, 1, asks("claims."+group)-before, "We should evaluate it where the API server does not.")
		w.apply(t, claimKind("claims.refused.test", "{}"))
		asked(t, strings.Replace(manifest(group, "other", "", ""), "ready", "other", 1))
		asked(t, manifest("delayed.test", "probe", ", annotations: {delayed.test/node: a}", ""))
	})
}

// TestExplicit has claims that name a class themselves, where that is checked.
func TestExplicit(t *testing.T) {
	w := sharedWorld(t)
	const group = "explicit.test"
	w.register(t, group, "{reference: {path: .spec.classRef, explicit: Check}, classes: {fits: [{name: Size, expression: 'claim.spec.size <= class.size', message: too small}]}}",
		class(group, "Class", "large", isDefault)+"size: 10\n", class(group, "Class", "small", "")+"size: 1\n",
		class(group, "Class", "closed", "annotations: {classbind.io/cordoned: 'true'}, ")+"size: 10\n")
	of := func(name, class string) string {
		reference := ""
		if class != "" {
			reference = fmt.Sprintf(", classRef: {apiVersion: %s/v1, kind: Class, name: %s}", group, class)
		}
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: {size: 5%s}\n", group, name, reference)
	}
	w.awaitRefused(t, of("probe", "none"), "which is not there", "We should see the API server call us.")
	for class, text := range map[string]string{"none": "not there", "small": "too small", "closed": "cordoned"} {
		_, _, err := w.create(t, of("refused", class))
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", class, err)
		require.ErrorContains(t, err, fmt.Sprintf(`it names the class "Class/%s", which is %s`, class, text))
		require.ErrorContains(t, err, "classbind explain -f FILE --unbound")
	}
	w.binds(t, of("drawn", ""), "Class/large", "We should let pass what we drew ourselves.")
	claim := w.binds(t, of("named", "large"), "Class/large", "We should let pass a class that fits.")
	w.apply(t, class(group, "Class", "new", "")+"size: 10\n")
	w.binds(t, of("new", "new"), "Class/new", "We should let pass a class that is new.")

	w.apply(t, class(group, "Class", "large", "annotations: {classbind.io/cordoned: 'true'}, ")+"size: 10\n")
	w.awaitRefused(t, of("probe", "large"), "cordoned", "We should see the class cordoned.")
	claim.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, w.Update(t.Context(), claim), "We should let an update pass that does not touch the reference.")
	claim.Object["spec"].(map[string]any)["classRef"].(map[string]any)["name"] = "small"
	require.True(t, apierrors.IsForbidden(w.Update(t.Context(), claim)), "We should check a reference that changes.")

	if !inPods() { // It needs the kubeconfig of an admin.
		out, _, exit := w.classbind(t, "explain", "-f", write(t, of("asked", "small")), "--kubeconfig="+w.plane.Kubeconfig)
		assert.Equal(t, 1, exit)
		assert.Contains(t, out, `it names the class "Class/small", which is too small; it is refused, because reference.explicit is Check`)
	}
	w.apply(t, claimKind("claims."+group, "{reference: {path: .spec.classRef, explicit: Allow}}"))
	eventually(t, func(c *attempt) {
		_, _, err := w.create(t, of("allowed", "none"), client.DryRunAll)
		require.NoError(c, err)
	}, "We should check nothing where nobody says so.")
}

// TestOptional has claims that do without a class, and claims whose author gives a part of the reference.
func TestOptional(t *testing.T) {
	w := sharedWorld(t)
	t.Run("DefaultIfAny", func(t *testing.T) {
		const group = "optional.test"
		w.register(t, group, "{selector: {whenAbsent: DefaultIfAny}, whenUnmatched: Deny}", class(group, "Class", "gold", "labels: {tier: gold}, "))
		stored, warned, err := w.create(t, manifestOf(t, unopinionated(group, "plain")))
		require.NoError(t, err, "We should let a claim pass that asks for nothing.")
		assert.Empty(t, classOf(stored))
		assert.Empty(t, warned, "We should tell nobody that a claim lacks what it does without.")
		selecting := unopinionated(group, "selecting")
		selecting.SetAnnotations(map[string]string{"classbind.io/class-selector": "tier=iron"})
		_, _, err = w.create(t, manifestOf(t, selecting))
		assert.True(t, apierrors.IsForbidden(err), "We should refuse a claim that asks for a class that is not there: %v", err)
	})

	t.Run("Company", func(t *testing.T) {
		const group = "company.test"
		w.install(t, fmt.Sprintf(schemaOfClaims, group, "imageCatalogRef: {type: object, required: [kind, name, major], properties: "+
			"{apiGroup: {type: string}, kind: {type: string}, name: {type: string}, major: {type: integer}}}")+kinds(group, "{reference: {path: .spec.imageCatalogRef, form: TypedLocalObjectReference, whenEmpty: Bind, whenAbsent: LeaveAlone}}")+class(group, "Class", "usual", isDefault))
		w.awaitClasses(t, "classes."+group, 1)
		of := func(name, spec string) string {
			return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: %s\n", group, name, spec)
		}
		var stored *unstructured.Unstructured
		eventually(t, func(c *attempt) {
			var err error
			stored, _, err = w.create(t, of("begun", "{imageCatalogRef: {major: 16}}"), client.DryRunAll)
			require.NoError(c, err)
		}, "We should see the API server call us.")
		assert.Equal(t, map[string]any{"imageCatalogRef": map[string]any{"apiGroup": group, "kind": "Class", "name": "usual", "major": int64(16)}}, stored.Object["spec"],
			"We should add to what the author gave, and keep that.")
		stored, warned := w.warned(t, of("plain", "{}"))
		assert.Empty(t, stored.Object["spec"], "We should leave alone a claim without a catalog.")
		assert.Empty(t, warned)
		w.refuses(t, of("half", "{imageCatalogRef: {}}"), "spec.imageCatalogRef.major: Required value", "We should leave to the schema what an author forgot.")
	})

	t.Run("Precedence", func(t *testing.T) {
		const group = "precedence.test"
		w.resources(t, "Runtime runtimes."+group+" Namespaced", "ClusterRuntime clusterruntimes."+group+" Cluster")
		w.serves(t, vendor(group)+claimKind("claims."+group, "{reference: {path: .spec.runtime, form: Name}, classes: {precedence: Listed, kinds: [{name: runtimes."+group+"}, {name: clusterruntimes."+group+"}]}}")+
			classKind("runtimes."+group, "{}")+classKind("clusterruntimes."+group, "{}")+
			class(group, "Runtime", "same", "namespace: default, labels: {of: namespace}, ")+
			class(group, "ClusterRuntime", "same", "labels: {of: cluster}, ")+class(group, "ClusterRuntime", "other", "labels: {of: cluster}, "))
		for i := range 20 {
			for selector, want := range map[string]string{"of=cluster": "other", "of=namespace": "same"} {
				claim := unopinionated(group, fmt.Sprint("claim-", i))
				claim.SetAnnotations(map[string]string{"classbind.io/class-selector": selector})
				stored := w.created(t, manifestOf(t, claim), client.DryRunAll)
				got, _, _ := unstructured.NestedString(stored.Object, "spec", "runtime")
				require.Equal(t, want, got, "We should give no class whose name means another.")
			}
		}
	})
}

// TestOrder has webhooks of others beside ours, which come before or after it.
func TestOrder(t *testing.T) {
	w := sharedWorld(t)
	if w.plane == nil {
		t.Skip("The API server of a cluster does not reach the stand-ins, which are on this host.")
	}

	t.Run("Last", func(t *testing.T) {
		t.Parallel()
		const group, kind = "last.test", "claims.last.test"
		w.register(t, group, "{}", class(group, "Class", "public", "labels: {exposure: public}, "+isDefault), class(group, "Class", "internal", "labels: {exposure: internal}, "))
		w.standIn(t, "kyverno-resource-mutating-webhook-cfg", kind, func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse {
			if _, has, _ := unstructured.NestedMap(claim.Object, "spec"); !has {
				return patched("[]") // It is the probe.
			}
			return patched(`[{"op": "add", "path": "/spec/classSelector", "value": {"matchLabels": {"exposure": "internal"}}}]`)
		})
		bound := w.created(t, "apiVersion: last.test/v1\nkind: Claim\nmetadata: {namespace: default, name: exposed}\nspec: {size: 1}\n")
		exposure, _, _ := unstructured.NestedString(bound.Object, "spec", "classSelector", "matchLabels", "exposure")
		require.Equal(t, "internal", exposure, "We should see the other webhook add a selector.")
		assert.Equal(t, "Class/internal", classOf(bound), "We should heed what other webhooks want of a claim.")
	})

	t.Run("First", func(t *testing.T) {
		t.Parallel()
		const group, kind = "first.test", "clusters.first.test"
		spec := func(order string) string {
			return claimKind(kind, "{reference: {path: .spec.topology.classRef, form: LocalObjectReference}, admission: {order: "+order+"}}")
		}
		w.resources(t, "Cluster "+kind+" Namespaced")
		w.serves(t, vendor(group)+spec("Last")+serving("classes.first.test", kind)+
			class(group, "Class", "quick-start", "annotations: {"+defaultMark+`: "true"}, `))
		w.standIn(t, "capi-mutating-webhook-configuration", kind, clusterAPI)
		cluster := func(name string) (*unstructured.Unstructured, error) {
			created, _, err := w.create(t, fmt.Sprintf("apiVersion: first.test/v1\nkind: Cluster\nmetadata: {namespace: default, name: %s}\nspec: {topology: {version: 1.36.3}}\n", name))
			return created, err
		}
		_, err := cluster("last")
		require.True(t, apierrors.IsInvalid(err), "We should see the webhook of Cluster API refuse a cluster without a class: %v", err)
		require.ErrorContains(t, err, "classRef.name cannot be empty")

		w.apply(t, spec("First"))
		w.awaitOrder(t, kind, v1beta1.OrderFirst)
		eventually(t, func(c *attempt) {
			bound, err := cluster("first")
			require.NoError(c, client.IgnoreAlreadyExists(err))
			name, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "classRef", "name")
			assert.Equal(t, "quick-start", name, "We should be asked first.")
			version, _, _ := unstructured.NestedString(bound.Object, "spec", "topology", "version")
			assert.Equal(t, "v1.36.3", version, "We should see Cluster API's webhook called after us.")
		})
	})

	t.Run("Changes", func(t *testing.T) {
		t.Parallel()
		const group, kind = "reorder.test", "claims.reorder.test"
		spec := func(order v1beta1.Order) string { return claimKind(kind, "{admission: {order: "+string(order)+"}}") }
		w.register(t, group, "{admission: {order: Last}}", class(group, "Class", "only", ""))
		changed, stopped := make(chan struct{}), make(chan int)
		template := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(claim(group, "any")), &template.Object))
		go func() {
			created := 0
			defer func() { stopped <- created }()
			for ; ; created++ {
				bound := template.DeepCopy()
				err := w.Create(t.Context(), bound, client.DryRunAll)
				if !assert.NoError(t, err) || !assert.Equal(t, "Class/only", classOf(bound), "We should bind claims while the order changes.") {
					return
				}
				select {
				case <-changed:
					return
				default:
				}
			}
		}()
		for i := range 6 {
			order := []v1beta1.Order{v1beta1.OrderFirst, v1beta1.OrderLast}[i%2]
			w.apply(t, spec(order))
			w.awaitOrder(t, kind, order)
		}
		close(changed)
		t.Logf("%d claims were created meanwhile.", <-stopped)
	})
}

// awaitOrder waits until the entry of a claim kind is in the configuration of its order, and no more in the other.
func (w *world) awaitOrder(t *testing.T, claimKind string, order v1beta1.Order) {
	eventually(t, func(c *attempt) {
		for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, configuration))
			isHere := slices.ContainsFunc(configuration.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
				return e.Name == claimKind+v1beta1.BindSuffix
			})
			require.Equal(c, name == order.Configuration(), isHere, "%s", name)
		}
	}, "We should have one entry, in the configuration of its order.")
}

type reviewer func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// ServeHTTP is called by the API server.
func (answer reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := admissionv1.AdmissionReview{}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &review) != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = answer(r, review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// standIn stands in for the mutating webhook of another program, which the API server calls for new and changed objects of a resource,
// <plural>.<group>, when it is the turn of the configuration with the name. It is gone when the test ends.
func (w *world) standIn(t *testing.T, configuration, resource string, answer func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse) {
	var asked atomic.Bool
	plural, group, _ := strings.Cut(resource, ".")
	settings := fmt.Sprintf("rules: [{apiGroups: [%s], apiVersions: ['*'], resources: [%s], operations: [CREATE, UPDATE]}]", group, plural)
	w.askOfWrites(t, "MutatingWebhookConfiguration", configuration, settings, func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		asked.Store(true)
		claim := &unstructured.Unstructured{}
		if err := json.Unmarshal(r.Object.Raw, &claim.Object); err != nil {
			return refused(apierrors.NewBadRequest(err.Error()))
		}
		return answer(claim)
	})
	mapping := must(w.RESTMapper().KindFor(schema.ParseGroupResource(resource).WithVersion("")))(t)
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(mapping)
	probe.SetNamespace("default")
	probe.SetGenerateName("probe-")
	eventually(t, func(c *attempt) {
		_ = w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) // It may be refused, afterwards.
		require.True(c, asked.Load())
	}, "We should see the API server call the stand-in.")
}

// askOfWrites has the API server ask somebody else's webhook, until the test ends. The settings of the webhook are YAML.
func (w *world) askOfWrites(t *testing.T, kind, name, settings string, answer reviewer) {
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	w.apply(t, fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: %[5]s
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.standin.test
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: %[2]q, caBundle: %[3]s}
  %[4]s
`, name, server.URL, base64.StdEncoding.EncodeToString(caOf(server)), settings, kind))
	t.Cleanup(func() {
		_, _, err := w.Kubectl(context.Background(), nil, "delete", kind, name)
		assert.NoError(t, err)
	})
}

func caOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func refused(why *apierrors.StatusError) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: new(why.Status())}
}

func patched(patch string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch), Patch: []byte(patch)}
}

// clusterAPI answers as the webhook of Cluster API for Clusters does (core/webhooks/admission/cluster.go): it adds the v of the version of
// a topology, and refuses a topology without a class. Its configuration is called capi-mutating-webhook-configuration.
func clusterAPI(cluster *unstructured.Unstructured) *admissionv1.AdmissionResponse {
	topology, _, _ := unstructured.NestedMap(cluster.Object, "spec", "topology")
	if len(topology) == 0 {
		return patched("[]")
	}
	if name, _, _ := unstructured.NestedString(topology, "classRef", "name"); name == "" {
		at := field.NewPath("spec", "topology", "classRef", "name")
		return refused(apierrors.NewInvalid(cluster.GroupVersionKind().GroupKind(), cluster.GetName(),
			field.ErrorList{field.Required(at, "classRef.name cannot be empty")}))
	}
	version, _, _ := unstructured.NestedString(topology, "version")
	if strings.HasPrefix(version, "v") {
		return patched("[]")
	}
	return patched(fmt.Sprintf(`[{"op": "add", "path": "/spec/topology/version", "value": %q}]`, "v"+version))
}
