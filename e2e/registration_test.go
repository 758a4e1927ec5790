package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestRegistration changes what is registered while one replica runs.
func TestRegistration(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)

	t.Run("ClassKindAtRuntime", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "Claim claims.runtime.test Namespaced", "Class classes.runtime.test Cluster")
		w.apply(t, vendor("runtime.test")+claimKind("claims.runtime.test", "{}")+class("runtime.test", "Class", "only", ""))
		w.awaitReason(t, &v1alpha1.ClaimKind{}, "claims.runtime.test", v1alpha1.ReasonNoClassKind)
		w.binds(t, claim("runtime.test", "before"), "", "")

		w.apply(t, classKind("classes.runtime.test", "{claimKinds: [claims.runtime.test]}"))
		w.awaitClaims(t, "claims.runtime.test")
		w.awaitClasses(t, "classes.runtime.test", 1)
		w.binds(t, claim("runtime.test", "with"), "Class/only", "We should use a ClassKind for the next claim.")

		w.kubectl(t, "delete", "classkind", "classes.runtime.test")
		w.awaitBound(t, claim("runtime.test", "after"), "", "We should stop to use a ClassKind that is deleted.")

		w.kubectl(t, "delete", "claimkind", "claims.runtime.test")
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NotContains(c, w.kubectl(t, "get", "mutatingwebhookconfiguration", v1alpha1.LastConfiguration, "-o", "jsonpath={.webhooks[*].name}"), "claims.runtime.test")
			_, warnings, err := w.create(t, claim("runtime.test", "unregistered"), client.DryRunAll)
			require.NoError(c, err, "We should never refuse a claim of a kind that is registered no more.")
			require.Empty(c, warnings)
		}, patience, 20*time.Millisecond, "We should leave claims alone whose ClaimKind is deleted.")
	})

	t.Run("CRDsComeAndGo", func(t *testing.T) {
		t.Parallel()
		w.apply(t, vendor("later.test")+claimKind("claims.later.test", "{}")+classKind("classes.later.test", "{claimKinds: [claims.later.test]}"))
		w.awaitReason(t, &v1alpha1.ClaimKind{}, "claims.later.test", v1alpha1.ReasonNotInstalled)
		w.awaitReason(t, &v1alpha1.ClassKind{}, "classes.later.test", v1alpha1.ReasonNotInstalled)

		w.resources(t, "Claim claims.later.test Namespaced", "Class classes.later.test Cluster")
		w.awaitClaims(t, "claims.later.test")
		w.apply(t, class("later.test", "Class", "only", ""))
		w.awaitClasses(t, "classes.later.test", 1)
		w.binds(t, claim("later.test", "with"), "Class/only", "We should start by ourselves when the CRDs appear.")

		w.kubectl(t, "delete", "crd", "classes.later.test")
		w.awaitReason(t, &v1alpha1.ClassKind{}, "classes.later.test", v1alpha1.ReasonNotInstalled)
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
		w.resources(t, "Claim claims.version.test Namespaced")
		w.apply(t, crd(true, false)+vendor("version.test")+claimKind("claims.version.test", "{}")+classKind("classes.version.test", "{claimKinds: [claims.version.test]}"))
		w.awaitClaims(t, "claims.version.test")
		w.apply(t, strings.Replace(class("version.test", "Class", "only", ""), "/v1\n", "/v1beta1\n", 1))
		w.awaitClasses(t, "classes.version.test", 1)

		w.apply(t, crd(false, true))
		deadline := time.Now().Add(patience)
		for version := ""; version != "version.test/v1"; {
			require.True(t, time.Now().Before(deadline), "We should come to refer to the new version.")
			bound := w.binds(t, claim("version.test", "one"), "Class/only", "We should not lose sight of the classes while the API server turns to another version.", client.DryRunAll)
			version, _, _ = unstructured.NestedString(bound.Object, "spec", "classRef", "apiVersion")
		}
	})

	t.Run("ClaimsNotPermitted", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "Claim claims.unwatched.test Namespaced", "Class classes.open.unwatched.test Cluster")
		w.apply(t, vendor("open.unwatched.test")+classKind("classes.open.unwatched.test", "{claimKinds: [claims.unwatched.test]}")+claimKind("claims.unwatched.test", "{whenUnmatched: BindLater}"))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.Regexp(c, `FAILING +READY[^\n]*\nclaims\.unwatched\.test .* LateBinding +True +Served`, w.kubectl(t, "get", "claimkind", "claims.unwatched.test"))
		}, patience, 100*time.Millisecond, "We should tell claims that we may not watch from those that we need not.")
	})

	t.Run("NotSuited", func(t *testing.T) {
		t.Parallel()
		w.apply(t, claimKind("componentstatuses", "{}")+classKind("subjectaccessreviews.authorization.k8s.io", "{claimKinds: [componentstatuses]}"))
		w.awaitReason(t, &v1alpha1.ClaimKind{}, "componentstatuses", v1alpha1.ReasonUnsuitable)
		w.awaitReason(t, &v1alpha1.ClassKind{}, "subjectaccessreviews.authorization.k8s.io", v1alpha1.ReasonUnsuitable)
	})

	t.Run("ClusterScopedClaim", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "Claim claims.wide.test Cluster", "Class classes.wide.test Namespaced")
		w.apply(t, vendor("wide.test")+claimKind("claims.wide.test", "{classNamespaces: {from: Names, names: [default]}}")+classKind("classes.wide.test", "{claimKinds: [claims.wide.test]}")+
			class("wide.test", "Class", "only", "namespace: default, "))
		w.awaitClaims(t, "claims.wide.test")
		w.awaitClasses(t, "classes.wide.test", 1)
		bound, _, err := w.create(t, claim("wide.test", "one"))
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"apiVersion": "wide.test/v1", "kind": "Class", "namespace": "default", "name": "only"},
			bound.Object["spec"].(map[string]any)["classRef"], "We should name the namespace of a namespaced class.")
	})

	t.Run("AmbiguousReference", func(t *testing.T) {
		t.Parallel()
		w.resources(t, "Claim claims.vague.test Namespaced", "One ones.vague.test Cluster", "Other others.vague.test Cluster")
		w.apply(t, vendor("vague.test")+claimKind("claims.vague.test", "{reference: {path: .spec.className, form: Name}}")+
			classKind("ones.vague.test", "{claimKinds: [claims.vague.test]}")+class("vague.test", "One", "one", ""))
		w.awaitClaims(t, "claims.vague.test")
		w.awaitClasses(t, "ones.vague.test", 1)
		gets := func(name, class, reason string) {
			bound, _, err := w.create(t, claim("vague.test", name))
			require.NoError(t, err, reason)
			assert.Equal(t, class, bound.Object["spec"].(map[string]any)["className"], reason)
		}
		gets("clear", "one", "We should offer the only one.")

		w.apply(t, classKind("others.vague.test", "{claimKinds: [claims.vague.test]}")+class("vague.test", "Other", "other", ""))
		w.awaitReason(t, &v1alpha1.ClassKind{}, "others.vague.test", v1alpha1.ReasonAmbiguousReference)
		w.awaitReplicas(t, "claims.vague.test")
		gets("still-clear", "one", "We should offer the class kind whose name comes first.")
		if !inPods() { // It needs the kubeconfig of an admin.
			_, _, err := (&mover{world: w}).setDefault(t, "Other/other", "--for=claims.vague.test")
			require.ErrorContains(t, err, `the classes of "others.vague.test" are not offered to claims of "claims.vague.test"`, "We should not give the default to a class that no claim is offered.")
		}

		w.kubectl(t, "delete", "classkind", "ones.vague.test")
		w.awaitClasses(t, "others.vague.test", 1)
		gets("clear-again", "other", "We should offer the other once it is alone.")
		w.apply(t, classKind("ones.vague.test", "{claimKinds: [claims.vague.test]}"))
		w.awaitReason(t, &v1alpha1.ClassKind{}, "others.vague.test", v1alpha1.ReasonAmbiguousReference)
		w.awaitReplicas(t, "claims.vague.test")
		gets("restored", "one", "We should offer the first by name, though it was created later.")
	})
}

// TestSchema has every field of a registration in its wrong form: the API
// server refuses it, and names the field and what is allowed.
func TestSchema(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	for name, tc := range map[string]struct{ manifest, want string }{
		"PathWithoutDot":      {claimKind("a.test", "{reference: {path: spec.classRef}}"), "spec.reference.path: Invalid value"},
		"PathWithIndex":       {claimKind("a.test", "{classSelector: {path: '.spec.list[0]'}}"), "spec.classSelector.path: Invalid value"},
		"PathEmpty":           {claimKind("a.test", "{skipIfSet: [{path: ''}]}"), "spec.skipIfSet[0].path: Invalid value"},
		"PathEndsWithDot":     {claimKind("a.test", "{reference: {path: .spec.}}"), "must be a path of at most ten field names, each after a dot, such as .spec.classRef"},
		"PathToMetadata":      {claimKind("a.test", "{reference: {path: .metadata.name}}"), "must not name the apiVersion, kind, metadata or status"},
		"PathToStatus":        {claimKind("a.test", "{reference: {path: .status}}"), "must not name the apiVersion, kind, metadata or status"},
		"PathsEqual":          {claimKind("a.test", "{reference: {path: .spec.x}, classSelector: {path: .spec.x}}"), "reference.path and classSelector.path must not be the same field"},
		"PathWithinPath":      {claimKind("a.test", "{reference: {path: .spec.x}, classSelector: {path: .spec.x.y}}"), "nor lie within each other"},
		"SkipsEverySelector":  {claimKind("a.test", "{skipIfSet: [{path: .spec}]}"), "no claim with a selector would be bound"},
		"Format":              {claimKind("a.test", "{reference: {path: .spec.classRef, form: Pointer}}"), `spec.reference.form: Unsupported value: "Pointer"`},
		"Strategy":            {claimKind("a.test", "{strategy: Best}"), `spec.strategy: Unsupported value: "Best"`},
		"StrategyNotYetThere": {claimKind("a.test", "{strategy: External}"), `spec.strategy: Unsupported value: "External"`},
		"Seed":                {claimKind("a.test", "{seed: Name}"), `spec.seed: Unsupported value: "Name"`},
		"WhenUnmatched":       {claimKind("a.test", "{whenUnmatched: Wait}"), `spec.whenUnmatched: Unsupported value: "Wait"`},
		"FailurePolicy":       {claimKind("a.test", "{failurePolicy: Retry}"), `spec.failurePolicy: Unsupported value: "Retry"`},
		"NamespaceOperator":   {claimKind("a.test", "{namespaceSelector: {matchExpressions: [{key: a, operator: Foo}]}}"), `operator: Unsupported value: "Foo"`},
		"NamespaceValues":     {claimKind("a.test", "{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}"), "values are needed with In and NotIn"},
		"NamespaceNoValues":   {claimKind("a.test", "{namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}"), "not allowed with Exists and DoesNotExist"},
		"NamespaceKey":        {claimKind("a.test", "{namespaceSelector: {matchLabels: {'a b': c}}}"), "every key must be a label's"},
		"NamespaceValue":      {claimKind("a.test", "{namespaceSelector: {matchLabels: {a: 'b c'}}}"), "spec.namespaceSelector.matchLabels.a"},
		"NamespaceKeyDots":    {claimKind("a.test", "{namespaceSelector: {matchLabels: {'a..b/x': z}}}"), "every key must be a label's"},
		"NamespaceKeyLong":    {claimKind("a.test", "{namespaceSelector: {matchLabels: {'"+strings.Repeat("a", 254)+"/x': z}}}"), "every key must be a label's"},
		"NamespaceExpression": {claimKind("a.test", "{namespaceSelector: {matchExpressions: [{key: a.-b/x, operator: Exists}]}}"), "spec.namespaceSelector.matchExpressions[0].key: Invalid value"},
		"PathDeep":            {claimKind("a.test", "{reference: {path: .a.b.c.d.e.f.g.h.i.j.k}}"), "must be a path of at most ten field names"},
		"SkipsEverything":     {claimKind("a.test", "{skipIfSet: [{path: .metadata.name}]}"), "must not name what every claim has"},
		"Nodes":               {claimKind("nodes", "{}"), "a cluster cannot work while this resource cannot be created"},
		"ServiceAccounts":     {claimKind("serviceaccounts", "{}"), "a cluster cannot work while this resource cannot be created"},
		"EndpointSlices":      {claimKind("endpointslices.discovery.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"SigningRequests":     {claimKind("certificatesigningrequests.certificates.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"CSINodes":            {claimKind("csinodes.storage.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"VolumeAttachments":   {claimKind("volumeattachments.storage.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"FlowSchemas":         {claimKind("flowschemas.flowcontrol.apiserver.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"Events":              {claimKind("events", "{}"), "a cluster cannot work while this resource cannot be created"},
		"EventsOfGroup":       {claimKind("events.events.k8s.io", "{}"), "spec.resource: Invalid value"},
		"ConfigMaps":          {claimKind("configmaps", "{}"), "a cluster cannot work while this resource cannot be created"},
		"ReplicaSets":         {claimKind("replicasets.apps", "{}"), "a cluster cannot work while this resource cannot be created"},
		"ResourceSecrets":     {claimKind("mine", "{resource: secrets}"), "spec.resource: Invalid value"},
		"ResourceOwnKind":     {claimKind("mine", "{resource: claimkinds.classbind.io}"), "classbind itself needs this resource to work"},
		"ResourceWebhooks":    {claimKind("mine", "{resource: validatingwebhookconfigurations.admissionregistration.k8s.io}"), "classbind itself needs this resource to work"},
		"ResourceEvents":      {claimKind("mine", "{resource: events}"), "a cluster cannot work while this resource cannot be created"},
		"ResourceEventsGroup": {claimKind("mine", "{resource: events.events.k8s.io}"), "a cluster cannot work while this resource cannot be created"},
		"ResourceConfigMaps":  {claimKind("mine", "{resource: configmaps}"), "a cluster cannot work while this resource cannot be created"},
		"ResourceReplicaSets": {claimKind("mine", "{resource: replicasets.apps}"), "a cluster cannot work while this resource cannot be created"},
		"ResourceReviews":     {claimKind("mine", "{resource: tokenreviews.authentication.k8s.io}"), "spec.resource: Invalid value"},
		"Resource":            {claimKind("a.test", "{resource: Gateways.example.org}"), "spec.resource: Invalid value"},
		"ResourceLong":        {claimKind("a.test", "{resource: "+strings.Repeat("a", 254)+"}"), "spec.resource: Too long"},
		"Version":             {claimKind("a.test", "{version: example.org/v1}"), "spec.version: Invalid value"},
		"VersionLong":         {claimKind("a.test", "{version: v"+strings.Repeat("1", 63)+"}"), "spec.version: Too long"},
		"ReferenceNowhere":    {claimKind("a.test", "{reference: {form: Name}}"), "spec.reference: Invalid value"},
		"ReferenceTwoPlaces":  {claimKind("a.test", "{reference: {path: .spec.class, label: class, form: Name}}"), "name one of path, label and annotation"},
		"ReferenceKeys":       {claimKind("a.test", "{reference: {label: class, annotation: class, form: Name}}"), "name one of path, label and annotation"},
		"LabelKey":            {claimKind("a.test", "{reference: {label: 'a b', form: Name}}"), "spec.reference.label: Invalid value"},
		"LabelKeyLong":        {claimKind("a.test", "{reference: {label: "+strings.Repeat("a", 318)+", form: Name}}"), "spec.reference.label: Too long"},
		"LabelForm":           {claimKind("a.test", "{reference: {label: class, form: ObjectReference}}"), "spec.reference.form: Invalid value"},
		"LabelDefaultForm":    {claimKind("a.test", "{reference: {label: class}}"), "a label or an annotation is a string: set form to Name"},
		"LabelParent":         {claimKind("a.test", "{reference: {label: class, form: Name, whenParentAbsent: LeaveAlone}}"), "spec.reference.whenParentAbsent: Invalid value"},
		"AnnotationKey":       {claimKind("a.test", "{reference: {annotation: /class, form: Name}}"), "spec.reference.annotation: Invalid value"},
		"AnnotationForm":      {claimKind("a.test", "{reference: {annotation: class, form: LocalObjectReference}}"), "a label or an annotation is a string: set form to Name"},
		"AnnotationParent":    {claimKind("a.test", "{reference: {annotation: class, form: Name, whenParentAbsent: LeaveAlone}}"), "a label or an annotation has no parent that could be absent"},
		"AnnotationsEqual":    {claimKind("a.test", "{reference: {annotation: e.org/a, form: Name}, classSelector: {annotation: e.org/a}}"), "reference.annotation and classSelector.annotation must not be the same annotation"},
		"AnnotationOfDefault": {claimKind("a.test", "{reference: {annotation: classbind.io/class-selector, form: Name}}"), "spec.reference: Invalid value"},
		"EmptyIsUnset":        {claimKind("a.test", "{reference: {path: .spec.classRef, emptyIsUnset: Maybe}}"), "spec.reference.emptyIsUnset"},
		"WhenParentAbsent":    {claimKind("a.test", "{reference: {path: .spec.classRef, whenParentAbsent: Deny}}"), `spec.reference.whenParentAbsent: Unsupported value: "Deny"`},
		"Defaulting":          {claimKind("a.test", "{defaulting: Controller}"), `spec.defaulting: Unsupported value: "Controller"`},
		"WhenNoSelector":      {claimKind("a.test", "{whenNoSelector: None}"), `spec.whenNoSelector: Unsupported value: "None"`},
		"OnUnbind":            {claimKind("a.test", "{onUnbind: Deny}"), `spec.onUnbind: Unsupported value: "Deny"`},
		"Order":               {claimKind("a.test", "{order: Middle}"), `spec.order: Unsupported value: "Middle"`},
		"SelectorAnnotation":  {claimKind("a.test", "{classSelector: {annotation: 'a b'}}"), "spec.classSelector.annotation: Invalid value"},
		"SkipTwoPlaces":       {claimKind("a.test", "{skipIfSet: [{path: .spec.a, annotation: a}]}"), "spec.skipIfSet[0]: Invalid value"},
		"SkipNowhere":         {claimKind("a.test", "{skipIfSet: [{}]}"), "name one of path, label and annotation"},
		"SkipLabelKey":        {claimKind("a.test", "{skipIfSet: [{label: a/b/c}]}"), "spec.skipIfSet[0].label: Invalid value"},
		"SkipsAnnotation":     {claimKind("a.test", "{skipIfSet: [{annotation: classbind.io/class-selector}]}"), "skipIfSet must not name classSelector.annotation"},
		"SkipMany":            {claimKind("a.test", "{skipIfSet: ["+strings.Repeat("{label: a}, ", 17)+"]}"), "spec.skipIfSet: Too many"},
		"LongName":            {claimKind("a."+strings.Repeat("a", 177), "{}"), "metadata.name must be at most 178 characters long, to leave room in the names of the webhook and of the Lease"},
		"LongNameOfClass":     {classKind("a.test", "{claimKinds: [a."+strings.Repeat("a", 177)+"]}"), "spec.claimKinds[0]: Too long"},
		"NamespacesFrom":      {claimKind("a.test", "{classNamespaces: {from: Selector}}"), `spec.classNamespaces.from: Unsupported value: "Selector"`},
		"NamespacesAll":       {claimKind("a.test", "{reference: {path: .spec.classRef, form: Name}, classNamespaces: {from: All}}"), "All needs a reference that carries a namespace"},
		"NamespacesNoNames":   {claimKind("a.test", "{classNamespaces: {from: Names}}"), "names are needed with Names"},
		"NamespacesEmpty":     {claimKind("a.test", "{classNamespaces: {from: Names, names: []}}"), "names are needed with Names"},
		"NamespacesNamesOnly": {claimKind("a.test", "{classNamespaces: {names: [a]}}"), "not allowed with SameAsClaim and All"},
		"NamespacesAllNames":  {claimKind("a.test", "{classNamespaces: {from: All, names: [a]}}"), "not allowed with SameAsClaim and All"},
		"NamespacesTwoNames":  {claimKind("a.test", "{reference: {path: .spec.classRef, form: LocalObjectReference}, classNamespaces: {from: Names, names: [a, b]}}"), "a reference that carries no namespace needs exactly one name"},
		"NamespacesTwice":     {claimKind("a.test", "{classNamespaces: {from: Names, names: [a, a]}}"), "spec.classNamespaces.names[1]: Duplicate value"},
		"NamespacesName":      {claimKind("a.test", "{classNamespaces: {from: Names, names: [a.b]}}"), "spec.classNamespaces.names[0]: Invalid value"},
		"NamespacesNameEmpty": {claimKind("a.test", "{classNamespaces: {from: Names, names: ['']}}"), "spec.classNamespaces.names[0]: Invalid value"},
		"NamespacesMany":      {claimKind("a.test", "{classNamespaces: {from: Names, names: ["+strings.Join(numbered(65), ", ")+"]}}"), "spec.classNamespaces.names: Too many"},
		"AccessReviews":       {claimKind("subjectaccessreviews.authorization.k8s.io", "{}"), "a cluster cannot work while this resource cannot be created"},
		"UnknownField":        {claimKind("a.test", "{strtegy: Random}"), `unknown field "spec.strtegy"`},
		"OwnKind":             {claimKind("claimkinds.classbind.io", "{}"), "classbind itself needs this resource to work"},
		"Secrets":             {claimKind("secrets", "{}"), "classbind itself needs this resource to work"},
		"Leases":              {classKind("leases.coordination.k8s.io", "{}"), "classbind itself needs this resource to work"},
		"Webhooks":            {claimKind("mutatingwebhookconfigurations.admissionregistration.k8s.io", "{}"), "classbind itself needs this resource to work"},
		"ClaimKindName":       {classKind("a.test", "{claimKinds: [A.test]}"), "spec.claimKinds[0]: Invalid value"},
		"ClaimKindTwice":      {classKind("a.test", "{claimKinds: [a.test, a.test]}"), "spec.claimKinds[1]: Duplicate value"},
		"DefaultTwoSources":   {classKind("a.test", "{default: {annotation: a, path: .b}}"), "name one of annotation, path and expression"},
		"DefaultNoSource":     {classKind("a.test", "{default: {}}"), "name one of annotation, path and expression"},
		"DefaultExpression":   {classKind("a.test", "{default: {path: .b, expression: class.b}}"), "name one of annotation, path and expression"},
		"ScoreAlone":          {claimKind("a.test", "{score: '1'}"), "score and the strategy LowestScore or HighestScore go together"},
		"LowestScoreAlone":    {claimKind("a.test", "{strategy: LowestScore}"), "score and the strategy LowestScore or HighestScore go together"},
		"RelatedSecrets":      {claimKind("a.test", "{related: [{name: a, resource: secrets, nameExpression: claim.a}]}"), "secrets cannot be related"},
		"RelatedName":         {claimKind("a.test", "{related: [{name: a-b, resource: plans.a.test, nameExpression: claim.a}]}"), "spec.related[0].name: Invalid value"},
		"RelatedTwice":        {claimKind("a.test", "{related: [{name: a, resource: b, nameExpression: claim.a}, {name: a, resource: b, nameExpression: claim.a}]}"), "spec.related[1]: Duplicate value"},
		"RelatedNameless":     {claimKind("a.test", "{related: [{name: a, resource: b}]}"), "spec.related[0].nameExpression: Required value"},
		"ExpressionEmpty":     {claimKind("a.test", "{bindWhen: ''}"), "spec.bindWhen: Invalid value"},
		"ExpressionTooLong":   {claimKind("a.test", "{bindWhen: '"+strings.Repeat("x", 2049)+"'}"), "spec.bindWhen: Too long"},
		"FitNameless":         {claimKind("a.test", "{fits: [{expression: 'true'}]}"), "spec.fits[0].name: Required value"},
		"FitName":             {classKind("a.test", "{fits: [{name: 'a b', expression: 'true'}]}"), "spec.fits[0].name: Invalid value"},
		"FitTwice":            {classKind("a.test", "{fits: [{name: a, expression: 'true'}, {name: a, expression: 'true'}]}"), "spec.fits[1]: Duplicate value"},
		"PartitionOfClaims":   {claimKind("a.test", "{partition: {claim: claim.a}}"), "spec.partition.class: Required value"},
		"WeightAnnotation":    {classKind("a.test", "{weight: {annotation: 'a b'}}"), "spec.weight.annotation: Invalid value"},
		"WeightPath":          {classKind("a.test", "{weight: {path: weight}}"), "spec.weight.path: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.create(t, tc.manifest, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			require.Error(t, err)
			require.ErrorContains(t, err, tc.want)
			ours := notChecked.Split(err.Error(), 2)[0] // It comes last.
			assert.NotContains(t, ours, "<nil>", "We should say which field it is.")
		})
	}
	for name, spec := range map[string]string{
		"All":         "{classNamespaces: {from: All}}",
		"Names":       "{classNamespaces: {from: Names, names: [" + strings.Join(numbered(64), ", ") + "]}}",
		"OneName":     "{reference: {path: .spec.classRef, form: Name}, classNamespaces: {from: Names, names: [a]}}",
		"Nothing":     "{classNamespaces: {}}",
		"Label":       "{reference: {label: kueue.x-k8s.io/queue-name, form: Name}, skipIfSet: [{label: a}, {annotation: kubernetes.io/ingress.class}]}",
		"Annotation":  "{reference: {annotation: e.org/class, form: Name}, classSelector: {annotation: e.org/selector}}",
		"Forms":       "{reference: {path: .spec.a, form: NamespacedReference, emptyIsUnset: true, whenParentAbsent: LeaveAlone}, classNamespaces: {from: All}}",
		"OtherFields": "{resource: a.test, version: v1beta2, whenNoSelector: LeaveAlone, defaulting: Policy, onUnbind: Allow, order: First}",
	} {
		t.Run("Takes"+name, func(t *testing.T) {
			_, _, err := w.create(t, claimKind("a."+strings.Repeat("a", 176), spec), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			require.NoError(t, err)
		})
	}
	t.Run("Defaults", func(t *testing.T) {
		_, _, err := w.create(t, claimKind("a.test", "{}"))
		require.NoError(t, err)
		got := &v1alpha1.ClaimKind{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "a.test"}, got))
		assert.Equal(t, v1alpha1.ClaimKindSpec{
			Reference:     v1alpha1.Reference{Path: ".spec.classRef", Form: v1alpha1.ObjectReference, WhenParentAbsent: v1alpha1.CreateParent},
			ClassSelector: v1alpha1.ClassSelector{Path: ".spec.classSelector", Annotation: v1alpha1.ClassSelectorAnnotation}, SkipIfSet: []v1alpha1.Place{{Path: ".spec.resourceRef"}},
			ClassNamespaces: v1alpha1.ClassNamespaces{From: v1alpha1.FromSameAsClaim}, Strategy: v1alpha1.WeightedRandom, Seed: v1alpha1.SeedClaim,
			WhenUnmatched: v1alpha1.Admit, WhenNoSelector: v1alpha1.NoSelectorDefault, Defaulting: v1alpha1.DefaultingWebhook, OnUnbind: v1alpha1.RestoreReference, Order: v1alpha1.OrderLast, FailurePolicy: v1alpha1.Fail,
		}, got.Spec, "We should have a default for everything.")
		for spec, want := range map[string]v1alpha1.ClaimKindSpec{
			"{reference: {path: .spec.x}, classSelector: {path: .spec.s}}": {
				Reference:     v1alpha1.Reference{Path: ".spec.x", Form: v1alpha1.ObjectReference, WhenParentAbsent: v1alpha1.CreateParent},
				ClassSelector: v1alpha1.ClassSelector{Path: ".spec.s", Annotation: v1alpha1.ClassSelectorAnnotation},
			},
			"{reference: {label: l, form: Name}, classSelector: {annotation: a}}": {
				Reference:     v1alpha1.Reference{Label: "l", Form: v1alpha1.Name, WhenParentAbsent: v1alpha1.CreateParent},
				ClassSelector: v1alpha1.ClassSelector{Path: ".spec.classSelector", Annotation: "a"},
			},
		} {
			stored, _, err := w.create(t, claimKind("b.test", spec), client.DryRunAll)
			require.NoError(t, err)
			got := &v1alpha1.ClaimKind{}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, got))
			assert.Equal(t, want.Reference, got.Spec.Reference, "We should have a default for what is left out of %s.", spec)
			assert.Equal(t, want.ClassSelector, got.Spec.ClassSelector, "We should have a default for what is left out of %s.", spec)
		}
	})
}

// numbered names of namespaces.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}

func (w *world) awaitReason(t *testing.T, object client.Object, name, reason string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, object))
		ready := meta.FindStatusCondition(conditionsOf(object), v1alpha1.ConditionReady)
		require.NotNil(c, ready)
		require.Equal(c, reason, ready.Reason, "%v", ready)
		require.Equal(c, metav1.ConditionFalse, ready.Status)
	}, patience, 50*time.Millisecond)
}

// notChecked is what API servers add. Older ones have quotes there.
var notChecked = regexp.MustCompile(`<nil>: Invalid value: "?null"?: some validation rules were not checked`)

func claimKind(name, spec string) string { return registration("ClaimKind", name, spec) }
func classKind(name, spec string) string { return registration("ClassKind", name, spec) }

func registration(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: classbind.io/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
}

// class of a kind; metadata is more of it than the name.
func class(group, kind, name, metadata string) string {
	return fmt.Sprintf("---\napiVersion: %s/v1\nkind: %s\nmetadata: {%sname: %s}\n", group, kind, metadata, name)
}

// claim that any class satisfies, in the namespace default.
func claim(group, name string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: {classSelector: {}}\n", group, name)
}

// TestTenants has an author of classes in one namespace who wants the claims of another.
func TestTenants(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group, kind, classes = "tenants.test", "clusters.tenants.test", "clusterclasses.tenants.test"
	const reference = "reference: {path: .spec.topology.classRef, form: NamespacedReference}"
	theirs := func(name string) string {
		return class(group, "ClusterClass", name, "namespace: mallory, labels: {tier: gold, bait: 'yes'}, "+
			"annotations: {resourceclass.crossplane.io/weight: '1000000', "+defaultMark+": 'true'}, ")
	}
	w.resources(t, "Cluster "+kind+" Namespaced", "ClusterClass "+classes+" Namespaced")
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: mallory}\n"+vendor(group)+
		claimKind(kind, "{"+reference+"}")+classKind(classes, "{claimKinds: ["+kind+"]}")+
		class(group, "ClusterClass", "own", "namespace: default, labels: {tier: gold}, annotations: {"+defaultMark+": 'true'}, ")+theirs("theirs"))
	w.awaitClaims(t, kind)
	w.awaitClasses(t, classes, 2)
	create := func(name, selector string) (class string, warnings []string) {
		t.Helper()
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

	for i := range 50 {
		class, _ := create(fmt.Sprintf("selects-%d", i), "tier=gold")
		require.Equal(t, "default/own", class, "We should offer a claim the classes of its own namespace, whatever others weigh.")
	}
	class, _ := create("asks-for-nothing", "")
	assert.Equal(t, "default/own", class, "We should guarantee each namespace a default of its own.")
	class, warnings := create("takes-the-bait", "bait=yes")
	assert.Empty(t, class)
	require.Len(t, warnings, 1)
	assert.NotContains(t, warnings[0], "mallory", "We should not name what the author of the claim cannot get.")
	require.EventuallyWithT(t, func(c *assert.CollectT) { // The entries for claims and for classes are written one after the other.
		_, _, err := w.create(t, strings.TrimPrefix(theirs("second"), "---\n"), client.DryRunAll)
		require.True(c, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(c, err, "theirs")
	}, patience, 50*time.Millisecond, "We should guarantee one default in each namespace.")

	w.apply(t, claimKind(kind, "{"+reference+", classNamespaces: {from: All}}"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		class, _ := create("trusts-all", "bait=yes")
		require.Equal(c, "mallory/theirs", class)
	}, patience, 100*time.Millisecond, "We should offer the classes of all namespaces where the ClaimKind says so.")
}
