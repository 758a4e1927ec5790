package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// projects is the folder with the schemas of real projects, and the table of right answers for their kinds.
const projects = "../cmd/classbind/register/testdata"

// TestRegisterProjects applies what classbind register prints for kinds of real projects, in a cluster that serves them. That the answers are
// right is tested beside the command.
func TestRegisterProjects(t *testing.T) {
	long(t)
	notInPods(t, "It installs the CRDs of two dozen projects.")
	w, _ := servedWorld(t, controlplane.Options{})
	w.projectCRDs(t)
	var rows []struct{ Args, Refused string }
	require.NoError(t, yaml.Unmarshal(must(os.ReadFile(filepath.Join(projects, "answers.yaml")))(t), &rows))
	ready := 0
	for _, row := range rows {
		t.Run(row.Args, func(t *testing.T) {
			args := append([]string{"register", "--kubeconfig=" + w.plane.Kubeconfig}, strings.Fields(row.Args)...)
			out, stderr, exit := w.classbind(t, args...)
			if row.Refused != "" {
				assert.NotZero(t, exit, "We should refuse what no reference can say.")
				assert.Contains(t, stderr, row.Refused)
				assert.Empty(t, out)
				return
			}
			require.Zero(t, exit, stderr)
			w.apply(t, out)
			for _, object := range documents(t, out) {
				t.Cleanup(func() { assert.NoError(t, w.Delete(context.Background(), object)) })
			}
			for _, k := range some[v1beta1.ClassKind](t, documents(t, out), "ClassKind") {
				w.awaitReady(t, &k)
			}
			for _, k := range some[v1beta1.ClaimKind](t, documents(t, out), "ClaimKind") {
				w.awaitReady(t, &k)
			}
			ready++
		})
	}
	assert.GreaterOrEqual(t, ready, 28, "We should be right at the first try.")
}

// projectCRDs installs those of the projects.
func (w *world) projectCRDs(t *testing.T) {
	files := must(filepath.Glob(filepath.Join(projects, "crds", "*.yaml")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		w.apply(t, string(must(os.ReadFile(file))(t))) //nolint:gosec // The test names the folder.
	}
}

// TestParts has references that are lists of parts bound, restored, checked, counted and explained, with the CRDs of their projects.
func TestParts(t *testing.T) {
	long(t)
	notInPods(t, "It installs the CRDs of two dozen projects.")
	w, _ := servedWorld(t, controlplane.Options{})
	w.projectCRDs(t)
	w.namespaces(t, "olm")
	for _, group := range []string{"argoproj.io", "operators.coreos.com", "cert-manager.io", "networking.k8s.io", "gateway.networking.k8s.io"} {
		w.apply(t, lateVendor(group))
	}
	for name, tc := range map[string]struct {
		reason string
		kinds  string
		claim  string
		class  string
		// bound has the fields that the claim must have.
		bound string
		// foreign changes the claim to another class, which is not there.
		foreign string
	}{
		"Argo": {
			reason: "We should set the flag for a class without a namespace.",
			kinds: `
metadata: {name: workflows.argoproj.io}
spec:
  reference:
    path: .spec.workflowTemplateRef
    parts:
    - {is: Name, path: .spec.workflowTemplateRef.name}
    - {is: Flag, path: .spec.workflowTemplateRef.clusterScope, of: ClusterWorkflowTemplate, default: WorkflowTemplate}
    explicit: Check
  classes: {kinds: [{name: workflowtemplates.argoproj.io}, {name: clusterworkflowtemplates.argoproj.io}]}`,
			claim: `{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: mine, namespace: default}, spec: {}}`,
			class: `{apiVersion: argoproj.io/v1alpha1, kind: ClusterWorkflowTemplate, metadata: {name: fast, ` + isDefault + `}, spec: {}}`,
			bound: `{spec: {workflowTemplateRef: {name: fast, clusterScope: true}}}`,
			// The same name without the flag is another class.
			foreign: `{spec: {workflowTemplateRef: {name: fast, clusterScope: false}}}`,
		},
		"OLM": {
			reason: "We should write the namespace of the class beside its name.",
			kinds: `
metadata: {name: subscriptions.operators.coreos.com}
spec:
  reference:
    parts: [{is: Name, path: .spec.source}, {is: Namespace, path: .spec.sourceNamespace}]
    explicit: Check
  classes: {kinds: [{name: catalogsources.operators.coreos.com}], namespaces: {from: All}}`,
			claim: `{apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {name: mine, namespace: default},
				spec: {name: etcd, source: "", sourceNamespace: ""}}`,
			class: `{apiVersion: operators.coreos.com/v1alpha1, kind: CatalogSource, metadata: {name: fast, namespace: olm, ` + isDefault + `},
				spec: {sourceType: grpc}}`,
			bound:   `{spec: {source: fast, sourceNamespace: olm}}`,
			foreign: `{spec: {source: fast, sourceNamespace: default}}`,
		},
		"List": {
			reason: "We should write the only element of a list.",
			kinds: `
metadata: {name: httproutes.gateway.networking.k8s.io}
spec:
  reference:
    path: .spec.parentRefs
    list: WhenAbsent
    parts:
    - {is: Group, path: .spec.parentRefs.group, default: gateway.networking.k8s.io}
    - {is: Kind, path: .spec.parentRefs.kind, default: Gateway}
    - {is: Namespace, path: .spec.parentRefs.namespace}
    - {is: Name, path: .spec.parentRefs.name}
    explicit: Check
  classes: {kinds: [{name: gateways.gateway.networking.k8s.io}], namespaces: {from: All}}`,
			claim: `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: mine, namespace: default}, spec: {hostnames: [a.test]}}`,
			class: `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: fast, namespace: olm, ` + isDefault + `},
				spec: {gatewayClassName: a, listeners: [{name: a, port: 80, protocol: HTTP}]}}`,
			bound:   `{spec: {parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: olm, name: fast}]}}`,
			foreign: `{spec: {parentRefs: [{name: fast, namespace: olm}, {name: other, namespace: olm}]}}`,
		},
		"Annotations": {
			reason: "We should write three annotations of an Ingress.",
			kinds: `
metadata: {name: ingresses.networking.k8s.io}
spec:
  claims: {skipIfSet: [{annotation: cert-manager.io/cluster-issuer}]}
  reference:
    parts:
    - {is: Name, annotation: cert-manager.io/issuer}
    - {is: Kind, annotation: cert-manager.io/issuer-kind, default: Issuer}
    - {is: Group, annotation: cert-manager.io/issuer-group, default: cert-manager.io}
    explicit: Check
  selector: {annotation: classbind.io/issuer-selector}
  classes: {kinds: [{name: issuers.cert-manager.io}, {name: clusterissuers.cert-manager.io}]}`,
			claim: `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: mine, namespace: default},
				spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}}`,
			class: `{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: fast, ` + isDefault + `}, spec: {selfSigned: {}}}`,
			bound: `{metadata: {annotations: {cert-manager.io/issuer: fast, cert-manager.io/issuer-kind: ClusterIssuer,
				cert-manager.io/issuer-group: cert-manager.io}}}`,
			// An absent kind is Issuer.
			foreign: `{metadata: {annotations: {cert-manager.io/issuer-kind: null, cert-manager.io/issuer-group: null}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := "apiVersion: classbind.io/v1beta1\nkind: ClaimKind" + tc.kinds + "\n"
			for _, k := range some[v1beta1.ClaimKind](t, documents(t, kinds), "ClaimKind") {
				for _, class := range k.Spec.Classes.Kinds {
					kinds += classKind(class.Name, "{capacity: [{name: claims}], onDelete: Deny}")
				}
			}
			w.apply(t, kinds)
			for _, k := range some[v1beta1.ClassKind](t, documents(t, kinds), "ClassKind") {
				w.awaitReady(t, &k)
			}
			w.serves(t, kinds+"---\n"+tc.class+"\n")

			claim := w.created(t, tc.claim)
			t.Cleanup(func() { assert.NoError(t, w.Delete(context.Background(), claim)) })
			require.True(t, has(claim.Object, documents(t, tc.bound)[0].Object), "%s: %v", tc.reason, claim.Object)

			updated := documents(t, tc.claim)[0]
			updated.SetResourceVersion(claim.GetResourceVersion())
			require.NoError(t, w.Update(t.Context(), updated))
			assert.True(t, has(updated.Object, documents(t, tc.bound)[0].Object), "We should put back what an update removes: %v", updated.Object)

			foreign := client.RawPatch(types.MergePatchType, must(yaml.YAMLToJSON([]byte(tc.foreign)))(t))
			eventually(t, func(c *attempt) { // The webhook that checks is served a moment after the one that binds.
				err := w.Patch(t.Context(), updated.DeepCopy(), foreign, client.DryRunAll)
				require.True(c, apierrors.IsForbidden(err), "We should check all parts: %v", err)
			})

			class := documents(t, tc.class)[0]
			eventually(t, func(c *attempt) {
				err := w.Delete(t.Context(), class.DeepCopy(), client.DryRunAll)
				require.True(c, apierrors.IsForbidden(err), "We should count the claim for its class: %v", err)
			})
			explained := w.explain(t, write(t, tc.claim), "--kubeconfig="+w.plane.Kubeconfig)
			require.Len(t, explained, 1)
			require.NotNil(t, explained[0].Class)
			assert.Equal(t, "fast", explained[0].Class.Name)
		})
	}
}

// has reports whether an object has all of these fields, with these values.
func has(object, fields map[string]any) bool {
	for name, want := range fields {
		switch want := want.(type) {
		case map[string]any:
			below, _ := object[name].(map[string]any)
			if !has(below, want) {
				return false
			}
		case []any:
			list, _ := object[name].([]any)
			if len(list) != len(want) {
				return false
			}
			for i := range want {
				if !has(map[string]any{"": list[i]}, map[string]any{"": want[i]}) {
					return false
				}
			}
		default:
			if object[name] != want {
				return false
			}
		}
	}
	return true
}

// TestUseOfLists has the API server itself check every element of a list, also while classbind is down.
func TestUseOfLists(t *testing.T) {
	long(t)
	notInPods(t, "It stops classbind.")
	w, r := servedWorld(t, controlplane.Options{})
	w.apply(t, string(must(os.ReadFile(filepath.Join(projects, "crds", "gateway-api.yaml")))(t)))
	const group, claims = "gateway.networking.k8s.io", "httproutes.gateway.networking.k8s.io"
	w.apply(t, lateVendor(group)+claimKind(claims, "{reference: {path: .spec.parentRefs, list: WhenAbsent, form: NamespacedReference}, "+
		"classes: {use: {subject: Namespace}, namespaces: {from: All}}}")+serving("gateways."+group, claims)+
		mayUse("mine", "", "kind: Group, name: 'system:serviceaccounts:default'", group, "gateways", "mine"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "the API server itself checks")
	route := func(gateways ...string) *unstructured.Unstructured {
		text := "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: listed, namespace: default}\nspec: {parentRefs: ["
		for i, gateway := range gateways {
			text += fmt.Sprintf("{name: %s, sectionName: s%d}, ", gateway, i) // The project wants them to differ.
		}
		return documents(t, text+"]}")[0]
	}
	full := slices.Repeat([]string{"mine"}, v1beta1.MaxListedReferences)
	for _, when := range []string{"up", "down"} {
		awaitWrites(t, w, route(full...), "", "We should see the right in force, for as many elements as are checked.")
		awaitWrites(t, w, route("mine", "theirs"), `may not use the class "theirs"`, "We should check the second element while classbind is "+when)
		awaitWrites(t, w, route(append(full[1:], "theirs")...), `may not use the class "theirs"`, "We should check the last element.")
		awaitWrites(t, w, route(append(full, "mine")...), "more than 8", "We should not check a part of a list.")
		if when == "up" {
			require.NoError(t, r.Stop())
		}
	}
}

// TestUseOfDevices has the API server itself, and classbind, check every device class in the lists of a claim, which they do not bind.
func TestUseOfDevices(t *testing.T) {
	long(t)
	notInPods(t, "It stops classbind.")
	w, r := servedWorld(t, controlplane.Options{})
	w.kubectl(t, "apply", "-k", filepath.Join(w.deploy, "samples", "devices"))
	const group = "resource.k8s.io"
	const templates = "resourceclaimtemplates." + group
	for _, claims := range []string{"resourceclaims." + group, templates} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "the API server itself checks")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionPathsValid, metav1.ConditionTrue, "")
	}
	exactly := func(class string) string { return "{exactly: {deviceClassName: " + class + "}}" }
	either := func(classes ...string) string {
		text := "{firstAvailable: ["
		for i, class := range classes {
			text += fmt.Sprintf("{name: s%d, deviceClassName: %s}, ", i, class)
		}
		return text + "]}"
	}
	claim := func(requests ...string) *unstructured.Unstructured {
		text := "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: devices, namespace: default}\nspec: {devices: {requests: ["
		for i, request := range requests {
			text += fmt.Sprintf("{name: r%d, %s, ", i, strings.TrimPrefix(request, "{"))
		}
		return documents(t, text+"]}}")[0]
	}
	template := func(of *unstructured.Unstructured) *unstructured.Unstructured {
		of.Object["spec"] = map[string]any{"spec": of.Object["spec"]}
		of.SetKind("ResourceClaimTemplate")
		return of
	}
	var many []string
	for i := range v1beta1.MaxListedReferences + 1 {
		many = append(many, exactly(fmt.Sprintf("shared-%d", i)))
	}
	const second = `.spec.devices.requests[1].exactly.deviceClassName: namespace "default" may not use the class "large"`
	const alternative = `requests[1].firstAvailable[1].deviceClassName: namespace "default" may not use the class "large"`
	for _, when := range []string{"up", "down"} {
		awaitWrites(t, w, claim(exactly("shared"), either("shared", "shared")), "", "We should see the right in force.")
		awaitWrites(t, w, claim(slices.Repeat([]string{exactly("shared")}, 32)...), "", "We should check equal classes once.")
		awaitWrites(t, w, claim(exactly("shared"), exactly("large")), second, "We should check the second request while classbind is "+when)
		awaitWrites(t, w, claim(exactly("shared"), either("shared", "large")), alternative, "We should check each alternative.")
		awaitWrites(t, w, claim(many...), "more than 8 different", "We should not check a part of a list.")
		awaitWrites(t, w, template(claim(exactly("shared"), exactly("shared"))), "", "We should let a template pass.")
		awaitWrites(t, w, template(claim(exactly("shared"), exactly("large"))), ".spec"+second, "We should check templates.")
		awaitWrites(t, w, template(claim(exactly("shared"), either("shared", "large"))), alternative, "We should check their alternatives.")
		if when == "up" {
			w.checksDevices(t, claim(exactly("shared"), exactly("none")))
			w.ignoresOutages(t, "resourceclaims."+group, templates)
			require.NoError(t, r.Stop())
		}
	}
}

// ignoresOutages has the API server store claims of these kinds when classbind cannot check them: then only its own policy does.
func (w *world) ignoresOutages(t *testing.T, claimKinds ...string) {
	for _, name := range claimKinds {
		require.NoError(t, w.patch(t, "claimkinds.classbind.io", name, `{"spec": {"admission": {"failurePolicy": "Ignore"}}}`))
	}
	eventually(t, func(c *attempt) {
		out, _, err := w.Kubectl(t.Context(), nil, "get", "validatingwebhookconfiguration", v1beta1.ClassConfiguration,
			"-o", "jsonpath={range .webhooks[*]}{.name}={.failurePolicy} {end}")
		require.NoError(c, err)
		for _, name := range claimKinds {
			require.Contains(c, out, name+".check.classbind.io=Ignore")
		}
	})
}

// checksDevices has classbind refuse a claim with a class that is not there, which the API server lets pass: the namespace may use it.
func (w *world) checksDevices(t *testing.T, claim *unstructured.Unstructured) {
	w.apply(t, mayUse("none", "", "kind: Group, name: 'system:serviceaccounts:default'", "resource.k8s.io", "deviceclasses", "none"))
	const refused = `.spec.devices.requests[1].exactly.deviceClassName names the class "class/none", which is not there`
	awaitWrites(t, w, claim, refused, "We should check the second request.")
	explained := w.explain(t, write(t, string(must(yaml.Marshal(claim))(t))), "--kubeconfig="+w.plane.Kubeconfig)
	require.Len(t, explained, 1)
	assert.Contains(t, explained[0].Message, refused)
}
