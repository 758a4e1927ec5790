package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
)

// storedClaims are created before their kind is registered.
const storedClaims = `---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: gold}
spec: {classSelector: {matchLabels: {tier: gold}}, size: 3}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: bronze}
spec: {classSelector: {matchLabels: {tier: bronze}}}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: malformed}
spec: {classSelector: gold}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: paused}
spec: {classSelector: {}, paused: true}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: taken}
spec: {classRef: {apiVersion: stored.test/v1, kind: Class, name: mine}}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: default, name: static}
spec: {classRef: {}}
---
apiVersion: stored.test/v1
kind: Claim
metadata: {namespace: stored-other, name: elsewhere}
spec: {classSelector: {}}
`

// TestBindStored has claims that were stored before their kind was registered, and does with them what an admin would.
func TestBindStored(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	const group, kind = "stored.test", "claims.stored.test"
	w.namespaces(t, "stored-other")
	w.resources(t, "Claim "+kind+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, storedClaims)
	w.serves(t, vendor(group)+claimKind(kind, `{reference: {path: .spec.classRef, whenEmpty: LeaveAlone}, claims: {when: "!(has(claim.spec) && `+
		`has(claim.spec.paused))", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}}`)+
		serving("classes."+group, kind)+class(group, "Class", "gold", "labels: {tier: gold}, "))
	before := w.claimsIn(t, group, "")
	admin := w.plane.Kubeconfig
	run := func(kubeconfig string, args ...string) (string, int) {
		out, stderr, exit := w.classbind(t, append(args, "--kubeconfig="+kubeconfig)...)
		return out + stderr, exit
	}
	out, exit := run(admin, "explain", "claim.stored.test/gold", "--namespace=default")
	assert.Equal(t, 1, exit, out)
	assert.Contains(t, out, "Claim default/gold: stored without a class; created now, it would get Class/gold\n", "We should not say that the claim is bound.")
	assert.Contains(t, out, "classbind bind claims.stored.test gold --namespace default", "We should say how it is bound.")

	report, _, _ := w.status(t, admin)
	section := report.Sections[len(report.Sections)-1]
	assert.Equal(t, 2, section.Unbound[kind], "We should count the claims that are stored without a class: %+v", section)
	notes := strings.Join(section.Notes, "\n")
	assert.Contains(t, notes, "2 claims have no class: default/bronze, default/gold", "We should say which they are.")
	assert.Regexp(t, "classbind bind [a-z.]+ --all-namespaces --dry-run shows", notes, "We should name the command that binds them.")

	viewer := must(w.plane.UserKubeconfig("bind-viewer"))(t)
	w.kubectl(
		t, "create", "clusterrole", "bind-viewer", "--verb=list,get",
		"--resource=claimkinds.classbind.io,classkinds.classbind.io,claims.stored.test,classes.stored.test,namespaces",
	)
	w.kubectl(t, "create", "clusterrolebinding", "bind-viewer", "--clusterrole=bind-viewer", "--user=bind-viewer")
	out, exit = run(viewer, "bind", kind, "-A", "--dry-run")
	assert.Equal(t, 2, exit, "We should fail with a malformed claim.")
	assert.Contains(t, out, "1 bound, 1 without a class, 3 left alone, 1 failed; 1 had their class (dry run)\n", "We should say what would become of each.")
	out, exit = run(viewer, "bind", kind, "-A")
	assert.Equal(t, 2, exit)
	assert.Contains(t, out, `cannot patch resource "claims"`, "We should say which right is missing.")
	assert.Equal(t, before, w.claimsIn(t, group, ""), "We should have written nothing.")

	out, exit = run(admin, "bind", "Claim.stored.test", "taken", "bronze", "--namespace=default")
	assert.Contains(t, out, "0 bound, 1 without a class, 1 left alone, 0 failed", "We should bind the named claims alone.")
	assert.Equal(t, 1, exit, "We should say that there is no class.")
	out, exit = run(admin, "bind", kind, "--all-namespaces")
	assert.Equal(t, 2, exit, out)
	for _, line := range []string{
		"default/gold: bound to Class/gold\n", "default/bronze: not bound (NoMatchingClass): no class for this claim",
		"default/malformed: not bound (MalformedClaim): spec.classSelector",
		"default/paused: left alone (NotYet)", "stored-other/elsewhere: left alone (NamespaceNotSelected)",
		"1 bound, 1 without a class, 3 left alone, 1 failed; 1 had their class\n",
	} {
		assert.Contains(t, out, line)
	}
	for i, after := range w.claimsIn(t, group, "") {
		if after.GetName() == "gold" {
			boundAlone(t, &before[i], &after)
		} else {
			assert.Equal(t, before[i], after, "We should not write a claim that gets no class.")
		}
	}
}

// boundAlone checks that a claim got the reference to its class by one write, and that nothing else of it changed.
func boundAlone(t *testing.T, before, after *unstructured.Unstructured) {
	assert.NotEmpty(t, classOf(after), "We should bind the claim %s.", after.GetName())
	assert.Equal(t, before.GetGeneration()+1, after.GetGeneration(), "We should write the claim once.")
	managed := after.GetManagedFields()
	if i := slices.IndexFunc(managed, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == v1beta1.FieldManager }); assert.GreaterOrEqual(
		t, i, 0, "%+v", managed,
	) {
		own := map[string]map[string]any{}
		assert.NoError(t, json.Unmarshal(managed[i].FieldsV1.GetRawBytes(), &own))
		assert.Len(t, own, 1)
		assert.Len(t, own["f:spec"], 1)
		assert.Contains(t, own["f:spec"], "f:classRef", "We should own the reference alone.")
		managed = slices.Delete(managed, i, i+1)
	}
	rest := after.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, "spec", "classRef")
	rest.SetManagedFields(managed)
	rest.SetGeneration(before.GetGeneration())
	rest.SetResourceVersion(before.GetResourceVersion())
	assert.Equal(t, before.Object, rest.Object, "We should change nothing else.")
}
