package webhookconfig

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
)

func TestClaimEntry(t *testing.T) {
	const (
		// That of a Service, with the placeholder %s for what differs.
		entry = `{
			"name": "claims.example.org.bind.classbind.io",
			"clientConfig": {%s, "caBundle": "UEVN"},
			"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["claims"], "scope": "Namespaced"}],
			"failurePolicy": %q,
			"matchPolicy": "Equivalent",
			"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "classbind-system"]}]},
			"matchConditions": [
				{"name": "class-reference-is-not-set", "expression": %q},
				{"name": "skip-if-set-0-is-not-set", "expression": %q},
				{"name": "is-created-or-unbound", "expression": %q}],
			"reinvocationPolicy": "Never",
			"sideEffects": "None",
			"timeoutSeconds": 3,
			"admissionReviewVersions": ["v1"]
		}`
		noReference = `!("spec" in object) || !("classRef" in object["spec"]) || object["spec"]["classRef"] == null || type(object) != map || type(object["spec"]) != map` +
			` || [object["spec"]["classRef"]].exists(r, ` + isNoReference
		noResource = `request.operation == "UPDATE" || !("spec" in object) || !("resourceRef" in object["spec"]) || object["spec"]["resourceRef"] == null || type(object) != map || type(object["spec"]) != map`
		loses      = `request.operation == "CREATE" || !has(object.metadata.deletionTimestamp)` +
			` && !(!("spec" in oldObject) || !("classRef" in oldObject["spec"]) || oldObject["spec"]["classRef"] == null || type(oldObject) != map || type(oldObject["spec"]) != map` +
			` || [oldObject["spec"]["classRef"]].exists(r, type(r) == map && !(has(r.name) && type(r.name) == string && r.name != "")))`
	)
	service := `"service": {"namespace": "classbind-system", "name": "classbind", "path": "/bind/claims.example.org", "port": 443}`
	for name, tc := range map[string]struct {
		reason string
		url    string
		policy v1alpha1.FailurePolicy
		want   string
	}{
		"Service": {
			reason: "We should have a Service called.",
			policy: v1alpha1.Fail, want: service,
		},
		"Ignore": {
			reason: "We should take over the failure policy.",
			policy: v1alpha1.Ignore, want: service,
		},
		"PolicyOfAnotherRelease": {
			reason: "We should not spoil the configuration, which all share, with a failure policy that we do not know.",
			policy: "Retry", want: service,
		},
		"URL": {
			reason: "We should have a URL called, and no Service.",
			url:    "https://localhost:9443", policy: v1alpha1.Fail, want: `"url": "https://localhost:9443/bind/claims.example.org"`,
		},
		"URLWithASlash": {
			reason: "We should not write two slashes.",
			url:    "https://localhost:9443/", policy: v1alpha1.Fail, want: `"url": "https://localhost:9443/bind/claims.example.org"`,
		},
		"URLWithAPath": {
			reason: "We should keep the path of a proxy.",
			url:    "https://proxy/classbind", policy: v1alpha1.Fail, want: `"url": "https://proxy/classbind/bind/claims.example.org"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := Address{Namespace: "classbind-system", Service: "classbind", URL: tc.url}
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.FailurePolicy = tc.policy
			rule := admissionregistrationac.RuleWithOperations().WithOperations(admissionregistrationv1.Create).
				WithAPIGroups("example.org").WithAPIVersions("v1").WithResources("claims").WithScope(admissionregistrationv1.NamespacedScope)
			got, err := json.Marshal(w.claimEntry(k, rule, []byte("PEM"), ""))
			require.NoError(t, err)
			policy := tc.policy
			if policy == "Retry" {
				policy = v1alpha1.Fail
			}
			assert.JSONEq(t, fmt.Sprintf(entry, tc.want, policy, noReference, noResource, loses), string(got), tc.reason)
		})
	}
}

// isNoReference tells what a reference is that counts as none, in a claim without it.
const isNoReference = `type(r) == map && !(has(r.name) && type(r.name) == string && r.name != "")` +
	` && (oldObject != null || r.all(f, f in ["apiVersion", "kind", "namespace", "name"]) && r.exists(f, r[f] != "" && r[f] != null)))`

func TestClaimConditions(t *testing.T) {
	type condition struct{ name, expression string }
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha1.ClaimKindSpec
		want   []condition
	}{
		"TopLevel": {
			reason: "We should ask for the type of the object itself alone, and last.",
			spec:   v1alpha1.ClaimKindSpec{Reference: v1alpha1.Reference{Path: ".className"}},
			want: []condition{
				{"class-reference-is-not-set", `!("className" in object) || object["className"] == null || type(object) != map || [object["className"]].exists(r, ` + isNoReference},
			},
		},
		"Nested": {
			reason: "We should ask for the type of each parent last, after what most claims are told by.",
			spec:   v1alpha1.ClaimKindSpec{Reference: v1alpha1.Reference{Path: ".spec.a.b"}},
			want: []condition{
				{"class-reference-is-not-set", `!("spec" in object) || !("a" in object["spec"]) || !("b" in object["spec"]["a"]) || object["spec"]["a"]["b"] == null` +
					` || type(object) != map || type(object["spec"]) != map || type(object["spec"]["a"]) != map || [object["spec"]["a"]["b"]].exists(r, ` + isNoReference},
			},
		},
		"Keywords": {
			reason: "We should ask by index, so that a field may have the name of a keyword or a dash in it, and have a condition for each path.",
			spec:   v1alpha1.ClaimKindSpec{Reference: v1alpha1.Reference{Path: ".in"}, SkipIfSet: []v1alpha1.Place{{Path: ".namespace"}, {Path: ".a-b"}}},
			want: []condition{
				{"class-reference-is-not-set", `!("in" in object) || object["in"] == null || type(object) != map || [object["in"]].exists(r, ` + isNoReference},
				{"skip-if-set-0-is-not-set", `!("namespace" in object) || object["namespace"] == null || type(object) != map`},
				{"skip-if-set-1-is-not-set", `!("a-b" in object) || object["a-b"] == null || type(object) != map`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []condition
			tc.spec.OnUnbind = v1alpha1.AllowUnbind
			for _, c := range claimConditions(&v1alpha1.ClaimKind{Spec: tc.spec}) {
				got = append(got, condition{*c.Name, *c.Expression})
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestNamespaceSelector(t *testing.T) {
	const always = `{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "own"]}`
	for name, tc := range map[string]struct {
		reason   string
		selector v1alpha1.NamespaceSelector
		want     string
	}{
		"Empty": {
			reason: "We should leave out kube-system and our own namespace.",
			want:   `{"matchExpressions": [` + always + `]}`,
		},
		"Labels": {
			reason:   "We should keep all labels.",
			selector: v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"env": "prod", "team": ""}},
			want:     `{"matchLabels": {"env": "prod", "team": ""}, "matchExpressions": [` + always + `]}`,
		},
		"Expressions": {
			reason: "We should keep all expressions, even one that asks for what we leave out.",
			selector: v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
				{Key: "env", Operator: metav1.LabelSelectorOpExists},
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"own", "kube-system"}},
			}},
			want: `{"matchExpressions": [` + always + `, {"key": "env", "operator": "Exists"},
				{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["own", "kube-system"]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := Address{Namespace: "own"}
			got, err := json.Marshal(w.namespaceSelector(tc.selector))
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, string(got), tc.reason)
		})
	}
}

func TestClassEntry(t *testing.T) {
	const entry = `{
			"name": "golds.example.org.guard.classbind.io",
			"clientConfig": {%s, "caBundle": "UEVN"},
			"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["golds"], "scope": "Cluster"}],
			"failurePolicy": "Fail",
			"matchPolicy": "Equivalent",
			"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "classbind-system"]}]},
			"matchConditions": %s,
			"sideEffects": "NoneOnDryRun",
			"timeoutSeconds": 3,
			"admissionReviewVersions": ["v1"]
		}`
	for name, tc := range map[string]struct {
		reason string
		url    string
		want   string
	}{
		"Service": {
			reason: "We should have a Service called.",
			want:   `"service": {"namespace": "classbind-system", "name": "classbind", "path": "/guard", "port": 443}`,
		},
		"URL": {
			reason: "We should have a URL called, and no Service.",
			url:    "https://localhost:9443", want: `"url": "https://localhost:9443/guard"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := Address{Namespace: "classbind-system", Service: "classbind", URL: tc.url}
			k := &v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1alpha1.ClassKindSpec{
				Default: v1alpha1.Source{Annotation: "default"}, Weight: v1alpha1.Source{Annotation: "weight"},
			}}
			rule := admissionregistrationac.RuleWithOperations().WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update).
				WithAPIGroups("example.org").WithAPIVersions("v1").WithResources("golds").WithScope(admissionregistrationv1.ClusterScope)
			conditions, err := json.Marshal(classConditions(k, nil))
			require.NoError(t, err)
			got, err := json.Marshal(w.classEntry(k, nil, rule, []byte("PEM")))
			require.NoError(t, err)
			assert.JSONEq(t, fmt.Sprintf(entry, tc.want, conditions), string(got), tc.reason)
		})
	}
}

func TestDeletionEntry(t *testing.T) {
	w := Address{Namespace: "classbind-system", Service: "classbind"}
	k := &v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}
	rule := admissionregistrationac.RuleWithOperations().WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update).
		WithAPIGroups("example.org").WithAPIVersions("v1").WithResources("golds").WithScope(admissionregistrationv1.ClusterScope)
	got, err := json.Marshal(w.deletionEntry(k, rule, []byte("PEM")))
	require.NoError(t, err)
	assert.JSONEq(t, `{
			"name": "golds.example.org.deletion.classbind.io",
			"clientConfig": {"service": {"namespace": "classbind-system", "name": "classbind", "path": "/deletion", "port": 443}, "caBundle": "UEVN"},
			"rules": [{"operations": ["DELETE"], "apiGroups": ["example.org"], "apiVersions": ["*"], "resources": ["golds"], "scope": "Cluster"}],
			"matchConditions": [{"name": "is-not-by-a-controller", "expression": "!(request.userInfo.username in [\"system:serviceaccount:kube-system:namespace-controller\", \"system:serviceaccount:kube-system:generic-garbage-collector\"])"}],
			"failurePolicy": "Ignore",
			"matchPolicy": "Equivalent",
			"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "classbind-system"]}]},
			"sideEffects": "None",
			"timeoutSeconds": 1,
			"admissionReviewVersions": ["v1"]
		}`, string(got), "We should hold up no deletion, nor refuse one.")
	assert.Len(t, rule.Operations, 2, "We should leave the rule of the guard as it is.")
	const longest = 230 // of the name of a ClassKind: see its schema
	assert.LessOrEqual(t, longest+len(v1alpha1.DeletionSuffix), 253, "We should have room for the name of the longest kind.")
}

// TestClassConditions compares the whole text of the conditions. A test with an API server checks what they do.
func TestClassConditions(t *testing.T) {
	const cordoned = ` || !(!("metadata" in object) || !("annotations" in object["metadata"]) || !("classbind.io/cordoned" in object["metadata"]["annotations"])` +
		` || object["metadata"]["annotations"]["classbind.io/cordoned"] == null` +
		` || type(object) != map || type(object["metadata"]) != map || type(object["metadata"]["annotations"]) != map)` +
		` && object["metadata"]["annotations"]["classbind.io/cordoned"] != "true" && object["metadata"]["annotations"]["classbind.io/cordoned"] != "false"` +
		` && !(!(!("metadata" in oldObject) || !("annotations" in oldObject["metadata"]) || !("classbind.io/cordoned" in oldObject["metadata"]["annotations"])` +
		` || oldObject["metadata"]["annotations"]["classbind.io/cordoned"] == null` +
		` || type(oldObject) != map || type(oldObject["metadata"]) != map || type(oldObject["metadata"]["annotations"]) != map)` +
		` && object["metadata"]["annotations"]["classbind.io/cordoned"] == oldObject["metadata"]["annotations"]["classbind.io/cordoned"])`
	marks := v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Path: ".default"}, Weight: v1alpha1.Source{Path: ".weight"}}
	fits := marks
	fits.Fits = []v1alpha1.Fit{{Name: "A", Expression: "class.a"}}
	const moves = `!(!("default" in object) || object["default"] == null || type(object) != map) && object["default"] != false && object["default"] != "false"` +
		` || !(!("weight" in object) || object["weight"] == null || type(object) != map)` +
		` && !(!(!("weight" in oldObject) || oldObject["weight"] == null || type(oldObject) != map) && object["weight"] == oldObject["weight"])`
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha1.ClassKindSpec
		claims v1alpha1.ClaimKindSpec
		moves  bool
		want   string
	}{
		"Annotations": {
			reason: "We should ask for annotations by their keys, slashes included.",
			spec:   v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Annotation: "e.org/default"}, Weight: v1alpha1.Source{Annotation: "weight"}},
			want: `!(!("metadata" in object) || !("annotations" in object["metadata"]) || !("e.org/default" in object["metadata"]["annotations"])` +
				` || object["metadata"]["annotations"]["e.org/default"] == null` +
				` || type(object) != map || type(object["metadata"]) != map || type(object["metadata"]["annotations"]) != map)` +
				` && object["metadata"]["annotations"]["e.org/default"] != false && object["metadata"]["annotations"]["e.org/default"] != "false"` +
				` && !(!(!("metadata" in oldObject) || !("annotations" in oldObject["metadata"]) || !("e.org/default" in oldObject["metadata"]["annotations"])` +
				` || oldObject["metadata"]["annotations"]["e.org/default"] == null` +
				` || type(oldObject) != map || type(oldObject["metadata"]) != map || type(oldObject["metadata"]["annotations"]) != map)` +
				` && object["metadata"]["annotations"]["e.org/default"] == oldObject["metadata"]["annotations"]["e.org/default"])` +
				` || !(!("metadata" in object) || !("annotations" in object["metadata"]) || !("weight" in object["metadata"]["annotations"])` +
				` || object["metadata"]["annotations"]["weight"] == null` +
				` || type(object) != map || type(object["metadata"]) != map || type(object["metadata"]["annotations"]) != map)` +
				` && !(!(!("metadata" in oldObject) || !("annotations" in oldObject["metadata"]) || !("weight" in oldObject["metadata"]["annotations"])` +
				` || oldObject["metadata"]["annotations"]["weight"] == null` +
				` || type(oldObject) != map || type(oldObject["metadata"]) != map || type(oldObject["metadata"]["annotations"]) != map)` +
				` && object["metadata"]["annotations"]["weight"] == oldObject["metadata"]["annotations"]["weight"])` + cordoned,
		},
		"Paths": {
			reason: "We should ask for fields, and for the type of each parent last.",
			spec:   v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Path: ".default"}, Weight: v1alpha1.Source{Path: ".spec.weight"}},
			want: `!(!("default" in object) || object["default"] == null || type(object) != map) && object["default"] != false && object["default"] != "false"` +
				` && !(!(!("default" in oldObject) || oldObject["default"] == null || type(oldObject) != map) && object["default"] == oldObject["default"])` +
				` || !(!("spec" in object) || !("weight" in object["spec"]) || object["spec"]["weight"] == null || type(object) != map || type(object["spec"]) != map)` +
				` && !(!(!("spec" in oldObject) || !("weight" in oldObject["spec"]) || oldObject["spec"]["weight"] == null || type(oldObject) != map || type(oldObject["spec"]) != map)` +
				` && object["spec"]["weight"] == oldObject["spec"]["weight"])` + cordoned,
		},
		"Partitions": {
			reason: "We should be asked about every update of a class that is marked: it may move to another partition.",
			spec:   marks, claims: v1alpha1.ClaimKindSpec{Partition: &v1alpha1.Partition{Claim: "''", Class: "class.zone"}}, moves: true, want: moves + cordoned,
		},
		"Fits": {
			reason: "We should be asked about every update of a class that is marked: it may serve other claims.",
			spec:   marks, claims: v1alpha1.ClaimKindSpec{Fits: []v1alpha1.Fit{{Name: "A", Expression: "class.a"}}}, moves: true, want: moves + cordoned,
		},
		"OwnFits": {
			reason: "We should be asked the same where the class kind has the condition.",
			spec:   fits, moves: true, want: moves + cordoned,
		},
		"DefaultExpression": {
			reason: "We should be asked about every class where any field may be the mark.",
			spec:   v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Expression: "class.a"}, Weight: marks.Weight},
		},
		"WeightExpression": {
			reason: "We should be asked about every class where any field may be the weight.",
			spec:   v1alpha1.ClassKindSpec{Default: marks.Default, Weight: v1alpha1.Source{Expression: "class.a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			tc.spec.ClaimKinds = []string{"claims.e.org"}
			claimKinds := []v1alpha1.ClaimKind{
				{ObjectMeta: metav1.ObjectMeta{Name: "claims.e.org"}, Spec: tc.claims},
				{ObjectMeta: metav1.ObjectMeta{Name: "others.e.org"}, Spec: v1alpha1.ClaimKindSpec{Partition: &v1alpha1.Partition{Claim: "''", Class: "''"}}},
			}
			for _, c := range classConditions(&v1alpha1.ClassKind{Spec: tc.spec}, claimKinds) {
				got[*c.Name] = *c.Expression
			}
			want := map[string]string{
				"is-not-being-deleted": `!("metadata" in object) || !("deletionTimestamp" in object["metadata"])` +
					` || object["metadata"]["deletionTimestamp"] == null || type(object) != map || type(object["metadata"]) != map`,
			}
			switch {
			case tc.moves:
				want["has-a-mark-or-gets-a-weight"] = tc.want
			case tc.want != "":
				want["gets-a-mark-or-a-weight"] = tc.want
			}
			assert.Equal(t, want, got, tc.reason)
		})
	}
}
