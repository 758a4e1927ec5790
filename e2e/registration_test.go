package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestRegistration changes what is registered while one replica runs.
func TestRegistration(t *testing.T) {
	w := sharedWorld(t)

	t.Run("ClassKindAtRuntime", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "Class classes.runtime.test Cluster")
		w.install(t, vendor("runtime.test")+claimKind("claims.runtime.test", "{}")+class("runtime.test", "Class", "only", ""))
		w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.runtime.test", v1beta1.ReasonNoClassKind)
		w.binds(t, claim("runtime.test", "before"), "", "")

		w.apply(t, serving("classes.runtime.test", "claims.runtime.test"))
		w.awaitClaims(t, "claims.runtime.test")
		w.awaitClasses(t, "classes.runtime.test", 1)
		w.binds(t, claim("runtime.test", "with"), "Class/only", "We should use a ClassKind for the next claim.")

		w.remove(t, "classkinds.classbind.io", "classes.runtime.test")
		w.awaitBound(t, claim("runtime.test", "after"), "", "We should stop to use a ClassKind that is deleted.")

		w.remove(t, "claimkinds.classbind.io", "claims.runtime.test")
		eventually(t, func(c *attempt) {
			require.NotContains(c, w.kubectl(
				t, "get", "mutatingwebhookconfiguration", v1beta1.LastConfiguration, "-o", "jsonpath={.webhooks[*].name}",
			), "claims.runtime.test")
			_, warnings, err := w.create(t, claim("runtime.test", "unregistered"), client.DryRunAll)
			require.NoError(c, err, "We should never refuse a claim of a kind that is registered no more.")
			require.Empty(c, warnings)
		}, "We should leave claims alone whose ClaimKind is deleted.")
	})

	t.Run("CRDsComeAndGo", func(t *testing.T) {
		t.Parallel()
		w.apply(t, vendor("later.test")+claimKind("claims.later.test", "{}")+serving("classes.later.test", "claims.later.test"))
		w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.later.test", v1beta1.ReasonNotInstalled)
		w.awaitReason(t, &v1beta1.ClassKind{}, "classes.later.test", v1beta1.ReasonNotInstalled)

		w.resources(t, "Claim claims.later.test Namespaced", "Class classes.later.test Cluster")
		w.awaitClaims(t, "claims.later.test")
		w.apply(t, class("later.test", "Class", "only", ""))
		w.awaitClasses(t, "classes.later.test", 1)
		w.binds(t, claim("later.test", "with"), "Class/only", "We should start by ourselves when the CRDs appear.")

		w.kubectl(t, "delete", "crd", "classes.later.test")
		w.awaitReason(t, &v1beta1.ClassKind{}, "classes.later.test", v1beta1.ReasonNotInstalled)
		w.awaitReplicas(t, "claims.later.test")
		w.binds(t, claim("later.test", "without"), "", "We should not offer classes of a CRD that is deleted.")
	})

	t.Run("VersionOfACRDChanges", func(t *testing.T) {
		t.Parallel()
		crd := func(v1beta1, v1 bool) string {
			return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: classes.version.test}
spec:
  group: version.test
  scope: Cluster
  names: {kind: Class, plural: classes}
  versions:
  - {name: v1beta1, served: %[1]t, storage: %[1]t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1, served: %[2]t, storage: %[2]t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, v1beta1, v1)
		}
		w.install(t, crd(true, false)+vendor("version.test")+claimKind("claims.version.test", "{}")+serving("classes.version.test", "claims.version.test"))
		w.awaitClaims(t, "claims.version.test")
		w.apply(t, strings.Replace(class("version.test", "Class", "only", ""), "/v1\n", "/v1beta1\n", 1))
		w.awaitClasses(t, "classes.version.test", 1)

		w.apply(t, crd(false, true))
		deadline := time.Now().Add(patience)
		for version := ""; version != "version.test/v1"; {
			require.True(t, time.Now().Before(deadline), "We should come to refer to the new version.")
			bound := w.binds(
				t, claim("version.test", "one"), "Class/only",
				"We should not lose sight of the classes while the API server turns to another version.", client.DryRunAll,
			)
			version, _, _ = unstructured.NestedString(bound.Object, "spec", "classRef", "apiVersion")
		}
	})

	t.Run("AmbiguousReference", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "One ones.vague.test Cluster", "Other others.vague.test Cluster")
		w.serves(t, vendor("vague.test")+claimKind("claims.vague.test", "{reference: {path: .spec.className, form: Name}}")+
			serving("ones.vague.test", "claims.vague.test")+class("vague.test", "One", "one", ""))
		gets := func(name, class, reason string) {
			bound, _, err := w.create(t, claim("vague.test", name))
			require.NoError(t, err, reason)
			assert.Equal(t, class, bound.Object["spec"].(map[string]any)["className"], reason)
		}
		gets("clear", "one", "We should offer the only one.")

		w.apply(t, serving("others.vague.test", "claims.vague.test")+class("vague.test", "Other", "other", ""))
		w.awaitReason(t, &v1beta1.ClassKind{}, "others.vague.test", v1beta1.ReasonAmbiguousReference)
		w.awaitReplicas(t, "claims.vague.test")
		gets("still-clear", "one", "We should offer the class kind whose name comes first.")

		w.remove(t, "classkinds.classbind.io", "ones.vague.test")
		w.awaitClasses(t, "others.vague.test", 1)
		gets("clear-again", "other", "We should offer the other once it is alone.")
		w.apply(t, serving("ones.vague.test", "claims.vague.test"))
		w.awaitReason(t, &v1beta1.ClassKind{}, "others.vague.test", v1beta1.ReasonAmbiguousReference)
		w.awaitReplicas(t, "claims.vague.test")
		gets("restored", "one", "We should offer the first by name, though it was created later.")
	})
}

// neededResources can be no claims, by what is said of them.
var neededResources = map[string]string{
	"a cluster cannot work while this resource cannot be created": "nodes serviceaccounts endpointslices.discovery.k8s.io events " +
		"events.events.k8s.io configmaps " +
		"replicasets.apps certificatesigningrequests.certificates.k8s.io csinodes.storage.k8s.io volumeattachments.storage.k8s.io " +
		"flowschemas.flowcontrol.apiserver.k8s.io subjectaccessreviews.authorization.k8s.io tokenreviews.authentication.k8s.io",
	"classbind itself needs this resource to work": "secrets claimkinds.classbind.io " +
		"mutatingwebhookconfigurations.admissionregistration.k8s.io validatingwebhookconfigurations.admissionregistration.k8s.io",
}

// external is a ClaimKind with a chooser.
func external(chooser string) string {
	return claimKind("a.test", "{choice: {strategy: External, external: {"+chooser+"}}}")
}

// TestSchema has what the schema of registrations has a rule, a pattern or a limit for in its wrong form: the
// API server refuses it, and names the field and what is allowed.
func TestSchema(t *testing.T) {
	w := sharedWorld(t)
	strict := client.FieldValidation(metav1.FieldValidationStrict)
	for text, resources := range neededResources {
		for resource := range strings.FieldsSeq(resources) {
			for _, manifest := range []string{claimKind(resource, "{}"), claimKind("mine", "{claims: {resource: "+resource+"}}")} {
				_, _, err := w.create(t, manifest, client.DryRunAll, strict)
				require.ErrorContains(t, err, text, "We should have no claims of %s.", resource)
			}
		}
	}
	for name, tc := range map[string]struct{ manifest, want string }{
		"PathWithoutDot": {claimKind("a.test", "{reference: {path: spec.classRef}}"), "spec.reference.path: Invalid value"},
		"PathEndsWithDot": {
			claimKind("a.test", "{reference: {path: .spec.}}"),
			"must be a path of at most ten field names, each after a dot, such as .spec.classRef",
		},
		"PathToStatus": {claimKind("a.test", "{reference: {path: .status}}"), "must not name the apiVersion, kind, metadata or status"},
		"PathsEqual": {
			claimKind("a.test", "{reference: {path: .spec.x}, selector: {path: .spec.x}}"),
			"reference.path and selector.path must not be the same field",
		},
		"PathWithinPath":     {claimKind("a.test", "{reference: {path: .spec.x}, selector: {path: .spec.x.y}}"), "nor lie within each other"},
		"SkipsEverySelector": {claimKind("a.test", "{claims: {skipIfSet: [{path: .spec}]}}"), "no claim with a selector would be bound"},
		"NamespaceValues": {
			claimKind("a.test", "{claims: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}}"),
			"values are needed with In and NotIn",
		},
		"NamespaceKey":     {claimKind("a.test", "{claims: {namespaceSelector: {matchLabels: {'a b': c}}}}"), "every key must be a label's"},
		"NamespaceValue":   {claimKind("a.test", "{claims: {namespaceSelector: {matchLabels: {a: 'b c'}}}}"), "spec.claims.namespaceSelector.matchLabels.a"},
		"PathDeep":         {claimKind("a.test", "{reference: {path: .a.b.c.d.e.f.g.h.i.j.k}}"), "must be a path of at most ten field names"},
		"SkipsEverything":  {claimKind("a.test", "{claims: {skipIfSet: [{path: .metadata.name}]}}"), "must not name what every claim has"},
		"Resource":         {claimKind("a.test", "{claims: {resource: Gateways.example.org}}"), "spec.claims.resource: Invalid value"},
		"Version":          {claimKind("a.test", "{claims: {version: example.org/v1}}"), "spec.claims.version: Invalid value"},
		"ReferenceNowhere": {claimKind("a.test", "{reference: {form: Name}}"), "spec.reference: Invalid value"},
		"ReferenceTwoPlaces": {
			claimKind("a.test", "{reference: {path: .spec.class, label: class, form: Name}}"),
			"name one of path, label and annotation, and not path and label together",
		},
		"LabelKey":         {claimKind("a.test", "{reference: {label: 'a b', form: Name}}"), "spec.reference.label: Invalid value"},
		"LabelDefaultForm": {claimKind("a.test", "{reference: {label: class}}"), "a label or an annotation is a string: set form to Name"},
		"LabelParent": {
			claimKind("a.test", "{reference: {label: class, form: Name, whenParentAbsent: LeaveAlone}}"),
			"spec.reference.whenParentAbsent: Invalid value",
		},
		"AnnotationsEqual": {
			claimKind("a.test", "{reference: {annotation: e.org/a, form: Name}, selector: {annotation: e.org/a}}"),
			"reference.annotation and selector.annotation must not be the same annotation",
		},
		"AnnotationOfDefault": {claimKind("a.test", "{reference: {annotation: classbind.io/class-selector, form: Name}}"), "spec.reference: Invalid value"},
		"SkipTwoPlaces": {
			claimKind("a.test", "{claims: {skipIfSet: [{path: .spec.a, annotation: a}]}}"),
			"name one of path, label and annotation, and not path and annotation together",
		},
		"SkipNowhere": {claimKind("a.test", "{claims: {skipIfSet: [{}]}}"), "name one of path, label and annotation"},
		"SkipsAnnotation": {
			claimKind("a.test", "{claims: {skipIfSet: [{annotation: classbind.io/class-selector}]}}"),
			"skipIfSet must not name selector.annotation",
		},
		"LongName": {
			claimKind("a."+strings.Repeat("a", 177), "{}"),
			"metadata.name must be at most 178 characters long, to leave room in the names of the webhook and of the Lease",
		},
		"NamespacesAll": {
			claimKind("a.test", "{reference: {path: .spec.classRef, form: Name}, classes: {namespaces: {from: All}}}"),
			"All needs a reference that carries a namespace",
		},
		"NamespacesNoNames":   {claimKind("a.test", "{classes: {namespaces: {from: Names}}}"), "names are needed with Names"},
		"NamespacesNamesOnly": {claimKind("a.test", "{classes: {namespaces: {names: [a]}}}"), "not allowed with SameAsClaim and All"},
		"NamespacesTwoNames": {
			claimKind("a.test", "{reference: {path: .spec.classRef, form: LocalObjectReference}, classes: {namespaces: {from: Names, names: [a, b]}}}"),
			"a reference that carries no namespace needs exactly one: name one",
		},
		"UnknownField": {claimKind("a.test", "{strtegy: Random}"), `unknown field "spec.strtegy"`},
		"Leases":       {classKind("leases.coordination.k8s.io", "{}"), "classbind itself needs this resource to work"},
		"DefaultTwoSources": {
			classKind("a.test", "{default: {annotation: a, path: .b}}"),
			"name one of annotation, path and expression, and not annotation and path together",
		},
		"DefaultNoSource": {classKind("a.test", "{default: {}}"), "name one of annotation, path and expression"},
		"ListedNoKinds":   {claimKind("a.test", "{classes: {precedence: Listed}}"), "Listed needs kinds"},
		"ScoreAlone":      {claimKind("a.test", "{choice: {score: '1'}}"), "score and the strategy LowestScore or HighestScore go together"},
		"ExternalMissing": {claimKind("a.test", "{choice: {strategy: External}}"), "external and the strategy External go together"},
		"ExternalAlone": {
			claimKind("a.test", "{choice: {external: {host: 'a.test:443', fields: {class: [{path: .metadata.name}]}}}}"),
			"spec.choice.external: Invalid value: external and the strategy External go together: set both or neither",
		},
		"ExternalTwoAddresses": {
			external("host: 'a.test:443', service: {namespace: a, name: b}, fields: {class: [{path: .metadata.name}]}"),
			"spec.choice.external.service: Invalid value: name either the service or the host of the chooser",
		},
		"ExternalNoAddress": {external("fields: {class: [{path: .metadata.name}]}"), "name either the service or the host of the chooser"},
		"ExternalURL": {
			external("host: 'https://a.test', fields: {class: [{path: .metadata.name}]}"),
			`spec.choice.external.host: Invalid value: "https://a.test"`,
		},
		"ExternalTimeout": {
			external("host: 'a.test:443', timeout: 2s, fields: {class: [{path: .metadata.name}]}"),
			`spec.choice.external.timeout: Invalid value: "2s"`,
		},
		"ExternalNoFields": {external("host: 'a.test:443', fields: {}"), "spec.choice.external.fields.class: Required value"},
		"ExternalTwoPlaces": {
			external("host: 'a.test:443', fields: {class: [{path: .metadata.name, label: a}]}"),
			"name one of path, label and annotation",
		},
		"ExternalUnavailable": {
			external("host: 'a.test:443', whenUnavailable: Wait, fields: {class: [{path: .metadata.name}]}"),
			`spec.choice.external.whenUnavailable: Unsupported value: "Wait"`,
		},
		"SeedUnknown": {claimKind("a.test", "{choice: {seed: {from: Moon}}}"), `spec.choice.seed.from: Unsupported value: "Moon"`},
		"SeedIsText":  {claimKind("a.test", "{choice: {seed: Request}}"), "spec.choice.seed: Invalid value"},
		"SeedExpressionAlone": {
			claimKind("a.test", "{choice: {seed: {expression: claim.metadata.name}}}"),
			"spec.choice.seed.expression: Invalid value: expression and from: Expression go together: set both or neither",
		},
		"SeedExpressionOfRequest": {
			claimKind("a.test", "{choice: {seed: {from: Request, expression: claim.metadata.name}}}"),
			"expression and from: Expression go together: set both or neither",
		},
		"SeedNoExpression": {
			claimKind("a.test", "{choice: {seed: {from: Expression}}}"),
			"expression and from: Expression go together: set both or neither",
		},
		"SeedExpressionEmpty": {
			claimKind("a.test", "{choice: {seed: {from: Expression, expression: ''}}}"),
			"spec.choice.seed.expression: Invalid value",
		},
		"QuantityIsText":  {claimKind("a.test", "{classes: {usage: claim.spec.size}}"), `spec.classes.usage: Invalid value: "string"`},
		"QuantityNoName":  {claimKind("a.test", "{classes: {usage: [{expression: '1'}]}}"), "spec.classes.usage[0].name: Required value"},
		"QuantityName":    {classKind("a.test", "{capacity: [{name: Memory}]}"), "spec.capacity[0].name: Invalid value"},
		"QuantityTwice":   {classKind("a.test", "{capacity: [{name: cpu}, {name: cpu}]}"), "spec.capacity[1]: Duplicate value"},
		"QuantityNowhere": {classKind("a.test", "{capacity: [{name: cpu, total: {}}]}"), "name one of annotation, path and expression"},
		"QuantitiesTooMany": {
			classKind("a.test", "{capacity: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]}"),
			"spec.capacity: Too many: 5: must have at most 4 items",
		},
		"RelatedSecretsOfClasses": {
			classKind("as.test", "{related: [{name: a, resource: secrets, nameExpression: class.a}]}"), "secrets cannot be related",
		},
		"PartsWithoutName": {claimKind("a.test", "{reference: {parts: [{is: Kind, path: .spec.kind}]}}"), "one part must be the Name"},
		"PartsTwice": {
			claimKind("a.test", "{reference: {parts: [{is: Name, path: .spec.a}, {is: Name, path: .spec.b}]}}"), "spec.reference.parts[1]: Duplicate value",
		},
		"PartsAndForm": {claimKind("a.test", "{reference: {form: Name, parts: [{is: Name, path: .spec.a}]}}"), "form and parts exclude each other"},
		"PartsApart": {
			claimKind("a.test", "{reference: {parts: [{is: Name, path: .spec.a.x}, {is: Namespace, path: .spec.b.x}]}}"),
			"all parts must be fields of one object",
		},
		"PartsOutside": {
			claimKind("a.test", "{reference: {path: .spec.a, parts: [{is: Name, path: .spec.b.name}]}}"), "each part must be a field of the object there",
		},
		"PartsGroupAlone": {
			claimKind("a.test", "{reference: {parts: [{is: Name, path: .spec.a}, {is: Group, path: .spec.b}]}}"), "needs a Kind",
		},
		"FlagWithoutKinds": {
			claimKind("a.test", "{reference: {parts: [{is: Name, path: .spec.a}, {is: Flag, path: .spec.b}]}}"), "a Flag is a field, and needs of and default",
		},
		"PartOfStatus": {claimKind("a.test", "{reference: {parts: [{is: Name, path: .status.a}]}}"), "must be a field below .spec"},
		"NoReference":  {claimKind("a.test", "{reference: {form: Name}}"), "name one of path, label, annotation and parts"},
		"WithinNoList": {claimKind("a.test", "{reference: {path: .spec.a, form: Name, within: [.b]}}"), "set list to CheckOnly"},
		"WithinAndParts": {
			claimKind("a.test", "{reference: {path: .spec.a, list: CheckOnly, explicit: Check, parts: [{is: Name, path: .spec.a.b}], within: [.b]}}"),
			"within and parts exclude each other",
		},
		"WithinTwoLists": {
			claimKind("a.test", "{reference: {path: .spec.a, form: Name, list: CheckOnly, explicit: Check, within: ['.b[*].c[*].d']}}"),
			"one of them before [*]",
		},
		"WithinWithoutDot": {
			claimKind("a.test", "{reference: {path: .spec.a, form: Name, list: CheckOnly, explicit: Check, within: [b]}}"),
			"must be a path of at most five field names",
		},
		"CheckOnlyOfNothing": {claimKind("a.test", "{reference: {path: .spec.a, form: Name, list: CheckOnly}}"), "otherwise, nothing is checked"},
		"CheckOnlyAndLater": {
			claimKind("a.test", "{reference: {path: .spec.a, form: Name, list: CheckOnly, explicit: Check}, whenUnmatched: BindLater}"),
			"leave out whenUnmatched and admission.defaulting",
		},
		"ListOfLabel": {claimKind("a.test", "{reference: {label: a, form: Name, list: WhenAbsent}}"), "a list is a field"},
		"PartsOfAll": {
			claimKind("a.test", "{reference: {parts: [{is: Name, path: .spec.a}]}, classes: {namespaces: {from: All}}}"), "give it a part that is a Namespace",
		},
		"RelatedSecrets": {claimKind("a.test", "{classes: {related: [{name: a, resource: secrets, nameExpression: claim.a}]}}"), "secrets cannot be related"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.create(t, tc.manifest, client.DryRunAll, strict)
			require.Error(t, err)
			require.ErrorContains(t, err, tc.want)
			ours := notChecked.Split(err.Error(), 2)[0] // It comes last.
			assert.NotContains(t, ours, "<nil>", "We should say which field it is.")
		})
	}
	for name, spec := range map[string]string{
		"All":   "{classes: {namespaces: {from: All}}}",
		"Names": "{classes: {namespaces: {from: Names, names: [a, b]}}}",
		"Label": "{claims: {skipIfSet: [{label: a}, {annotation: kubernetes.io/ingress.class}]}, reference: {label: kueue.x-k8s.io/queue-name, form: Name}}",
		"Seed":  "{choice: {seed: {from: Expression, expression: claim.metadata.name}}}",
		"Only":  "{selector: {whenAbsent: Only}}",
		"Forms": "{reference: {path: .spec.a, form: NamespacedReference, whenEmpty: LeaveAlone, whenParentAbsent: LeaveAlone}, classes: {namespaces: {from: All}}}",
	} {
		t.Run("Takes"+name, func(t *testing.T) {
			w.created(t, claimKind("a."+strings.Repeat("a", 176), spec), client.DryRunAll, strict)
		})
	}
	t.Run("Defaults", func(t *testing.T) {
		w.created(t, claimKind("a.test", "{}"))
		got := &v1beta1.ClaimKind{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "a.test"}, got))
		assert.Equal(t, v1beta1.ClaimKindSpec{
			Claims: v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
			Reference: v1beta1.Reference{
				Place:            v1beta1.Place{Path: ".spec.classRef"},
				WhenEmpty:        v1beta1.BindEmpty,
				WhenAbsent:       v1beta1.BindAbsent,
				WhenParentAbsent: v1beta1.CreateParent,
				Explicit:         v1beta1.AllowExplicit,
				OnUnbind:         v1beta1.RestoreReference,
			},
			Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector", Annotation: v1beta1.ClassSelectorAnnotation, WhenAbsent: v1beta1.NoSelectorDefault},
			Classes:       v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromSameAsClaim}, Precedence: v1beta1.PrecedenceName},
			Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.Seed{From: v1beta1.SeedClaim}, Annotate: v1beta1.AnnotateNothing},
			WhenUnmatched: v1beta1.Admit,
			Admission:     v1beta1.Admission{Defaulting: v1beta1.DefaultingWebhook, Order: v1beta1.OrderLast, FailurePolicy: v1beta1.Fail},
		}, got.Spec, "We should have a default for everything.")
	})
}

// notChecked is what API servers add. Older ones have quotes there.
var notChecked = regexp.MustCompile(`<nil>: Invalid value: "?null"?: some validation rules were not checked`)

// TestTenants has an author of classes in one namespace who wants the claims of another.
func TestTenants(t *testing.T) {
	w := sharedWorld(t)
	const group, kind, classes = "tenants.test", "clusters.tenants.test", "clusterclasses.tenants.test"
	const reference = "reference: {path: .spec.topology.classRef, form: NamespacedReference}"
	theirs := func(name string) string {
		return class(group, "ClusterClass", name, "namespace: mallory, labels: {tier: gold, bait: 'yes'}, "+
			"annotations: {resourceclass.crossplane.io/weight: '1000000', "+defaultMark+": 'true'}, ")
	}
	w.resources(t, "Cluster "+kind+" Namespaced", "ClusterClass "+classes+" Namespaced")
	w.serves(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: mallory}\n"+vendor(group)+
		claimKind(kind, "{"+reference+"}")+serving(classes, kind)+
		class(group, "ClusterClass", "own", "namespace: default, labels: {tier: gold}, annotations: {"+defaultMark+": 'true'}, ")+theirs("theirs"))
	create := func(name, selector string) (class string, warnings []string) {
		metadata := ""
		if selector != "" {
			metadata = fmt.Sprintf(", annotations: {classbind.io/class-selector: %s}", selector)
		}
		bound, warnings, err := w.create(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Cluster\nmetadata: {namespace: default, name: %s%s}\nspec: {topology: {}}\n",
			group, name, metadata), client.DryRunAll)
		require.NoError(t, err)
		to, _, _ := unstructured.NestedStringMap(bound.Object, "spec", "topology", "classRef")
		return strings.Trim(to["namespace"]+"/"+to["name"], "/"), warnings
	}

	for i := range 10 {
		class, _ := create(fmt.Sprintf("selects-%d", i), "tier=gold")
		require.Equal(t, "default/own", class, "We should offer a claim the classes of its own namespace, whatever others weigh.")
	}
	class, _ := create("asks-for-nothing", "")
	assert.Equal(t, "default/own", class, "We should guarantee each namespace a default of its own.")
	class, warnings := create("takes-the-bait", "bait=yes")
	assert.Empty(t, class)
	require.Len(t, warnings, 1)
	assert.NotContains(t, warnings[0], "mallory", "We should not name what the author of the claim cannot get.")
	// The entries for claims and for classes are written one after the other.
	w.awaitRefused(t, theirs("second"), `theirs" is the default class`, "We should guarantee one default in each namespace.")

	w.apply(t, claimKind(kind, "{"+reference+", classes: {namespaces: {from: All}}}"))
	eventually(t, func(c *attempt) {
		class, _ := create("trusts-all", "bait=yes")
		require.Equal(c, "mallory/theirs", class)
	}, "We should offer the classes of all namespaces where the ClaimKind says so.")
}

// TestComposition has ClaimKinds name a class kind that names only one of them.
func TestComposition(t *testing.T) {
	w := sharedWorld(t)
	const group, other = "composed.test", "composing.test"
	const classes, named, naming = "classes." + group, "claims." + group, "claims." + other
	w.register(t, group, "{}", class(group, "Class", "only", ""))
	w.resources(t, "Claim "+naming+" Namespaced")
	w.apply(t, lateVendor(other)+claimKind(naming, fmt.Sprintf("{classes: {kinds: [{name: %s}]}}", classes)))
	w.awaitClaims(t, naming)
	w.awaitBound(t, claim(other, "bound"), "Class/only", "We should offer the classes of a kind to the claims that name it.")
	w.awaitBound(t, claim(group, "bound"), "Class/only", "We should go on for the claims that the kind names.")

	w.apply(t, claimKind(naming, fmt.Sprintf("{classes: {kinds: [{name: %s}, {name: absents.%s}]}}", classes, other)))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, naming, v1beta1.ConditionClassKindsRead, metav1.ConditionFalse, `"absents.composing.test": correct the name`)
	w.remove(t, "claimkinds.classbind.io", named)
	w.apply(t, classKind(classes, "{}"))
	w.awaitCondition(t, &v1beta1.ClassKind{}, classes, v1beta1.ConditionClaimKindsRegistered, metav1.ConditionTrue, "")
	w.awaitBound(t, claim(other, "alone"), "Class/only", "We should need no name on the other side.")
	w.awaitGuard(t, group, "Class", classes)
	w.created(t, class(group, "Class", "first", isDefault))
	w.refuses(t, class(group, "Class", "second", isDefault), `is the default class for "`+naming+`"`, "We should guard the default of claims that name the kind.")

	w.apply(t, claimKind(naming, "{}"))
	w.awaitCondition(t, &v1beta1.ClassKind{}, classes, v1beta1.ConditionClaimKindsRegistered, metav1.ConditionFalse, "spec.classes.kinds")
	w.awaitBound(t, claim(other, "unserved"), "", "We should offer no classes that neither side names any more.")
}

// planned is a ClaimKind whose claims get a class of the tier of the plan that they name.
func planned(kind, plans string) string {
	return claimKind(kind, fmt.Sprintf(`
  whenUnmatched: Admit
  classes:
    related: [{name: plan, resource: %s, nameExpression: claim.spec.planId}]
    fits:
    - {name: SameTier, expression: has(related.plan) && class.metadata.labels.tier == related.plan.spec.tier, message: of another tier}`, plans))
}

func plan(group, name, tier string) string {
	return fmt.Sprintf("---\napiVersion: %s/v1\nkind: Plan\nmetadata: {namespace: default, name: %s}\nspec: {tier: %s}\n", group, name, tier)
}

// namedClaim has further fields in its spec.
func namedClaim(group, name, spec string) string {
	return claimWith(group, name, "{"+spec+", classSelector: {}}")
}

func TestRelated(t *testing.T) {
	w := sharedWorld(t)

	t.Run("PlanAndClaimInOneFile", func(t *testing.T) {
		t.Parallel()
		const group, kind = "planned.test", "claims.planned.test"
		w.resources(t, "Plan plans.planned.test Namespaced")
		w.serves(t, vendor(group)+tierClass(group, "gold")+tierClass(group, "iron")+planned(kind, "plans.planned.test")+
			serving("classes.planned.test", kind)+plan(group, "small", "iron"))
		w.awaitBound(t, namedClaim(group, "first", "planId: small"), "Class/iron", "We should bind by the plan that a claim names.")
		// Without waiting, as kubectl sends the objects of a file.
		w.created(t, plan(group, "new", "gold"))
		w.binds(t, namedClaim(group, "new", "planId: new"), "Class/gold", "We should read a plan that is new.")
		got, warnings := w.warned(t, namedClaim(group, "none", "planId: absent"))
		assert.Empty(t, classOf(got))
		assert.Contains(t, fmt.Sprint(warnings), "of another tier")

		w.apply(t, plan(group, "small", "gold"))
		w.awaitBound(t, namedClaim(group, "second", "planId: small"), "Class/gold", "We should go by the plan as it is now.")
		w.kubectl(t, "delete", "plans.planned.test", "small")
		w.awaitBound(t, namedClaim(group, "third", "planId: small"), "", "We should notice that a plan is gone.")
		_, _, err := w.create(t, claim(group, "fourth"))
		require.True(t, apierrors.IsInvalid(err), "We should refuse a claim on which an expression fails: %v", err)
		require.ErrorContains(t, err, "no such key: planId")
	})

	t.Run("Namespace", func(t *testing.T) {
		t.Parallel()
		const group = "tenant-labels.test"
		in := func(namespace, name string) string {
			return strings.Replace(claim(group, name), "namespace: default", "namespace: "+namespace, 1)
		}
		w.apply(t, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: tenant-a, labels: {tenant: gold}}\n")
		w.register(t, group, "{classes: {fits: [{name: Tenant, expression: class.metadata.labels.tier == namespaceObject.metadata.labels.tenant}]}}",
			tierClass(group, "gold"), tierClass(group, "iron"))
		w.awaitBound(t, in("tenant-a", "one"), "Class/gold", "We should see the labels of the namespace.")
		w.kubectl(t, "label", "namespace", "tenant-a", "--overwrite", "tenant=iron")
		w.awaitBound(t, in("tenant-a", "one"), "Class/iron", "We should see the labels as they are now.")
		w.apply(t, "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: tenant-b, labels: {tenant: gold}}\n")
		w.binds(t, in("tenant-b", "one"), "Class/gold", "We should read a namespace that is new.")
	})

	// What is looked at in classes and claims changes with the registration of the other.
	t.Run("Linked", func(t *testing.T) {
		t.Parallel()
		const group, kind, classes = "linked.test", "claims.linked.test", "classes.linked.test"
		w.install(t, vendor(group)+claimKind(kind, "{}")+serving(classes, kind))
		for name, size := range map[string]int64{"small": 1, "large": 9} {
			c := object(group, "Class", name)
			c.Object["spec"] = map[string]any{"size": size, "text": strings.Repeat("x", 10_000)}
			require.NoError(t, w.Create(t.Context(), c))
		}
		w.awaitClasses(t, classes, 2)
		w.awaitClaims(t, kind)
		w.apply(t, claimKind(kind, "{classes: {fits: [{name: Room, expression: class.spec.size > claim.spec.size}]}}"))
		w.awaitBound(t, namedClaim(group, "a", "size: 5"), "Class/large", "We should hold what a claim kind looks at in classes.")
		w.apply(t, claimKind(kind, "{classes: {fits: []}}")+classKind(
			classes, "{claimKinds: [{name: "+kind+"}], fits: [{name: Room, expression: class.spec.size < claim.spec.most}]}",
		))
		w.awaitBound(t, namedClaim(group, "b", "most: 5"), "Class/small", "We should read what a class kind looks at in claims.")
		w.apply(t, serving(classes, kind))
		w.apply(t, "---\napiVersion: linked.test/v1\nkind: Class\nmetadata: {name: small, annotations: {classbind.io/cordoned: \"true\"}}\n")
		w.awaitBound(t, claim(group, "d"), "Class/large", "We should go on when it is mended.")
	})
}

// TestClaimKindsOfOneResource has a kind of claim with two references, and ClaimKinds that want the same one.
func TestClaimKindsOfOneResource(t *testing.T) {
	w := sharedWorld(t)

	t.Run("TwoReferences", func(t *testing.T) {
		t.Parallel()
		const group = "two.test"
		w.resources(t, "Tier tiers.two.test Cluster")
		w.install(t, vendor(group)+class(group, "Class", "only", "")+class(group, "Tier", "first", "")+
			claimKind("claims.two.test", "{}")+serving("classes.two.test", "claims.two.test")+
			claimKind(
				"tiers.two",
				`{claims: {resource: claims.two.test}, reference: {path: .spec.tierRef}, selector: {path: .spec.tierSelector, annotation: two.test/tiers}}`,
			)+
			serving("tiers.two.test", "tiers.two"))
		w.awaitClasses(t, "classes.two.test", 1)
		w.awaitClasses(t, "tiers.two.test", 1)
		w.awaitClaims(t, "claims.two.test")
		eventually(t, func(c *attempt) {
			bound, _, err := w.create(
				t, strings.Replace(claim(group, "both"), "name: both", "name: both, annotations: {two.test/tiers: '!absent'}", 1), client.DryRunAll,
			)
			require.NoError(c, err)
			assert.Equal(t, "Class/only", classOf(bound), "We should write the first reference.")
			require.Equal(c, "first", at(bound, "spec", "tierRef", "name"), "We should write the second reference, too.")
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
			assert.True(t, inPods() || classOf(two) != "", "One replica should refuse no claim, and leave none without a class. %v", err)
			require.Equal(c, "Other/other", classOf(two))
		}, "We should bind claims by the ClaimKind whose name comes first.")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse, `"a-rival", whose name comes first`)

		w.remove(t, "claimkinds.classbind.io", "a-rival")
		w.awaitBound(t, claim(group, "two"), "Class/only", "We should serve the other when the first is gone.")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	})

	t.Run("ResourceIsFixed", func(t *testing.T) {
		t.Parallel()
		w.apply(t, claimKind("fixed.test", "{claims: {resource: claims.fixed.test}}"))
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(claimKind("fixed.test", "{claims: {resource: others.fixed.test}}")), "apply", "-f", "-")
		require.ErrorContains(t, err, "the resource cannot be changed")
	})
}

// convertTopology converts Clusters between v1beta1, where the class is a string, and v1beta2, where it is an object.
func convertTopology(w http.ResponseWriter, r *http.Request) {
	review := apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		cluster := &unstructured.Unstructured{}
		_ = json.Unmarshal(raw.Raw, &cluster.Object)
		if name, set, _ := unstructured.NestedString(cluster.Object, "spec", "topology", "class"); set {
			unstructured.RemoveNestedField(cluster.Object, "spec", "topology", "class")
			_ = unstructured.SetNestedField(cluster.Object, name, "spec", "topology", "classRef", "name")
		} else if name, set, _ := unstructured.NestedString(cluster.Object, "spec", "topology", "classRef", "name"); set {
			unstructured.RemoveNestedField(cluster.Object, "spec", "topology", "classRef")
			_ = unstructured.SetNestedField(cluster.Object, name, "spec", "topology", "class")
		}
		cluster.SetAPIVersion(review.Request.DesiredAPIVersion)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: cluster})
	}
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
	require.Equal(t, "only", at(bound, "spec", "topology", "class"))

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
	assert.Equal(t, "only", at(bound, "spec", "topology", "class"), "We should go on binding manifests that nobody changed.")
	eventually(t, func(c *attempt) {
		var err error
		bound, _, err = w.create(t, cluster("v1beta2", "new"))
		require.NoError(c, err) // Discovery may not know the version yet.
	})
	assert.Equal(t, "only", at(bound, "spec", "topology", "classRef", "name"), "We should bind claims of the new version, which the API server converts.")
	k := &v1beta1.ClaimKind{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: kind}, k))
	assert.Equal(t, "v1beta1", k.Status.Version, "We should have pinned the version that was preferred.")

	w.apply(t, crd(version("v1beta1", asString, false, false), version("v1beta2", asObject, true, true)))
	w.awaitReason(t, &v1beta1.ClaimKind{}, kind, v1beta1.ReasonVersionNotServed)
	w.awaitCondition(
		t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionFalse,
		"v1beta2: write the paths for one of these, and set spec.claims.version to it",
	)
	w.awaitRefused(
		t, cluster("v1beta2", "refused"), `its paths are written for version "v1beta1"`,
		"We should not let a claim be created without a class in silence.",
	)

	w.apply(t, claimKind(kind, "{claims: {version: v1beta2, skipIfSet: []}, reference: {path: .spec.topology.classRef, form: LocalObjectReference}}"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.awaitReference(t, documents(t, cluster("v1beta2", "mended"))[0], []string{"spec", "topology", "classRef", "name"}, "only")
}
