package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// boundByPolicy counts the claims of a kind to which an API server itself gave the default
// class since it started. Those whose conditions are false do not count.
func boundByPolicy(ctx context.Context, server *rest.Config, claimKind string) (int, error) {
	d, err := discovery.NewDiscoveryClientForConfig(server)
	if err != nil {
		return 0, err
	}
	metrics, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("cannot read the metrics of the API server: %w", err)
	}
	return sumOf(metrics, "apiserver_mutating_admission_policy_check_total",
		map[string]string{"policy": claimKind + v1beta1.PolicySuffix, "error_type": "no_error"})
}

// boundByPolicy counts them in a world with one API server.
func (w *world) boundByPolicy(t require.TestingT, claimKind string) int {
	return must(boundByPolicy(context.Background(), w.config, claimKind))(t)
}

// awaitPolicy waits until the API server itself gives the default class to a claim without an
// opinion: it knows of a new policy up to a second later than of the condition.
func (w *world) awaitPolicy(t *testing.T, claimKind, unopinionated string) {
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claimKind, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "")
	eventually(t, func(c *attempt) {
		before := w.boundByPolicy(c, claimKind)
		_, _, err := w.create(t, unopinionated, client.DryRunAll)
		require.NoError(c, err)
		require.Greater(c, w.boundByPolicy(c, claimKind), before)
	}, "We should see the API server give the default class itself.")
}

// policyKinds are of claims whose default class, Class/first, the API server gives itself.
func policyKinds(t *testing.T, w *world, group string) {
	claims, classes := "claims."+group, "classes."+group
	w.register(t, group, "{admission: {defaulting: Policy}}")
	w.awaitGuard(t, group, "Class", classes)
	w.apply(t, class(group, "Class", "first", isDefault)+class(group, "Class", "second", "labels: {tier: gold}, "))
	w.awaitClasses(t, classes, 2)
	w.awaitPolicy(t, claims, manifestOf(t, unopinionated(group, "probe")))
}

// TestPolicyWhileDown has claims without a selector bound while there is no classbind, and never to a class that is no longer default.
func TestPolicyWhileDown(t *testing.T) {
	t.Parallel()
	const group, claims = "down.test", 100
	w, r := servedWorld(t, controlplane.Options{})
	policyKinds(t, w, group)
	require.NoError(t, r.Stop())

	concurrently(t, claims, func(i int) error {
		claim := unopinionated(group, fmt.Sprint("claim-", i))
		if err := w.Create(t.Context(), claim); err != nil {
			return err
		}
		if class := classOf(claim); class != "Class/first" {
			return fmt.Errorf("%s is bound to %q", claim.GetName(), class)
		}
		return nil
	})
	// refused is what only classbind can bind.
	refused := func(claim *unstructured.Unstructured) {
		refusedWith(t, w.Create(t.Context(), claim), http.StatusInternalServerError, "failed calling webhook")
	}
	refused(selecting(group, "Claim", "default", "selecting", map[string]any{"tier": "gold"}))

	require.NoError(t, w.annotate(t, "classes."+group, "first", defaultMark+"-"))
	eventually(t, func(c *attempt) { // TestPolicyRace judges how soon.
		require.Error(c, w.Create(t.Context(), unopinionated(group, "moved"), client.DryRunAll))
	}, "We should see the API server know that the class is default no more.")
	for i := range 20 {
		refused(unopinionated(group, fmt.Sprint("without-", i)))
	}
	// No webhook is there to be asked whether a class may become default.
	require.NoError(t, w.patch(t, "validatingwebhookconfigurations.admissionregistration.k8s.io", v1beta1.ClassConfiguration, `{"webhooks":[]}`))
	eventually(t, func(c *attempt) { require.NoError(c, w.annotate(t, "classes."+group, "second", defaultMark+"=true")) })
	for i := range 20 {
		refused(unopinionated(group, fmt.Sprint("moved-", i)))
	}
	assert.Len(t, w.claimsOf(t, group), claims)

	w.serve(t)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "Class/second")
	w.awaitPolicy(t, "claims."+group, manifestOf(t, unopinionated(group, "probe")))
	claim := unopinionated(group, "follows")
	before := w.boundByPolicy(t, "claims."+group)
	require.NoError(t, w.Create(t.Context(), claim))
	assert.Equal(t, "Class/second", classOf(claim), "We should have the policy follow the default.")
	assert.Equal(t, 1, w.boundByPolicy(t, "claims."+group)-before)
}

// TestPolicyLife has the leader keep a policy as long as it is right.
func TestPolicyLife(t *testing.T) {
	needsPolicies(t)
	notInPods(t, "It waits for what the one replica does.")
	const group, claims = "life.test", "claims.life.test"
	w := sharedWorld(t)
	policyKinds(t, w, group)
	name := client.ObjectKey{Name: claims + v1beta1.PolicySuffix}
	stored := func(c require.TestingT) (p admissionregistrationv1.MutatingAdmissionPolicy, b admissionregistrationv1.MutatingAdmissionPolicyBinding) {
		require.NoError(c, w.Get(t.Context(), name, &p))
		require.NoError(c, w.Get(t.Context(), name, &b))
		return p, b
	}
	policy, binding := stored(t)
	edited := policy.DeepCopy()
	edited.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
	edited.Spec.MatchConditions[0].Expression = "false"
	require.NoError(t, w.Update(t.Context(), edited))
	require.NoError(t, w.Delete(t.Context(), binding.DeepCopy()))
	eventually(t, func(c *attempt) {
		p, b := stored(c)
		require.Equal(c, policy.Spec, p.Spec)
		require.Equal(c, binding.Spec, b.Spec)
	}, "We should mend what somebody else changes.")

	w.apply(t, claimKind(claims, "{admission: {defaulting: Policy, order: First}}"))
	eventually(t, func(c *attempt) {
		p, _ := stored(c)
		require.Equal(c, v1beta1.FirstConfiguration, p.OwnerReferences[0].Name)
	}, "We should have it go with the configuration of its order.")

	require.NoError(t, w.annotate(t, "classes."+group, "first", defaultMark+"-"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "no class is marked default")
	eventually(t, func(c *attempt) {
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &policy)))
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &binding)))
	}, "We should remove the policy.")
}

// TestPolicyNotServed has API servers that do not know policies, or ignore them. There,
// classbind gives the default class as to a kind with the defaulting Webhook.
func TestPolicyNotServed(t *testing.T) {
	long(t)
	t.Parallel()
	const resources = "admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false"
	var notServed map[string]string // An older API server knows neither.
	if policiesServed(t) {
		notServed = map[string]string{"runtime-config": resources, "feature-gates": "MutatingAdmissionPolicy=false"}
	}
	for name, tc := range map[string]struct {
		flags  map[string]string
		status metav1.ConditionStatus
		text   string
	}{
		"NotServed": {flags: notServed, status: metav1.ConditionFalse, text: "does not serve v1 of MutatingAdmissionPolicy"},
		"NotInForce": {
			flags:  map[string]string{"disable-admission-plugins": "ServiceAccount,MutatingAdmissionPolicy"},
			status: metav1.ConditionTrue,
			text:   "Class/usual",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.status == metav1.ConditionTrue {
				needsPolicies(t)
			}
			const group = "served.test"
			w, r := servedWorld(t, controlplane.Options{APIServerFlags: tc.flags})
			w.register(t, group, "{admission: {defaulting: Policy}}", class(group, "Class", "usual", isDefault))
			w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionDefaultedByPolicy, tc.status, tc.text)
			before := calls(t, r)
			claim := unopinionated(group, "claim")
			require.NoError(t, w.Create(t.Context(), claim))
			assert.Equal(t, "Class/usual", classOf(claim), "We should give the default class.")
			assert.Equal(t, 1, calls(t, r)-before)
			assert.Never(t, func() bool {
				return strings.Count(r.log.String(), "olicy") > 5 || strings.Contains(r.log.String(), `"ERROR"`)
			}, 5*time.Second, time.Second, "We should not complain again and again.")
		})
	}
}

// TestPoliciesNotPermitted installs classbind without the component policies. A registration that needs it says so, and all others work.
// Once it is there, no restart is needed.
func TestPoliciesNotPermitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{Audit: true})
	component := filepath.Join(w.deploy, "components", "policies")
	w.kubectl(t, "delete", "-k", component)
	begin := time.Now()
	w.serve(t)
	const group, claims, other = "permitted.test", "claims.permitted.test", "others.permitted.test"
	w.resources(t, "Other others."+group+" Namespaced")
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", class(group, "Class", "gold", isDefault))
	w.apply(t, claimKind(other, "{}")+serving("classes."+group, claims, other))
	const cause = ` is forbidden: User "system:serviceaccount:classbind-system:classbind" cannot list resource`
	const wayOut = "install the component policies of this release (kubectl apply -k deploy/components/policies)"
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionFalse, cause)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionFalse, wayOut)
	w.awaitBound(t, "apiVersion: permitted.test/v1\nkind: Other\nmetadata: {namespace: default, name: other}\n", "Class/gold",
		"We should bind all other claims.")
	table, _, exit := w.classbind(t, "status", "--kubeconfig="+w.plane.Kubeconfig)
	assert.Equal(t, 1, exit, "We should find it.")
	assert.Contains(t, table, wayOut)
	eventually(t, func(c *attempt) { // Without an answer in time, there is no warning.
		_, warnings, err := w.create(t, claimKind("claims.warned.test", "{classes: {use: {subject: Namespace}}}"), client.DryRunAll)
		require.NoError(c, err)
		require.Contains(c, strings.Join(warnings, "\n"), wayOut)
	}, "We should warn when it is applied.")

	refused := 0
	for _, e := range w.audited(t) {
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden && strings.Contains(e.RequestURI, "admissionpolic") {
			refused++
		}
	}
	require.Positive(t, refused)
	assert.LessOrEqual(t, refused, 10+int(time.Since(begin)/time.Second), "We should not try again and again.")
	w.kubectl(t, "apply", "-k", component)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	awaitWrites(t, w, naming(group, "default", "named", "apiVersion=permitted.test/v1 kind=Class name=gold"), "may not use the class",
		"We should see the API server check it.")
	w.awaitStatus(t, "We should find nothing any more.", "")
}

const formsGroup = "policyforms.test"

// policyForm is a kind of claims and one of classes, and claims with and without an opinion.
type policyForm struct {
	reason string
	// claims are "Kind plural.group scope", and spec is that of their ClaimKind, without the defaulting.
	claims, spec string
	// classes are "Kind plural.group scope". The default one, usual, has this metadata, without its name, and these fields.
	classes, metadata, fields string
	// bound are the claims, without their names, that the API server binds itself. It leaves the others to classbind.
	bound, others []string
	// want is at a place in each that is bound.
	at   []string
	want any
}

var policyForms = map[string]policyForm{
	"TypedObjectReference": {
		reason:  "We should name a class of another namespace.",
		claims:  "Volume volumes.policyforms.test Namespaced",
		spec:    "reference: {form: TypedObjectReference, path: .spec.classRef}, classes: {namespaces: {from: Names, names: [kube-public]}}",
		classes: "VolumeClass volumeclasses.policyforms.test Namespaced", metadata: "namespace: kube-public, " + isDefault,
		bound: []string{"", "spec: {size: 1}"}, others: []string{"spec: {classSelector: {}}", "spec: {classRef: {}}"},
		at:   []string{"spec", "classRef"},
		want: map[string]any{"apiGroup": formsGroup, "kind": "VolumeClass", "namespace": "kube-public", "name": "usual"},
	},
	"Label": {
		reason: "We should write a label.",
		claims: "Job jobs.policyforms.test Namespaced", spec: "reference: {label: queues.example.org/name, form: Name, whenEmpty: LeaveAlone}",
		classes: "Queue queues.policyforms.test Cluster", metadata: isDefault,
		bound:  []string{"", "metadata: {labels: {a: b}}", "metadata: {labels: {}}"},
		others: []string{`metadata: {labels: {queues.example.org/name: ""}}`, "metadata: {labels: {queues.example.org/name: mine}}"},
		at:     []string{"metadata", "labels", "queues.example.org/name"}, want: "usual",
	},
	"Nested": {
		reason:  "We should add what is missing of the way to the reference.",
		claims:  "Database databases.policyforms.test Namespaced",
		spec:    "reference: {path: .spec.parameters.placement.classRef, form: KindReference}, choice: {strategy: LeastClaims}",
		classes: "Site sites.policyforms.test Cluster", metadata: isDefault,
		bound: []string{
			"", "spec: null", "spec: {}", "spec: {parameters: null}", "spec: {parameters: {size: 1}}", "spec: {parameters: {placement: {}}}",
			"spec: {parameters: {placement: {classRef: null, zone: a}}}",
		},
		others: []string{"spec: {parameters: text}", "spec: {parameters: {placement: [1]}}", "spec: {parameters: {placement: {classRef: {kind: Site}}}}"},
		at:     []string{"spec", "parameters", "placement", "classRef"}, want: map[string]any{"kind": "Site", "name": "usual"},
	},
	"BuiltIn": {
		reason:  "We should bind a kind of Kubernetes itself, to a class of such a kind.",
		claims:  "Ingress ingresses.networking.k8s.io Namespaced",
		spec:    "reference: {path: .spec.ingressClassName, form: Name}, claims: {skipIfSet: [{annotation: kubernetes.io/ingress.class}]}",
		classes: "IngressClass ingressclasses.networking.k8s.io Cluster", metadata: isDefault, fields: "spec: {controller: example.org/usual}\n",
		bound:  []string{"spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}"},
		others: []string{"metadata: {annotations: {kubernetes.io/ingress.class: mine}}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}"},
		at:     []string{"spec", "ingressClassName"}, want: "usual",
	},
	"LongPaths": {
		reason: "We should have the API server take the most and the longest paths that the schema allows.",
		claims: "Log logs.policyforms.test Namespaced",
		spec: "reference: {path: " + longPath("r") + "}, selector: {path: " + longPath("s") + "}, claims: {skipIfSet: [{path: " +
			strings.Join(longPaths(), "}, {path: ") + "}]}",
		classes: "LogClass logclasses.policyforms.test Cluster", metadata: isDefault,
		bound: []string{"", "spec: {size: 1}"}, at: append(v1beta1.FieldPath(longPath("r")).Names(), "name"), want: "usual",
	},
}

// longPath is one of ten names, which the letter fills.
func longPath(letter string) string {
	return strings.Repeat("."+strings.Repeat(letter, 24), 9) + "." + strings.Repeat(letter, 30)
}

// longPaths are as many as the schema allows to skip by.
func longPaths() (paths []string) {
	for i := range 16 {
		paths = append(paths, longPath(string(rune('a'+i))))
	}
	return paths
}

func (policyForm) parts(line string) (kind, resource, scope string) {
	fields := strings.Fields(line)
	return fields[0], fields[1], fields[2]
}

func (f policyForm) object(t *testing.T, line, name, content string) *unstructured.Unstructured {
	kind, resource, scope := f.parts(line)
	_, group, _ := strings.Cut(resource, ".")
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(content), &object.Object))
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	object.SetAPIVersion(group + "/v1")
	object.SetKind(kind)
	object.SetName(name)
	if scope == "Namespaced" && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	return object
}

// TestPolicyForms has the API server itself write references. That it writes what classbind would is tested beside the policy.
func TestPolicyForms(t *testing.T) {
	w := sharedWorld(t)
	var resources []string
	for _, f := range policyForms {
		for _, line := range []string{f.claims, f.classes} {
			if strings.Contains(line, formsGroup) {
				resources = append(resources, line)
			}
		}
	}
	w.resources(t, resources...)
	w.apply(t, vendor(formsGroup)+vendor("networking.k8s.io"))
	for _, name := range slices.Sorted(maps.Keys(policyForms)) {
		f := policyForms[name]
		t.Run(name, func(t *testing.T) {
			if name == "LongPaths" {
				long(t) // The API server compiles for seconds.
			}
			t.Parallel()
			f.try(t, w)
		})
	}
}

func (f policyForm) try(t *testing.T, w *world) {
	_, claims, _ := f.parts(f.claims)
	_, classes, _ := f.parts(f.classes)
	w.apply(t, claimKind(claims, "{admission: {defaulting: Policy}, "+f.spec+"}")+serving(classes, claims))
	usual := f.object(t, f.classes, "usual", fmt.Sprintf("metadata: {%s}\n%s", f.metadata, f.fields))
	require.NoError(t, w.Create(t.Context(), usual))
	if !strings.Contains(f.classes, formsGroup) {
		t.Cleanup(func() {
			_, _, err := w.Kubectl(context.Background(), nil, "delete", "claimkind/"+claims, "classkind/"+classes)
			assert.NoError(t, err)
			assert.NoError(t, w.Delete(context.Background(), usual))
		})
	}
	w.awaitClasses(t, classes, 1)
	w.awaitPolicy(t, claims, manifestOf(t, f.object(t, f.claims, "probe", f.bound[0])))
	before := w.boundByPolicy(t, claims)
	for _, manifest := range f.bound {
		claim := f.object(t, f.claims, "bound", manifest)
		require.NoError(t, w.Create(t.Context(), claim, client.DryRunAll), manifest)
		assert.Equal(t, f.want, at(claim, f.at...), "%s %s", f.reason, manifest)
	}
	assert.Equal(t, len(f.bound), w.boundByPolicy(t, claims)-before, "We should see the API server bind all of these itself.")
	for _, manifest := range f.others {
		_ = w.Create(t.Context(), f.object(t, f.claims, "other", manifest), client.DryRunAll) // It may be refused.
	}
	assert.Equal(t, len(f.bound), w.boundByPolicy(t, claims)-before, "We should see the API server leave these to classbind.")
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
