package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestApplyTogether creates claims right after the class that they need. One that waited as long as claims do may have none: the machine is
// busy, and the replica sees the class too late. Another pair follows then.
func TestApplyTogether(t *testing.T) {
	const group = "together.test"
	w := sharedWorld(t)
	w.register(t, group, "{}")
	for i := range 20 {
		try := 0
		eventually(t, func(a *attempt) {
			try++
			name := fmt.Sprintf("%d-%d", i, try)
			class, claim := object(group, "Class", name), selecting(group, "Claim", "default", name, map[string]any{"for": name})
			class.SetLabels(map[string]string{"for": name})
			require.NoError(a, w.Create(t.Context(), class))
			began := time.Now()
			require.NoError(a, w.Create(t.Context(), claim))
			assert.True(t, classOf(claim) != "" || time.Since(began) >= v1beta1.MaxClassWait, "We should wait for the class.")
			require.Equal(a, "Class/"+name, classOf(claim))
		}, "We should bind a claim to the class before it.")
	}
}

// TestPairs creates 2,000 pairs of a class and the claim for it, the two by different API servers, beside loops that keep the CPUs busy.
// Each claim is bound whose class reached the replica, by the times in its log, while it waited.
func TestPairs(t *testing.T) {
	long(t)
	const group, pairs = "pairs.test", 2000
	w := newWorld(t, controlplane.Options{APIServers: 2})
	balancer := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = balancer.Close() })
	kubeconfigs := must(w.plane.UserKubeconfigs(classbind.User, classbind.Groups...))(t)
	var replicas []*replica
	for i := range 3 {
		w.kubeconfig = kubeconfigs[i%2]
		r := w.serve(t, "--webhook-url="+balancer.URL, "--log-level=debug")
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
		replicas = append(replicas, r)
	}
	w.register(t, group, "{}", class(group, "Class", "other", ""))
	w.awaitBound(t, claim(group, "first"), "Class/other", "We should begin.")
	var clients []client.Client
	for _, config := range w.plane.Configs {
		clients = append(clients, must(newClient(config))(t))
	}
	for range 4 {
		busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		require.NoError(t, busy.Start())
		defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
	}
	concurrently(t, pairs, func(i int) error {
		c := object(group, "Class", fmt.Sprint("class-", i))
		c.SetLabels(map[string]string{"for": fmt.Sprint(i)})
		if err := clients[i%2].Create(t.Context(), c); err != nil {
			return err
		}
		return clients[1-i%2].Create(t.Context(), selecting(group, "Claim", "default", fmt.Sprint("claim-", i), map[string]any{"for": fmt.Sprint(i)}))
	})
	waited, late := 0, []time.Duration(nil) // How long after its answer the class of an unbound claim came.
	for _, r := range replicas {
		metrics := string(must(r.Metrics(t.Context()))(t))
		for _, found := range regexp.MustCompile(`classbind_waits_total{claim_kind="claims.pairs.test",outcome="found"} (\d+)`).FindAllStringSubmatch(metrics, -1) {
			waited += must(strconv.Atoi(found[1]))(t)
		}
		type answered struct {
			class string
			at    time.Time
		}
		known, unbound := map[string]time.Time{}, []answered(nil)
		for text := range strings.Lines(r.log.String()) {
			var line struct {
				Time               time.Time
				Msg, Name, Outcome string
			}
			if json.Unmarshal([]byte(text), &line) != nil {
				continue
			}
			switch of := strings.Replace(line.Name, "claim-", "class-", 1); {
			case line.Msg == "A class changed":
				known[line.Name] = line.Time
			case line.Msg == "Reviewed a claim" && line.Outcome != "bound" && of != line.Name:
				unbound = append(unbound, answered{of, line.Time})
			}
		}
		for _, a := range unbound {
			if assert.Contains(t, known, a.class) {
				late = append(late, known[a.class].Sub(a.at))
			}
		}
	}
	bound := 0
	for _, claim := range w.claimsOf(t, group) {
		if classOf(&claim) == strings.Replace(claim.GetName(), "claim-", "Class/class-", 1) {
			bound++
		}
	}
	t.Logf("%d pairs: %d claims bound, of which %d waited, and %d not bound, whose classes came so long after the answers: %v", pairs, bound, waited, len(
		late,
	), late)
	assert.Equal(t, pairs, bound+len(late), "We should bind no claim to another's class.")
	for _, after := range late {
		assert.Greater(t, after, -v1beta1.MaxClassWait/2, "We should bind a claim whose class came while it waited.") // Its log line comes later.
	}
}

// TestSpared counts at the server which claims the API server calls it for.
func TestSpared(t *testing.T) {
	t.Parallel()
	w, r := servedWorld(t, controlplane.Options{Audit: true})
	w.register(t, "spared.test", "{claims: {skipIfSet: [{path: .spec.resourceRef}, {path: .spec.in.namespace}, {path: .spec.a-b}]}}", class(
		"spared.test", "Class", "only", "",
	))
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
	const outage, late = "outage.test", 20
	w.register(t, outage, "{whenUnmatched: BindLater, admission: {failurePolicy: Ignore}}", class(outage, "Class", "gold", "labels: {tier: gold}, "))
	all := w.reproducible(t)
	same := all()
	r.Kill()

	// others is what no ClaimKind names, and secrets what classbind itself needs.
	others := func(t *testing.T, name string) {
		for what, manifest := range map[string]string{
			"a kind that is not registered": fmt.Sprintf("apiVersion: strict.test/v1\nkind: Other\nmetadata: {namespace: default, name: %s}", name),
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
		w.apply(t, claimKind("claims.broken.test", "{claims: {when: 'claim ++'}}")) // We should stop no registration, either.
		policies(t, "down", "connection refused")
		metrics := w.kubectl(t, "get", "--raw", "/metrics")
		for _, asked := range []string{ // They are what the alerts ask for.
			`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="claims.strict.test.bind.classbind.io"`,
			`apiserver_admission_webhook_fail_open_count{name="claims.lenient.test.bind.classbind.io"`,
		} {
			assert.Contains(t, metrics, asked)
		}
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
spec: {group: stuck.test, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true,
  service: {namespace: default, name: nobody}}
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
		assert.Equal(t, same, all(), "We should give a claim the same class after a restart.")
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
func (w *world) reproducible(t *testing.T) (all func() map[string]string) {
	const group = "same.test"
	var classes []string
	for i := range 10 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{}", classes...)
	all = func() map[string]string {
		got := map[string]string{}
		for i := range 10 {
			c := w.created(t, claim(group, fmt.Sprint("claim-", i)), client.DryRunAll)
			got[c.GetName()] = classOf(c)
		}
		return got
	}
	want := all()
	for name, class := range want {
		w.binds(t, claim(group, name), class, "We should give a claim what --dry-run=server said.")
	}
	require.NoError(t, w.DeleteAllOf(t.Context(), object(group, "Claim", ""), client.InNamespace("default")))
	return all
}

// TestAnnotate has claims say why they have their class, whatever gave it.
func TestAnnotate(t *testing.T) {
	w := sharedWorld(t)
	const group = "annotate.test"
	w.register(t, group, "{choice: {annotate: Decision}, admission: {defaulting: Policy}, whenUnmatched: BindLater}")
	late := w.created(t, claim(group, "late"))
	w.apply(t, class(group, "Class", "only", isDefault))
	record := func(t require.TestingT, claim *unstructured.Unstructured) (r map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(claim.GetAnnotations()[v1beta1.DecisionAnnotation]), &r))
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
	assert.Equal(t, want, record(t, unopinionated), "We should not leave the default class to a policy, which annotates nothing.")

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
	assert.Contains(t, out, `it was bound to "Class/only": `)
	assert.Contains(t, out, "Claim default/now: has Class/only, and would get the same today\n  Because: ", "We should say which class it has, and why.")
}

// TestBindWhen has claims that are not to be bound yet.
func TestBindWhen(t *testing.T) {
	w, asks := sharedReplica(t)
	w.namespaces(t, "phases")
	for group, tc := range map[string]struct {
		when, namespace, resource, name string
		calls                           int // The API server knows no namespace there.
	}{
		"delayed.test": {
			"has(claim.metadata.annotations) && claim.metadata.annotations.exists(namespaceObject, namespaceObject == 'phase') // a variable by its name",
			"default", "claims.delayed.test", "waits", 0,
		},
		"phase.test": {"has(namespaceObject.metadata.annotations) && 'phase' in namespaceObject.metadata.annotations", "phases", "namespaces", "phases", 1},
	} {
		t.Run(group, func(t *testing.T) {
			w.install(t, kinds(group, fmt.Sprintf(`{claims: {when: "%s"}, whenUnmatched: BindLater}`, tc.when))+class(group, "Class", "only", ""))
			w.awaitClasses(t, "classes."+group, 1)
			w.awaitKind(t, "claims."+group, "", func(c *attempt, k *v1beta1.ClaimKind) {
				require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionReady), "%v", k.Status.Conditions)
			})
			malformed := claimIn(group, tc.namespace, "malformed, annotations: {phase: run, classbind.io/class-selector: '='}")
			w.awaitRefused(t, malformed, "is invalid", "We should see the API server call the webhook.")
			before := asks("claims." + group)
			claim, warnings := w.warned(t, claimIn(group, tc.namespace, "waits"))
			assert.Empty(t, warnings, "We should not warn of what is meant to be.")
			assert.Never(t, func() bool {
				return w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil || classOf(claim) != ""
			}, time.Second, 100*time.Millisecond, "We should not bind it yet.")
			assert.Equal(t, tc.calls, asks("claims."+group)-before, "We should not be called for a claim that says itself that it is not to be bound yet.")
			require.NoError(t, w.annotate(t, tc.resource, tc.name, "phase=run"))
			w.awaitStored(t, claim, "Class/only", "We should bind it then.")
			w.awaitBound(
				t, strings.Replace(claimIn(group, tc.namespace, "now"), "name: now", "name: now, annotations: {phase: run}", 1), "Class/only",
				"We should bind the next at once.",
			)
			events := &eventsv1.EventList{}
			require.NoError(t, w.List(t.Context(), events, client.InNamespace(tc.namespace)))
			for _, e := range events.Items {
				assert.False(t, e.Regarding.UID == claim.GetUID() &&
					e.Reason == v1beta1.EventNoMatchingClass, "We should not ask an author to look for a class: %s", e.Note)
			}
		})
	}
}

// TestExplicit has claims that name a class themselves, where that is checked.
func TestExplicit(t *testing.T) {
	w := sharedWorld(t)
	const group = "explicit.test"
	w.register(t, group, "{reference: {path: .spec.classRef, explicit: Check}, classes: {fits: [{name: Size, expression: 'claim.spec.size <= "+
		"class.size', message: too small}]}}",
		class(group, "Class", "large", isDefault)+"size: 10\n", class(group, "Class", "small", "")+"size: 1\n",
		class(group, "Class", "closed", "annotations: {classbind.io/cordoned: 'true'}, ")+"size: 10\n")
	of := func(name, class string) string {
		if class != "" {
			class = fmt.Sprintf(", classRef: {apiVersion: %s/v1, kind: Class, name: %s}", group, class)
		}
		return claimWith(group, name, "{size: 5"+class+"}")
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
}

// TestCompany has claims whose author gives a part of the reference.
func TestCompany(t *testing.T) {
	w := sharedWorld(t)
	const group = "company.test"
	w.install(t, fmt.Sprintf(schemaOfClaims, group, "imageCatalogRef: {type: object, required: [kind, name, major], properties: "+
		"{apiGroup: {type: string}, kind: {type: string}, name: {type: string}, major: {type: integer}}}")+
		kinds(group, "{reference: {path: .spec.imageCatalogRef, form: TypedLocalObjectReference, whenAbsent: LeaveAlone}}")+class(group, "Class", "usual", isDefault))
	w.awaitClasses(t, "classes."+group, 1)
	w.awaitReference(t, documents(t, claimWith(group, "begun", "{imageCatalogRef: {major: 16}}"))[0], []string{"spec"},
		map[string]any{"imageCatalogRef": map[string]any{"apiGroup": group, "kind": "Class", "name": "usual", "major": int64(16)}})
	stored, warned := w.warned(t, claimWith(group, "plain", "{}"))
	assert.Empty(t, stored.Object["spec"], "We should leave alone a claim without a catalog.")
	assert.Empty(t, warned)
	w.refuses(
		t, claimWith(group, "half", "{imageCatalogRef: {}}"), "spec.imageCatalogRef.major: Required value",
		"We should leave to the schema what an author forgot.",
	)
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
		w.register(t, group, "{}", class(group, "Class", "public", "labels: {exposure: public}, "+isDefault), class(
			group, "Class", "internal", "labels: {exposure: internal}, ",
		))
		w.standIn(t, "kyverno-resource-mutating-webhook-cfg", kind, func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse {
			if _, has, _ := unstructured.NestedMap(claim.Object, "spec"); !has {
				return patched("[]") // It is the probe.
			}
			return patched(`[{"op": "add", "path": "/spec/classSelector", "value": {"matchLabels": {"exposure": "internal"}}}]`)
		})
		bound := w.created(t, "apiVersion: last.test/v1\nkind: Claim\nmetadata: {namespace: default, name: exposed}\nspec: {size: 1}\n")
		require.Equal(t, "internal", at(bound, "spec", "classSelector", "matchLabels", "exposure"), "We should see the other webhook add a selector.")
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
			created, _, err := w.create(t, fmt.Sprintf(
				"apiVersion: first.test/v1\nkind: Cluster\nmetadata: {namespace: default, name: %s}\nspec: {topology: {version: 1.36.3}}\n", name,
			))
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
			assert.Equal(t, "quick-start", at(bound, "spec", "topology", "classRef", "name"), "We should be asked first.")
			assert.Equal(t, "v1.36.3", at(bound, "spec", "topology", "version"), "We should see Cluster API's webhook called after us.")
		})
	})
}

// awaitOrder waits until the entry of a claim kind is in the configuration of its order, and no longer in the other.
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

// standIn stands in for the mutating webhook of another program, which the API server calls for new and changed objects of a resource,
// <plural>.<group>, when it is the turn of the configuration with the name. It is gone when the test ends.
func (w *world) standIn(t *testing.T, configuration, resource string, answer func(claim *unstructured.Unstructured) *admissionv1.AdmissionResponse) {
	var asked atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review, claim := admissionv1.AdmissionReview{}, &unstructured.Unstructured{}
		if json.NewDecoder(r.Body).Decode(&review) != nil || review.Request == nil || json.Unmarshal(review.Request.Object.Raw, &claim.Object) != nil {
			http.Error(rw, "no review", http.StatusBadRequest)
			return
		}
		asked.Store(true)
		review.Response = answer(claim)
		review.Response.UID = review.Request.UID
		review.Request = nil
		_ = json.NewEncoder(rw).Encode(review)
	}))
	t.Cleanup(server.Close)
	plural, group, _ := strings.Cut(resource, ".")
	w.apply(t, fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.standin.test
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: %[2]q, caBundle: %[3]s}
  rules: [{apiGroups: [%[4]s], apiVersions: ['*'], resources: [%[5]s], operations: [CREATE, UPDATE]}]
`, configuration, server.URL, base64.StdEncoding.EncodeToString(caOf(server)), group, plural))
	t.Cleanup(func() {
		_, _, err := w.Kubectl(context.Background(), nil, "delete", "mutatingwebhookconfiguration", configuration)
		assert.NoError(t, err)
	})
	probe := w.named(t, resource, "")
	probe.SetGenerateName("probe-")
	eventually(t, func(c *attempt) {
		_ = w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) // It may be refused, afterwards.
		require.True(c, asked.Load())
	}, "We should see the API server call the stand-in.")
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
