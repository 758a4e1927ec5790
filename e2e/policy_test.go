package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/race"
)

// boundByPolicy counts the claims of a kind to which an API server itself gave the default
// class since it started. Those of which the conditions are false do not count.
func boundByPolicy(ctx context.Context, server *rest.Config, claimKind string) (int, error) {
	d, err := discovery.NewDiscoveryClientForConfig(server)
	if err != nil {
		return 0, err
	}
	metrics, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("cannot read the metrics of the API server: %w", err)
	}
	name := regexp.QuoteMeta(claimKind + v1beta1.PolicySuffix)
	pattern := `(?m)^apiserver_mutating_admission_policy_check_total\{error_type="no_error",policy="` + name + `",policy_binding="` + name + `"\} (\d+)$`
	match := regexp.MustCompile(pattern).FindSubmatch(metrics)
	if match == nil {
		return 0, nil
	}
	return strconv.Atoi(string(match[1]))
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

// unopinionated is a claim without a selector, in the namespace default.
func unopinionated(group, name string) *unstructured.Unstructured {
	claim := object(group, "Claim", name)
	claim.SetNamespace("default")
	return claim
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

// TestPolicyWhileDown has claims without a selector bound while there is no classbind, and never to a class that is default no more.
func TestPolicyWhileDown(t *testing.T) {
	t.Parallel()
	const group, claims = "down.test", 1000
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
	require.EventuallyWithT(t, func(c *attempt) {
		require.Error(c, w.Create(t.Context(), unopinionated(group, "moved"), client.DryRunAll))
	}, time.Second, 5*time.Millisecond, "We should see the API server know at once that the class is default no more.")
	for i := range 100 {
		refused(unopinionated(group, fmt.Sprint("without-", i)))
	}
	// Nobody is there to be asked whether a class may become default.
	require.NoError(t, w.patch(t, "validatingwebhookconfigurations.admissionregistration.k8s.io", v1beta1.ClassConfiguration, `{"webhooks":[]}`))
	eventually(t, func(c *attempt) { require.NoError(c, w.annotate(t, "classes."+group, "second", defaultMark+"=true")) })
	for i := range 100 {
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

const lifeKind = "claims.life.test"

type storedPolicy struct {
	policy  admissionregistrationv1.MutatingAdmissionPolicy
	binding admissionregistrationv1.MutatingAdmissionPolicyBinding
}

func (w *world) policy(t require.TestingT) (p storedPolicy) {
	name := client.ObjectKey{Name: lifeKind + v1beta1.PolicySuffix}
	require.NoError(t, w.Get(context.Background(), name, &p.policy))
	require.NoError(t, w.Get(context.Background(), name, &p.binding))
	return p
}

func (w *world) awaitNoPolicy(t *testing.T) {
	name := client.ObjectKey{Name: lifeKind + v1beta1.PolicySuffix}
	eventually(t, func(c *attempt) {
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &admissionregistrationv1.MutatingAdmissionPolicy{})))
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})))
	}, "We should remove the policy.")
}

// TestPolicyLife follows a policy through all that changes it.
func TestPolicyLife(t *testing.T) {
	const group, claims = "life.test", lifeKind
	needsPolicies(t)
	w, asked := sharedReplica(t)
	w.unreadable(t)
	w.counted(t)
	policyKinds(t, w, group)
	probe := unopinionated(group, "probe")

	t.Run("Healed", func(t *testing.T) {
		before := w.policy(t)
		edited := before.policy.DeepCopy()
		edited.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
		edited.Spec.MatchConditions[0].Expression = "false"
		require.NoError(t, w.Update(t.Context(), edited))
		require.NoError(t, w.Delete(t.Context(), before.binding.DeepCopy()))
		eventually(t, func(c *attempt) {
			after := w.policy(c)
			require.Equal(c, before.policy.Spec, after.policy.Spec)
			require.Equal(c, before.binding.Spec, after.binding.Spec)
		}, "We should mend what somebody else changes.")
	})
	t.Run("NoDefault", func(t *testing.T) {
		require.NoError(t, w.annotate(t, "classes."+group, "first", defaultMark+"-"))
		w.awaitNoPolicy(t)
		w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "no class is marked default")
		require.NoError(t, w.annotate(t, "classes."+group, "second", defaultMark+"=true"))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionTrue, "Class/second")
		assert.Equal(t, "second", w.policy(t).binding.Spec.ParamRef.Name)
	})
	t.Run("Cordoned", func(t *testing.T) {
		require.NoError(t, w.annotate(t, "classes."+group, "second", v1beta1.CordonedAnnotation+"=true"))
		w.awaitNoPolicy(t)
		w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "Class/second is cordoned")
		require.NoError(t, w.annotate(t, "classes."+group, "second", v1beta1.CordonedAnnotation+"-"))
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("OrderFirst", func(t *testing.T) {
		w.apply(t, claimKind(claims, "{admission: {defaulting: Policy, order: First}}"))
		eventually(t, func(c *attempt) {
			p := w.policy(c)
			for _, owners := range [][]metav1.OwnerReference{p.policy.OwnerReferences, p.binding.OwnerReferences} {
				require.Len(c, owners, 1)
				require.Equal(c, v1beta1.FirstConfiguration, owners[0].Name)
			}
		}, "We should have it go with the configuration of its order.")
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("Webhook", func(t *testing.T) {
		w.apply(t, claimKind(claims, "{}"))
		w.awaitNoPolicy(t)
		w.awaitKind(t, claims, "We should not speak of a policy that nobody asks for.", func(c *attempt, k *v1beta1.ClaimKind) {
			require.Nil(c, meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionDefaultedByPolicy))
		})
		w.apply(t, claimKind(claims, "{admission: {defaulting: Policy}}"))
		w.awaitPolicy(t, claims, manifestOf(t, probe))
	})
	t.Run("ClaimKindDeleted", func(t *testing.T) {
		w.remove(t, "claimkinds.classbind.io", claims)
		w.awaitNoPolicy(t)
	})
	t.Run("NotPermitted", func(t *testing.T) { w.notPermitted(t, asked) })
	t.Run("Counted", func(t *testing.T) { w.countsThem(t) })
}

const unreadableGroup = "unreadable.test"

// unreadable are claims whose classes classbind may list and watch, but not get.
func (w *world) unreadable(t *testing.T) {
	w.install(t, strings.Replace(vendor(unreadableGroup), "get, ", "", 1)+claimKind("claims."+unreadableGroup, "{admission: {defaulting: Policy}}")+
		serving("classes."+unreadableGroup, "claims."+unreadableGroup)+class(unreadableGroup, "Class", "usual", isDefault))
}

// notPermitted has no policy, because its author has to be allowed to read its parameter.
func (w *world) notPermitted(t *testing.T, asked func(string) int) {
	const kind = "claims." + unreadableGroup
	w.awaitClaims(t, kind)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse,
		"label a ClusterRole that allows get of the classes with "+v1beta1.AggregateLabel+"=true")
	before := asked(kind)
	w.binds(t, manifestOf(t, unopinionated(unreadableGroup, "claim")), "Class/usual", "We should give the default class ourselves.")
	assert.Equal(t, 1, asked(kind)-before)
	w.apply(t, vendor(unreadableGroup))
	w.awaitPolicy(t, kind, manifestOf(t, unopinionated(unreadableGroup, "probe")))
}

// countedKinds watch their claims, each for another reason.
var countedKinds = map[string]string{"later.life.test": ", whenUnmatched: BindLater", "least.life.test": ", choice: {strategy: LeastClaims}"}

func (w *world) counted(t *testing.T) {
	for group, spec := range countedKinds {
		w.install(t, lateVendor(group)+claimKind("claims."+group, "{admission: {defaulting: Policy}"+spec+"}")+
			serving("classes."+group, "claims."+group)+class(group, "Class", "usual", isDefault))
	}
}

func (w *world) countsThem(t *testing.T) {
	for group := range countedKinds {
		kind := "claims." + group
		w.awaitPolicy(t, kind, manifestOf(t, unopinionated(group, "probe")))
		before := w.boundByPolicy(t, kind)
		for i := range 20 {
			require.NoError(t, w.Create(t.Context(), unopinionated(group, fmt.Sprint("claim-", i))))
		}
		assert.Equal(t, 20, w.boundByPolicy(t, kind)-before)
		w.awaitKind(t, kind, "We should count claims that we were not asked about.", func(c *attempt, k *v1beta1.ClaimKind) {
			require.NotNil(c, k.Status.BoundClaims)
			require.EqualValues(c, 20, *k.Status.BoundClaims)
		})
	}
}

// TestPolicyNotServed has API servers that do not know policies, or do not heed them. There,
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
		"NotServed":  {flags: notServed, status: metav1.ConditionFalse, text: "does not serve v1 of MutatingAdmissionPolicy"},
		"NotInForce": {flags: map[string]string{"disable-admission-plugins": "ServiceAccount,MutatingAdmissionPolicy"}, status: metav1.ConditionTrue, text: "Class/usual"},
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

// policySettles is longer than the leader takes to compare the policies with those that are stored, twice.
const policySettles = 35 * time.Second

// TestPolicyOfLongPaths has the API server take the policy with the most and the longest paths
// that the schema allows, and give the default class by it. Then nobody writes it again.
func TestPolicyOfLongPaths(t *testing.T) {
	long(t)
	t.Parallel()
	w := newWorld(t, controlplane.Options{Audit: true})
	w.resources(t, "Claim claims.long.test Namespaced", "Class classes.long.test Cluster")
	long := func(letter string) string {
		return strings.Repeat("."+strings.Repeat(letter, 24), 9) + "." + strings.Repeat(letter, 30)
	}
	spec := "{admission: {defaulting: Policy}, reference: {path: " + long("r") + "}, selector: {path: " + long("s") + "}, " +
		strings.TrimPrefix(longPaths(24, 30), "{")
	w.apply(t, vendor("long.test")+claimKind("claims.long.test", spec)+serving("classes.long.test", "claims.long.test")+
		class("long.test", "Class", "gold", `annotations: {resourceclass.crossplane.io/is-default-class: "true"}, `))
	w.serve(t)
	const unopinionated = "apiVersion: long.test/v1\nkind: Claim\nmetadata: {namespace: default, name: mine}\nspec: {}\n"
	w.awaitPolicy(t, "claims.long.test", unopinionated)
	before := w.boundByPolicy(t, "claims.long.test")
	bound := w.created(t, unopinionated)
	assert.Equal(t, before+1, w.boundByPolicy(t, "claims.long.test"))
	name, _, err := unstructured.NestedString(bound.Object, append(v1beta1.FieldPath(long("r")).Names(), "name")...)
	require.NoError(t, err)
	assert.Equal(t, "gold", name)

	written := w.policyWrites(t)
	assert.NotZero(t, written)
	require.Never(t, func() bool { return w.policyWrites(t) != written }, policySettles, time.Second, "We should write what differs alone.")
}

func (w *world) policyWrites(t *testing.T) (n int) {
	for _, e := range w.audited(t) {
		if e.Verb == "patch" && e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && strings.HasPrefix(e.ObjectRef.Resource, "mutatingadmissionpolic") {
			n++
		}
	}
	return n
}

const formsGroup = "policyforms.test"

// policyForm is a kind of claims and one of classes, and claims that come out the same whoever gives them the default class.
type policyForm struct {
	reason string
	// claims are "Kind plural.group scope", and spec is that of their ClaimKind, without the defaulting.
	claims, spec string
	// classes are "Kind plural.group scope", whose ClassKind has classSpec, without its claim
	// kinds. The default one, usual, has this metadata, without its name, and these fields.
	classes, classSpec, metadata, fields string
	// bound are the claims, without their names, that the API server binds itself. It leaves the others to classbind.
	bound, others []string
	// want is at a place in each that is bound.
	at   []string
	want any
}

var policyForms = map[string]policyForm{
	"Name": {
		reason: "We should take an empty name for none.",
		claims: "Ticket tickets.policyforms.test Namespaced", spec: "reference: {path: .spec.className, form: Name, whenEmpty: Bind}",
		classes: "TicketClass ticketclasses.policyforms.test Cluster", metadata: isDefault,
		bound:  []string{"", "spec: {}", "spec: {className: null}", `spec: {className: ""}`, "spec: null", "spec: {other: 1}", "metadata: {annotations: {a: b}}"},
		others: []string{"spec: {classSelector: {}}", "metadata: {annotations: {classbind.io/class-selector: '!absent'}}", "spec: {className: mine}", "spec: {resourceRef: {}}"},
		at:     []string{"spec", "className"}, want: "usual",
	},
	"TypedObjectReference": {
		reason: "We should name a class of another namespace.",
		claims: "Volume volumes.policyforms.test Namespaced", spec: "reference: {form: TypedObjectReference, path: .spec.classRef}, classes: {namespaces: {from: Names, names: [kube-public]}}",
		classes: "VolumeClass volumeclasses.policyforms.test Namespaced", metadata: "namespace: kube-public, " + isDefault,
		bound: []string{"", "spec: {size: 1}"}, others: []string{"spec: {classSelector: {}}", "spec: {classRef: {}}"},
		at:   []string{"spec", "classRef"},
		want: map[string]any{"apiGroup": formsGroup, "kind": "VolumeClass", "namespace": "kube-public", "name": "usual"},
	},
	"Label": {
		reason: "We should write a label.",
		claims: "Job jobs.policyforms.test Namespaced", spec: "reference: {label: queues.example.org/name, form: Name}",
		classes: "Queue queues.policyforms.test Cluster", metadata: isDefault,
		bound:  []string{"", "metadata: {labels: {a: b}}", "metadata: {labels: {}}"},
		others: []string{`metadata: {labels: {queues.example.org/name: ""}}`, "metadata: {labels: {queues.example.org/name: mine}}"},
		at:     []string{"metadata", "labels", "queues.example.org/name"}, want: "usual",
	},
	"Annotation": {
		reason: "We should write an annotation.",
		claims: "Route routes.policyforms.test Cluster", spec: "reference: {annotation: routes.example.org/class, form: Name}, claims: {skipIfSet: [{label: example.org/legacy}]}",
		classes: "RouteClass routeclasses.policyforms.test Cluster", metadata: isDefault,
		bound:  []string{"", "metadata: {annotations: {a: b}}", "metadata: {labels: {a: b}}"},
		others: []string{"metadata: {labels: {example.org/legacy: x}}"},
		at:     []string{"metadata", "annotations", "routes.example.org/class"}, want: "usual",
	},
	"Nested": {
		reason: "We should add what is missing of the way to the reference.",
		claims: "Database databases.policyforms.test Namespaced", spec: "reference: {path: .spec.parameters.placement.classRef, form: KindReference}, choice: {strategy: LeastClaims}",
		classes: "Site sites.policyforms.test Cluster", metadata: isDefault,
		bound: []string{
			"", "spec: null", "spec: {}", "spec: {parameters: null}", "spec: {parameters: {size: 1}}", "spec: {parameters: {placement: {}}}",
			"spec: {parameters: {placement: {classRef: null, zone: a}}}",
		},
		others: []string{"spec: {parameters: text}", "spec: {parameters: {placement: [1]}}", "spec: {parameters: {placement: {classRef: {kind: Site}}}}"},
		at:     []string{"spec", "parameters", "placement", "classRef"}, want: map[string]any{"kind": "Site", "name": "usual"},
	},
	"ParentAbsent": {
		reason: "We should leave a claim alone without the parent of its reference.",
		claims: "Machine machines.policyforms.test Namespaced", spec: "reference: {path: .spec.topology.classRef, form: LocalObjectReference, whenParentAbsent: LeaveAlone}",
		classes: "MachineClass machineclasses.policyforms.test Cluster", metadata: isDefault,
		bound: []string{"spec: {topology: {}}", "spec: {topology: {version: v1}}"}, others: []string{"", "spec: {topology: null}"},
		at: []string{"spec", "topology", "classRef"}, want: map[string]any{"name": "usual"},
	},
	"Paths": {
		reason: "We should find the mark and the weight where the class has them.",
		claims: "Lamp lamps.policyforms.test Namespaced", spec: "reference: {path: .spec.ref, form: GroupKindReference, whenEmpty: Bind}",
		classes: "LampClass lampclasses.policyforms.test Cluster", classSpec: "default: {path: .spec.isDefault}, weight: {path: .spec.share}, ",
		fields: "spec: {isDefault: true, share: 3}\n",
		bound:  []string{"", "spec: {ref: null}"}, others: []string{`spec: {ref: {name: ""}}`, "spec: {ref: {name: mine}}"},
		at: []string{"spec", "ref"}, want: map[string]any{"group": formsGroup, "kind": "LampClass", "name": "usual"},
	},
	"BuiltIn": {
		reason: "We should bind a kind of Kubernetes itself, to a class of such a kind.",
		claims: "Ingress ingresses.networking.k8s.io Namespaced", spec: "reference: {path: .spec.ingressClassName, form: Name}, claims: {skipIfSet: [{annotation: kubernetes.io/ingress.class}]}",
		classes: "IngressClass ingressclasses.networking.k8s.io Cluster", metadata: isDefault, fields: "spec: {controller: example.org/usual}\n",
		bound:  []string{"spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}"},
		others: []string{"metadata: {annotations: {kubernetes.io/ingress.class: mine}}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}"},
		at:     []string{"spec", "ingressClassName"}, want: "usual",
	},
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

// outcomes of the creation of all claims of the form: what is stored of them but for their
// names and what the API server gives to each, or why they are refused.
func (f policyForm) outcomes(t *testing.T, w *world, prefix string) (bound, others []any) {
	create := func(manifests []string) (outcomes []any) {
		for i, manifest := range manifests {
			claim := f.object(t, f.claims, fmt.Sprint(prefix, i), manifest)
			if err := w.Create(t.Context(), claim); err != nil {
				outcomes = append(outcomes, strings.ReplaceAll(err.Error(), claim.GetName(), "NAME"))
				continue
			}
			stored := claim.DeepCopy()
			t.Cleanup(func() { assert.NoError(t, w.Delete(context.Background(), stored)) })
			for _, field := range []string{"name", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
				unstructured.RemoveNestedField(claim.Object, "metadata", field)
			}
			outcomes = append(outcomes, claim.Object)
		}
		return outcomes
	}
	_, claimKind, _ := f.parts(f.claims)
	before := w.boundByPolicy(t, claimKind)
	bound = create(f.bound)
	itself := w.boundByPolicy(t, claimKind) - before
	others = create(f.others)
	after := w.boundByPolicy(t, claimKind) - before
	if prefix == "policy-" {
		assert.Equal(t, len(f.bound), itself, "We should see the API server bind all of these itself.")
	}
	assert.Equal(t, itself, after, "We should see the API server leave these to classbind.")
	return bound, others
}

// TestPolicyForms has the API server itself write references of all forms, and compares them with what classbind writes.
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
			t.Parallel()
			f.compare(t, w)
		})
	}
}

func (f policyForm) compare(t *testing.T, w *world) {
	_, claimKindName, _ := f.parts(f.claims)
	_, classKindName, _ := f.parts(f.classes)
	register := func(defaulting v1beta1.Defaulting) {
		w.apply(t, claimKind(claimKindName, fmt.Sprintf("{admission: {defaulting: %s}, %s}", defaulting, f.spec)))
	}
	register(v1beta1.DefaultingWebhook)
	w.apply(t, classKind(classKindName, fmt.Sprintf("{%sclaimKinds: [{name: %s}]}", f.classSpec, claimKindName)))
	usual := f.object(t, f.classes, "usual", fmt.Sprintf("metadata: {%s}\n%s", f.metadata, f.fields))
	require.NoError(t, w.Create(t.Context(), usual))
	if !strings.Contains(f.classes, formsGroup) {
		t.Cleanup(func() { w.unregisterForm(t, claimKindName, classKindName, usual) })
	}
	w.awaitClasses(t, classKindName, 1)
	probe := f.object(t, f.claims, "probe", f.bound[0])
	w.awaitReference(t, probe, f.at, f.want)

	wantBound, wantOthers := f.outcomes(t, w, "webhook-")
	register(v1beta1.DefaultingPolicy)
	w.awaitPolicy(t, claimKindName, manifestOf(t, probe))
	bound, others := f.outcomes(t, w, "policy-")
	assert.Equal(t, wantBound, bound, f.reason)
	assert.Equal(t, wantOthers, others, "We should leave the rest to classbind.")
	for _, outcome := range bound {
		object, ok := outcome.(map[string]any)
		require.True(t, ok, "%v", outcome)
		got, _, err := unstructured.NestedFieldNoCopy(object, f.at...)
		require.NoError(t, err)
		assert.Equal(t, f.want, got, f.reason)
	}
}

func (w *world) unregisterForm(t *testing.T, claimKind, classKind string, class client.Object) {
	ctx := context.Background()
	_, _, err := w.Kubectl(ctx, nil, "delete", "claimkind/"+claimKind, "classkind/"+classKind)
	assert.NoError(t, err)
	assert.NoError(t, w.Delete(ctx, class))
}

func (w *world) awaitReference(t *testing.T, probe *unstructured.Unstructured, at []string, want any) {
	eventually(t, func(c *attempt) {
		claim := probe.DeepCopy()
		require.NoError(c, w.Create(t.Context(), claim, client.DryRunAll))
		got, _, err := unstructured.NestedFieldNoCopy(claim.Object, at...)
		require.NoError(c, err)
		require.Equal(c, want, got)
	})
}

const (
	policyRaceGroup = "policyrace.test"
	policyRaceKind  = "claims." + policyRaceGroup
	// changesPerSecond of classes, and claimsPerSecond that are created meanwhile.
	changesPerSecond, claimsPerSecond = 20, 100
)

// policyRace changes which class is the default, through any of two API servers.
type policyRace struct {
	servers []dynamic.Interface

	mu sync.Mutex
	// answered are the highest resourceVersions that a client had been answered, and when.
	answered []answeredAt
	events   []classEvent
	seenAt   map[uint64]time.Time // of events
	seen     map[string]uint64    // by resource, the last version that the watch showed
	watchErr error
	claims   []racedClaim
}

type answeredAt struct {
	version uint64
	at      time.Time
}

// answer of an API server. A later version than all before begins the window of later requests.
func (r *policyRace) answer(object *unstructured.Unstructured, err error) error {
	if err != nil || object == nil {
		return err
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.answered); n == 0 || r.answered[n-1].version < version {
		r.answered = append(r.answered, answeredAt{version, time.Now()})
	}
	return nil
}

func (r *policyRace) known(at time.Time) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.answered, at, func(a answeredAt, at time.Time) int { return a.at.Compare(at) })
	if i == 0 {
		return 0
	}
	return r.answered[i-1].version
}

var (
	raceClasses  = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "classes"}
	raceOlds     = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "olds"}
	raceClaims   = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "claims"}
	raceRegistry = v1beta1.GroupVersion.WithResource("classkinds")
)

func (r *policyRace) any() dynamic.Interface { return r.servers[rand.IntN(len(r.servers))] } //nolint:gosec // It need not be secret.

func (r *policyRace) watch(ctx context.Context, resource schema.GroupVersionResource) error {
	objects := r.servers[0].Resource(resource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.observe(resource, watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	return race.Follow(ctx, list.GetResourceVersion(), objects.Watch, func(e watch.Event) { r.observe(resource, e) })
}

func (r *policyRace) observe(resource schema.GroupVersionResource, e watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object, ok := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Error || !ok {
		r.watchErr = fmt.Errorf("cannot go on watching %s: %w", resource.Resource, apierrors.FromObject(e.Object))
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		r.watchErr = err
		return
	}
	event := classEvent{version: version, is: e.Type != watch.Deleted}
	if resource == raceRegistry {
		event.class = map[string]string{"classes." + policyRaceGroup: "Class", "olds." + policyRaceGroup: "Old"}[object.GetName()]
	} else {
		event.class = object.GetKind() + "/" + object.GetName()
		event.is = event.is && object.GetDeletionTimestamp() == nil && object.GetAnnotations()[defaultMark] == "true" &&
			object.GetAnnotations()[v1beta1.CordonedAnnotation] != "true"
	}
	r.events = append(r.events, event)
	r.seenAt[version], r.seen[resource.Resource] = time.Now(), version
}

func (r *policyRace) annotate(ctx context.Context, resource schema.GroupVersionResource, name, key, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	return r.answer(r.any().Resource(resource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func (r *policyRace) create(ctx context.Context, resource schema.GroupVersionResource, manifest string) error {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return err
	}
	return r.answer(r.any().Resource(resource).Create(ctx, object, metav1.CreateOptions{}))
}

// changes are what happens to the default class, over and over: one of these each time. The
// first class is default in the beginning and in the end.
func (r *policyRace) changes(ctx context.Context) []func() error {
	cordon := func(name, value string) func() error {
		return func() error { return r.annotate(ctx, raceClasses, name, v1beta1.CordonedAnnotation, value) }
	}
	mark := func(name, value string) func() error {
		return func() error { return r.annotate(ctx, raceClasses, name, defaultMark, value) }
	}
	remove := func(name string) func() error {
		return func() error { return r.any().Resource(raceClasses).Delete(ctx, name, metav1.DeleteOptions{}) }
	}
	create := func(name, metadata string) func() error {
		return func() error {
			return r.create(ctx, raceClasses, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Class","metadata":{"name":%q,%s}}`, policyRaceGroup, name, metadata))
		}
	}
	isDefault := fmt.Sprintf(`"annotations":{%q:"true"}`, defaultMark)
	release := func(name string) func() error {
		return func() error {
			_, err := r.any().Resource(raceClasses).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		}
	}
	return []func() error{
		cordon("first", `"true"`), cordon("first", `null`),
		mark("first", `null`), mark("second", `"true"`),
		cordon("second", `"true"`), cordon("second", `null`),
		remove("second"), create("second", isDefault),
		mark("second", `null`), mark("first", `"true"`),
		remove("first"), create("first", isDefault+`,"finalizers":["policyrace.test/stay"]`),
		remove("first"), release("first"), create("first", isDefault),
	}
}

// change the default class, a step at each turn. The guard refuses to mark a class while there is another default: then that is tried again
// at the next turn. After every other round there is a rest, in which the API servers learn of the policy again, so that the next change
// finds them with it.
func (r *policyRace) change(ctx, until context.Context) (made int, err error) {
	turn := time.NewTicker(time.Second / changesPerSecond)
	defer turn.Stop()
	for round := 0; until.Err() == nil; round++ {
		if round%2 == 0 {
			pause(until, 2*time.Second)
		}
		for _, step := range r.changes(ctx) {
			for <-turn.C; ; <-turn.C {
				if err = step(); err == nil || !apierrors.IsForbidden(err) || until.Err() != nil {
					break
				}
			}
			if until.Err() != nil {
				return made, nil
			}
			if err != nil {
				return made, err
			}
			made++
		}
	}
	return made, nil
}

// double has a class that was marked default before its kind was registered, again and again,
// for some tenths of a second. It is unmarked before the kind is registered no more.
func (r *policyRace) double(ctx, until context.Context) (n int, err error) {
	kind := fmt.Sprintf(`{"apiVersion":"classbind.io/v1beta1","kind":"ClassKind","metadata":{"name":"olds.%s"},"spec":{"claimKinds":[{"name":%q}]}}`, policyRaceGroup, policyRaceKind)
	for ; until.Err() == nil; n++ {
		// The API server knows a little later that nobody is to be asked about the kind any more.
		mark := func() error { return r.annotate(ctx, raceOlds, "legacy", defaultMark, `"true"`) }
		for err = mark(); apierrors.IsForbidden(err); err = mark() {
			pause(until, 50*time.Millisecond)
		}
		if err == nil {
			err = r.create(ctx, raceRegistry, kind)
		}
		pause(until, time.Duration(200+rand.IntN(400))*time.Millisecond) //nolint:gosec // It need not be secret.
		if err == nil {
			err = r.annotate(ctx, raceOlds, "legacy", defaultMark, `null`)
		}
		if err == nil {
			err = r.any().Resource(raceRegistry).Delete(ctx, "olds."+policyRaceGroup, metav1.DeleteOptions{})
		}
		if err != nil {
			return n, err
		}
		pause(until, 1500*time.Millisecond)
	}
	return n, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type racedClaim struct {
	name, class string
	sent        time.Time
	stored      uint64
}

// createClaims at a steady rate, whatever becomes of them, through the API servers in turn.
func (r *policyRace) createClaims(ctx, until context.Context) error {
	var all errgroup.Group
	begin := time.Now()
	for i := 0; ; i++ {
		pause(until, time.Until(begin.Add(time.Duration(i)*time.Second/claimsPerSecond)))
		if until.Err() != nil {
			return all.Wait()
		}
		all.Go(func() error { return r.createClaim(ctx, i) })
	}
}

func (r *policyRace) createClaim(ctx context.Context, i int) error {
	claim := unopinionated(policyRaceGroup, fmt.Sprint("claim-", i))
	c := racedClaim{name: claim.GetName(), sent: time.Now()}
	stored, err := r.servers[i%len(r.servers)].Resource(raceClaims).Namespace("default").Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot create a claim: %w", err) // Nobody is to be refused.
	}
	c.class = classOf(stored)
	if c.stored, err = strconv.ParseUint(stored.GetResourceVersion(), 10, 64); err != nil {
		return err
	}
	r.mu.Lock()
	r.claims = append(r.claims, c)
	r.mu.Unlock()
	return r.answer(stored, nil)
}

// TestPolicyRace changes the default class 20 times a second, in every way, while claims without a selector are created through two API
// servers. No claim gets a class that was not default at some moment of its request.
func TestPolicyRace(t *testing.T) {
	long(t)
	w := newWorld(t, controlplane.Options{APIServers: 2})
	duration := 30 * time.Second
	if text := os.Getenv("POLICY_RACE"); text != "" {
		duration = must(time.ParseDuration(text))(t, "POLICY_RACE is how long to race.")
	}
	replicas := w.serveBoth(t, policyRaceGroup)
	r := &policyRace{seenAt: map[uint64]time.Time{}, seen: map[string]uint64{}}
	for _, config := range w.plane.Configs {
		config = rest.CopyConfig(config)
		config.WarningHandlerWithContext = rest.NoWarnings{}
		server := must(dynamic.NewForConfig(config))(t)
		r.servers = append(r.servers, server)
	}
	for _, resource := range []schema.GroupVersionResource{raceClasses, raceOlds, raceRegistry} {
		require.NoError(t, r.watch(t.Context(), resource))
	}
	before := w.boundByPolicyOnAll(t)

	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var all errgroup.Group
	changes, doubles := 0, 0
	all.Go(func() (err error) {
		changes, err = r.change(t.Context(), ctx)
		return err
	})
	all.Go(func() (err error) {
		doubles, err = r.double(t.Context(), ctx)
		return err
	})
	all.Go(func() error { return r.createClaims(t.Context(), ctx) })
	require.NoError(t, all.Wait(), "We should refuse no claim.")
	r.fence(t)
	outcomes := r.judge(t, replicas)
	t.Logf("%d claims in %d changes, and with a second default %d times: %v", len(r.claims), changes, doubles, outcomes)
	for _, outcome := range []string{"bound by the API server", "bound by classbind", "left unbound by classbind"} {
		assert.Positive(t, outcomes[outcome], "We should see claims %s.", outcome)
	}
	assert.Positive(t, w.boundByPolicyOnAll(t)-before, "We should see the API servers count what they bound.")
	assert.LessOrEqual(t, outcomes[tooLate]*100, len(r.claims), "We should keep the promise for 99 of 100 claims.")
	assert.Positive(t, doubles)
}

// serveBoth has two replicas, each with an API server of its own, and waits until both API servers give the default class themselves.
func (w *world) serveBoth(t *testing.T, group string) (replicas []*replica) {
	balancer := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = balancer.Close() })
	kubeconfigs := must(w.plane.UserKubeconfigs(classbind.User, classbind.Groups...))(t)
	w.kubeconfig = kubeconfigs[1]
	second := w.start(t, "--webhook-url="+balancer.URL, "--in-flight-window=4s", "--log-level=debug")
	w.kubeconfig = kubeconfigs[0]
	w.resources(t, "Old olds."+group+" Cluster")
	w.apply(t, class(group, "Old", "legacy", ""))
	first := w.start(t, "--webhook-url="+balancer.URL, "--in-flight-window=4s", "--log-level=debug")
	for _, r := range []*replica{first, second} {
		require.NoError(t, r.Ready(t.Context()))
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
	}
	policyKinds(t, w, group)
	eventually(t, func(c *attempt) {
		for _, config := range w.plane.Configs {
			n := must(boundByPolicy(t.Context(), config, "claims."+group))(c)
			server := must(dynamic.NewForConfig(config))(c)
			must(server.Resource(raceClaims).Namespace("default").Create(t.Context(), unopinionated(group, "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(c)
			m := must(boundByPolicy(t.Context(), config, "claims."+group))(c)
			require.Greater(c, m, n)
		}
	})
	return []*replica{first, second}
}

func (w *world) boundByPolicyOnAll(t *testing.T) (sum int) {
	for _, config := range w.plane.Configs {
		n := must(boundByPolicy(t.Context(), config, policyRaceKind))(t)
		sum += n
	}
	return sum
}

// fence waits until the watches have shown all that happened.
func (r *policyRace) fence(t *testing.T) {
	for _, resource := range []schema.GroupVersionResource{raceClasses, raceOlds, raceRegistry} {
		fence := map[string]string{
			"classes": `{"apiVersion":"` + policyRaceGroup + `/v1","kind":"Class","metadata":{"name":"fence"}}`,
			"olds":    `{"apiVersion":"` + policyRaceGroup + `/v1","kind":"Old","metadata":{"name":"fence"}}`,
			"classkinds": `{"apiVersion":"classbind.io/v1beta1","kind":"ClassKind","metadata":{"name":"fences.` + policyRaceGroup + `"},
				"spec":{"claimKinds":[{"name":"` + policyRaceKind + `"}]}}`,
		}[resource.Resource]
		object := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal([]byte(fence), &object.Object))
		object = must(r.servers[1].Resource(resource).Create(t.Context(), object, metav1.CreateOptions{}))(t)
		version := must(strconv.ParseUint(object.GetResourceVersion(), 10, 64))(t)
		eventually(t, func(c *attempt) {
			r.mu.Lock()
			defer r.mu.Unlock()
			require.NoError(c, r.watchErr)
			require.GreaterOrEqual(c, r.seen[resource.Resource], version)
		})
	}
}

// A changed class is visible to 99 of 100 next claims within the time that is promised, and to
// all of them within a longest, on a machine that is short of processors, too.
const (
	promised = 50 * time.Millisecond
	longest  = time.Second
	tooLate  = "bound later than promised"
)

// judge whether any claim got a class that had ceased to be default before its request. A request begins when it is sent, but for what the
// API servers and classbind may need to learn of a change. It returns how many claims there were of each outcome.
func (r *policyRace) judge(t *testing.T, replicas []*replica) (outcomes map[string]int) {
	log, spans := replicas[0].log.String()+replicas[1].log.String(), defaultSpans(r.events)
	outcomes = map[string]int{}
	for _, c := range r.claims {
		by := "the API server"
		if strings.Contains(log, `"name":"`+c.name+`"`) {
			by = "classbind"
		}
		if c.class == "" {
			outcomes["left unbound by "+by]++
			continue
		}
		outcomes["bound by "+by]++
		known := r.known(c.sent)
		if was, ceased := wasDefault(spans[c.class], known, c.stored); !was {
			outcomes["bound late by "+by]++
			t.Logf("%s got %s by %s, which had ceased to be default at %d: %d revisions and %s before the request",
				c.name, c.class, by, ceased, known-ceased, c.sent.Sub(r.seenAt[ceased]))
			if was, _ = wasDefault(spans[c.class], r.known(c.sent.Add(-promised)), c.stored); !was {
				outcomes[tooLate]++
			}
			was, _ = wasDefault(spans[c.class], r.known(c.sent.Add(-longest)), c.stored)
			assert.True(t, was, "We should never give a class that was not default during the request.")
		}
	}
	return outcomes
}

// classEvent is what a watch showed: what a class, or the registration of its kind, was from a resourceVersion on.
type classEvent struct {
	version uint64
	// class is KIND/NAME; of a registration, KIND.
	class string
	// is says of a class that it is there, marked default, and neither cordoned nor being deleted; of a registration, that it is there.
	is bool
}

// span of resourceVersions in which a class was a default one. It was not at the end of it.
type span struct{ from, until uint64 }

// defaultSpans replays what happened to classes of several kinds and to their registrations.
// All are in one etcd, so their resourceVersions are one order.
func defaultSpans(events []classEvent) map[string][]span {
	slices.SortStableFunc(events, func(a, b classEvent) int { return cmp.Compare(a.version, b.version) })
	is, spans := map[string]bool{}, map[string][]span{}
	for _, e := range events {
		is[e.class] = e.is
		for name := range is {
			kind, _, isClass := strings.Cut(name, "/")
			if !isClass {
				continue
			}
			all := spans[name]
			open := len(all) > 0 && all[len(all)-1].until == math.MaxUint64
			switch now := is[name] && is[kind]; {
			case now && !open:
				spans[name] = append(all, span{e.version, math.MaxUint64})
			case !now && open:
				all[len(all)-1].until = e.version
			}
		}
	}
	return spans
}

// wasDefault reports whether a class was at any moment between two resourceVersions, and if not,
// at which one it had last ceased to be, 0 if it had never been.
func wasDefault(spans []span, from, to uint64) (was bool, ceased uint64) {
	for _, s := range spans {
		if s.from <= to && s.until > from {
			return true, 0
		}
		if s.until <= from {
			ceased = s.until
		}
	}
	return false, ceased
}

func TestPolicyJudge(t *testing.T) {
	spans := defaultSpans([]classEvent{
		{1, "Class", true},
		{5, "Class/a", true},
		{9, "Class/a", false},
		{7, "Old/b", true}, // Its kind is registered later.
		{12, "Old", true},
		{15, "Old/b", false},
		{16, "Class/a", true},
		{17, "Class/a", true},
		{20, "Old", false},
	})
	assert.Equal(t, map[string][]span{"Class/a": {{5, 9}, {16, math.MaxUint64}}, "Old/b": {{12, 15}}}, spans)

	for name, tc := range map[string]struct {
		reason, class string
		from, to      uint64
		want          bool
		ceased        uint64
	}{
		"Within":     {"We should see a default.", "Class/a", 6, 7, true, 0},
		"AtTheEnd":   {"We should see one that ceased to be default during the request.", "Class/a", 8, 30, true, 0},
		"Afterwards": {"We should see that it had ceased before the request.", "Class/a", 9, 15, false, 9},
		"Began":      {"We should see one that became default during the request.", "Class/a", 10, 16, true, 0},
		"TooEarly":   {"We should see that its kind was not registered.", "Old/b", 8, 11, false, 0},
		"Unknown":    {"We should see that there is no such default.", "Class/c", 1, 30, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			was, ceased := wasDefault(spans[tc.class], tc.from, tc.to)
			assert.Equal(t, tc.want, was, tc.reason)
			assert.Equal(t, tc.ceased, ceased, tc.reason)
		})
	}
}
