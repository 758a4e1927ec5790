package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
)

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
	t.Parallel()
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
