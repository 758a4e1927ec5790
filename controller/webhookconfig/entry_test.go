package webhookconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
)

// TestEntries compares all of an entry with what the API server gets.
func TestEntries(t *testing.T) {
	// entry has these fields beside those that all have.
	entry := func(name, path, rule, namespaces, more string) string {
		return fmt.Sprintf(`{
			"name": %q,
			"clientConfig": {"service": {"namespace": "classbind-system", "name": "classbind", "path": %q, "port": 443}, "caBundle": "UEVN"},
			"rules": [{%s}],
			"matchPolicy": "Equivalent",
			"namespaceSelector": {%s{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "classbind-system"]}`+namespaces+`]},
			"admissionReviewVersions": ["v1"],
			%s
		}`, name, path, rule, map[bool]string{true: `"matchLabels": {"env": "prod"}, `}[namespaces != ""]+`"matchExpressions": [`, more)
	}
	const ( // They ask for the type of each parent last, after what identifies most claims.
		noReference = `!("spec" in object) || !("classRef" in object["spec"]) || object["spec"]["classRef"] == null || type(object) != map || ` +
			`type(object["spec"]) != map` +
			` || [object["spec"]["classRef"]].exists(r, type(r) == map && !(has(r.name) && type(r.name) == string && r.name != ""))`
		noResource = `request.operation == "UPDATE" || !("spec" in object) || !("resourceRef" in object["spec"]) || object["spec"]["resourceRef"] ` +
			`== null || type(object) != map || type(object["spec"]) != map`
		loses = `request.operation == "CREATE" || !has(object.metadata.deletionTimestamp)` +
			` && !(!("spec" in oldObject) || !("classRef" in oldObject["spec"]) || oldObject["spec"]["classRef"] == null || type(oldObject) != map || ` +
			`type(oldObject["spec"]) != map` +
			` || [oldObject["spec"]["classRef"]].exists(r, type(r) == map && !(has(r.name) && type(r.name) == string && r.name != "")))`
	)
	claim := func(failurePolicy admissionregistrationv1.FailurePolicyType) string {
		return entry("claims.example.org.bind.classbind.io", "/bind/claims.example.org",
			`"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["claims"], "scope": "Namespaced"`,
			`, {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system"]}`,
			fmt.Sprintf(`"failurePolicy": %q, "reinvocationPolicy": "Never", "sideEffects": "None", "timeoutSeconds": 3, "matchConditions": [
				{"name": "class-reference-is-not-set", "expression": %q},
				{"name": "skip-if-set-0-is-not-set", "expression": %q},
				{"name": "is-created-or-unbound", "expression": %q}]`, failurePolicy, noReference, noResource, loses))
	}
	deletion := entry("golds.example.org.deletion.classbind.io", "/deletion",
		`"operations": ["DELETE"], "apiGroups": ["example.org"], "apiVersions": ["*"], "resources": ["golds"], "scope": "Cluster"`, "",
		`"failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 1, "matchConditions": [{"name": "is-not-by-a-controller", `+
			`"expression": "!(request.userInfo.username in [`+
			`\"system:serviceaccount:kube-system:namespace-controller\", \"system:serviceaccount:kube-system:generic-garbage-collector\", `+
			`\"system:kube-controller-manager\"])"}]`)
	registration := entry("registrations.classbind.io", "/registration",
		`"operations": ["CREATE", "UPDATE"], "apiGroups": ["classbind.io"], "apiVersions": ["v1beta1"], "resources": ["claimkinds", "classkinds"], `+
			`"scope": "Cluster"`,
		"",
		`"failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 3`)
	a, pem := Address{Namespace: "classbind-system", Service: "classbind"}, []byte("PEM")
	check := func(want string, e Entry, reason string) {
		t.Helper()
		got, err := json.Marshal(e)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got), reason)
	}
	found := cluster.Resource{Namespaced: true}
	found.Version = "v1"
	for policy, want := range map[v1beta1.FailurePolicy]admissionregistrationv1.FailurePolicyType{"Fail": "Fail", "Ignore": "Ignore", "Retry": "Fail"} {
		k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) {
			k.Spec.Admission.FailurePolicy = policy
			k.Spec.Claims.NamespaceSelector = v1beta1.LabelSelector{
				MatchLabels: map[string]v1beta1.LabelValue{"env": "prod"},
				MatchExpressions: []v1beta1.LabelSelectorRequirement{
					{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []v1beta1.LabelValue{"kube-system"}},
				},
			}
		})
		check(claim(want), a.claimEntry(&k, *servedRule(k.Name, found), pem, ""),
			"We should take over the failure policy, unless it is of another release and would spoil the configuration, which all share.")
	}

	found.Namespaced = false
	golds, rule := classKind("golds.example.org", ""), servedRule("golds.example.org", found)
	denying := strings.NewReplacer(`"Ignore"`, `"Fail"`, `"timeoutSeconds": 1`, `"timeoutSeconds": 3`).Replace(deletion)
	for answer, want := range map[v1beta1.OnDelete]string{
		"":                     deletion,
		v1beta1.WarnOfDeletion: deletion,
		v1beta1.DenyDeletion:   denying,
		"FromALaterRelease":    denying,
	} {
		kind := onDelete(answer, golds)
		check(want, a.deletionEntry(&kind, *rule, pem), "We should hold up no deletion, nor refuse one, unless it is to be refused.")
	}
	check(registration, a.registrationEntry(pem), "We should be asked about registrations, and stop none while we do not answer.")
	rule.Operations = append(rule.Operations, admissionregistrationv1.Update)
	golds.Spec.Default, golds.Spec.Weight = v1beta1.Source{Annotation: "default"}, v1beta1.Source{Annotation: "weight"}
	conditions, err := json.Marshal(classConditions(&golds, nil))
	require.NoError(t, err)
	class := entry("golds.example.org.guard.classbind.io", "/guard",
		`"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["golds"], "scope": "Cluster"`, "",
		`"failurePolicy": "Fail", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 3, "matchConditions": `+string(conditions))
	check(class, a.classEntry(&golds, nil, *rule, pem), "We should have two defaults refused, even while we do not answer.")

	const longest = 230 // of the name of a ClassKind: see its schema
	assert.LessOrEqual(t, longest+len(v1beta1.DeletionSuffix), 253, "We should have room for the name of the longest kind.")
	for url, want := range map[string]string{ // Without two slashes, and with the path of a proxy.
		"https://localhost:9443":  "https://localhost:9443/guard",
		"https://localhost:9443/": "https://localhost:9443/guard",
		"https://proxy/classbind": "https://proxy/classbind/guard",
	} {
		a.URL = url
		config := a.classEntry(&golds, nil, *rule, pem).ClientConfig
		assert.Equal(t, admissionregistrationv1.WebhookClientConfig{URL: &want, CABundle: pem}, config, "We should have a URL called, and no Service.")
	}
}
