package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// mayUse lets a subject use classes, everywhere or in one namespace.
func mayUse(name, namespace, subject, group, resource, class string) string {
	rules := fmt.Sprintf("rules: [{apiGroups: [%s], resources: [%s], resourceNames: [%s], verbs: [use]}]\n", group, resource, class)
	kind, in := "ClusterRole", ""
	if namespace != "" {
		kind, in = "Role", "namespace: "+namespace+", "
	}
	const api = "---\napiVersion: rbac.authorization.k8s.io/v1\n"
	return fmt.Sprintf("%skind: %s\nmetadata: {%sname: %s}\n%s%skind: %sBinding\nmetadata: {%sname: %s}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, %s}]\n",
		api, kind, in, name, rules, api, kind, in, name, kind, name, subject)
}

// as is a client of another user, who may write everything of a group.
func (w *world) as(t *testing.T, user, group string) client.Client {
	name := user + "." + group
	w.apply(t, strings.Replace(mayUse(name, "", "kind: User, name: "+user, group, "'*'", ""), "resourceNames: [], verbs: [use]",
		"verbs: [get, list, create, update, patch]", 1))
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c := must(newClient(config))(t)
	eventually(t, func(col *attempt) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(object(group, "Claim", "").GroupVersionKind())
		require.NoError(col, c.List(t.Context(), list))
	})
	return c
}

// naming is a claim with a reference in a namespace; "", it has none.
func naming(group, namespace, name, reference string) *unstructured.Unstructured {
	claim := object(group, "Claim", name)
	claim.SetNamespace(namespace)
	claim.Object["spec"] = map[string]any{}
	fields := map[string]any{}
	for field := range strings.FieldsSeq(reference) {
		key, value, _ := strings.Cut(field, "=")
		fields[key] = value
	}
	if len(fields) > 0 {
		claim.Object["spec"] = map[string]any{"classRef": fields}
	}
	return claim
}

func awaitWrites(t *testing.T, c client.Client, claim *unstructured.Unstructured, text, reason string) {
	eventually(t, func(col *attempt) {
		err := c.Create(t.Context(), claim.DeepCopy(), client.DryRunAll)
		if text == "" {
			require.NoError(col, err)
		} else {
			require.ErrorContains(col, err, text)
		}
	}, reason)
}

// TestUsePolicy has the API server itself check who may use the class that a claim names.
func TestUsePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t)
	const group, claims = "use.test", "claims.use.test"
	w.kubectl(t, "create", "namespace", "team-a")
	w.kubectl(t, "create", "namespace", "team-b")
	w.kubectl(t, "create", "namespace", "shared")
	w.resources(t, "Claim "+claims+" Namespaced", "Class classes."+group+" Cluster", "Pool pools."+group+" Namespaced", "Other others."+group+" Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}, namespaces: {from: All}}}")+
		classKind("classes."+group, "{claimKinds: [{name: "+claims+"}]}")+classKind("pools."+group, "{claimKinds: [{name: "+claims+"}]}")+
		class(group, "Class", "gold", "")+class(group, "Class", "iron", "")+class(group, "Pool", "big", "namespace: shared, ")+class(group, "Other", "gold", "")+
		mayUse("team-a-iron", "", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "classes", "iron")+
		mayUse("team-a-pool", "shared", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "pools", "big"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "the API server itself checks")
	const gold, iron, pool = "apiVersion=use.test/v1 kind=Class name=gold", "apiVersion=use.test/v1 kind=Class name=iron", "apiVersion=use.test/v1 kind=Pool name=big"
	awaitWrites(t, w, naming(group, "team-a", "probe", gold), "may not use the class", "We should see the API server check it.")
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "", "We should see the right in force.")

	// The admin writes all of these: the right of the namespace counts.
	refused := func(claim *unstructured.Unstructured, text string) {
		err := w.Create(t.Context(), claim)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, text)
	}
	check := func(when string) {
		refused(naming(group, "team-a", "gold-"+when, gold), `namespace "team-a" may not use the class "Class/gold" (verb use on classes.use.test "gold"): `+
			"classbind classes claims.use.test -n team-a lists what it may use")
		refused(naming(group, "team-a", "none-"+when, strings.Replace(gold, "gold", "none", 1)), `may not use the class "Class/none"`)
		require.NoError(t, w.Create(t.Context(), naming(group, "team-a", "iron-"+when, iron)), "We should let the namespace use what it may.")
		require.NoError(t, w.Create(t.Context(), naming(group, "team-a", "pool-"+when, pool+" namespace=shared")), "We should ask in the namespace of the class.")
		refused(naming(group, "team-a", "local-"+when, pool), `(verb use on pools.use.test "team-a/big")`)
		refused(naming(group, "team-b", "iron-"+when, iron), `namespace "team-b" may not use the class "Class/iron"`)
		refused(naming(group, "team-a", "other-"+when, "apiVersion=use.test/v1 kind=Other name=iron"), `the class "Other/iron" is of a kind that is not registered`)
		refused(naming(group, "team-a", "kindless-"+when, "name=iron"), `the class "/iron" is of a kind that is not registered`)
		number := naming(group, "team-a", "number-"+when, iron)
		number.Object["spec"].(map[string]any)["classRef"].(map[string]any)["name"] = int64(5)
		require.Error(t, w.Create(t.Context(), number), "We, or the API server, should refuse it.")
	}
	check("up")

	claim := naming(group, "team-a", "changing", iron)
	require.NoError(t, w.Create(t.Context(), claim))
	kubectl := func(user, change string) error {
		_, _, err := w.Kubectl(t.Context(), nil, "--as="+user, "-n=team-a", "patch", claims, "changing", "--type=merge", "-p="+change)
		return err
	}
	w.as(t, "ann", group)
	err := kubectl("ann", `{"spec":{"classRef":{"name":"gold"}}}`)
	require.ErrorContains(t, err, "Forbidden", "We should check a reference that changes.")
	require.ErrorContains(t, err, `may not use the class "Class/gold"`)
	require.NoError(t, kubectl("ann", `{"spec":{"classRef":{"name":"iron"}},"metadata":{"labels":{"a":"b"}}}`))
	w.kubectl(t, "delete", "clusterrolebinding", "team-a-iron")
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "may not use the class", "We should see the right taken away.")
	require.NoError(t, kubectl("ann", `{"metadata":{"labels":{"a":"c"}}}`), "We should let pass what does not touch the reference.")
	require.ErrorContains(t, kubectl("ann", `{"spec":{"classRef":{"namespace":"shared"}}}`), "may not use the class")
	w.apply(t, mayUse("team-a-iron", "", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "classes", "iron"))
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "", "We should see the right given back.")

	t.Run("Requester", func(t *testing.T) { w.useOfRequester(t) })
	t.Run("ClusterScoped", func(t *testing.T) { w.useOfClusterScoped(t) })
	t.Run("Default", func(t *testing.T) { w.useOfDefault(t) })

	require.NoError(t, r.Stop())
	check("down")

	w.serve(t)
	w.apply(t, claimKind(claims, "{reference: {path: .spec.classRef}, classes: {namespaces: {from: All}}}"))
	awaitWrites(t, w, naming(group, "team-a", "probe", gold), "", "We should check nothing where nobody says so.")
	name := client.ObjectKey{Name: claims + v1beta1.UseSuffix}
	eventually(t, func(c *attempt) {
		require.True(c, apierrors.IsNotFound(w.Get(context.Background(), name, &admissionregistrationv1.ValidatingAdmissionPolicy{})))
	})
}

func (w *world) useOfRequester(t *testing.T) {
	const group, claims = "requester.test", "claims.requester.test"
	w.register(t, group, "{reference: {path: .spec.className, form: Name}, classes: {use: {subject: Requester}}}", class(group, "Class", "gold", ""))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	ann, bob := w.as(t, "ann", group), w.as(t, "bob", group)
	w.apply(t, mayUse("ann-gold", "", "kind: User, name: ann", group, "classes", "gold"))
	of := func(name string) *unstructured.Unstructured {
		claim := naming(group, "default", name, "")
		claim.Object["spec"] = map[string]any{"className": "gold"}
		return claim
	}
	awaitWrites(t, ann, of("probe"), "", "We should see the right in force.")
	awaitWrites(t, bob, of("probe"), `user "bob" may not use the class "gold" (verb use on classes.requester.test "gold"): classbind classes claims.requester.test -n default`,
		"We should see the API server check it.")
	claim := of("claim")
	require.NoError(t, ann.Create(t.Context(), claim))
	claim.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, bob.Update(t.Context(), claim), "We should let others write what is no class.")
	claim.Object["spec"] = map[string]any{"className": "other"}
	err := bob.Update(t.Context(), claim)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	empty := of("empty")
	empty.Object["spec"] = map[string]any{"className": ""}
	require.NoError(t, bob.Create(t.Context(), empty), "We should let pass what names no class.")
}

func (w *world) useOfClusterScoped(t *testing.T) {
	const group, claims = "wide.test", "claims.wide.test"
	w.resources(t, "Claim "+claims+" Cluster", "Class classes."+group+" Cluster")
	spec := "{reference: {path: .spec.classRef}, classes: {use: {subject: %s}}}"
	w.apply(t, lateVendor(group)+claimKind(claims, fmt.Sprintf(spec, "Namespace"))+classKind("classes."+group, "{claimKinds: [{name: "+claims+"}]}")+
		class(group, "Class", "gold", ""))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionFalse, "set classes.use.subject of the ClaimKind to Requester")
	const gold = "apiVersion=wide.test/v1 kind=Class name=gold"
	awaitWrites(t, w, naming(group, "", "probe", gold), "these claims have no namespace", "We should let no claim pass unchecked.")
	w.apply(t, claimKind(claims, fmt.Sprintf(spec, "Requester")))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	awaitWrites(t, w, naming(group, "", "probe", gold), "", "We should let an admin use all.")
	awaitWrites(t, w.as(t, "ann", group), naming(group, "", "probe", gold), "classbind classes claims.wide.test lists what it may use", "We should name no namespace.")
}

func (w *world) useOfDefault(t *testing.T) {
	needsPolicies(t)
	const group, claims = "usedefault.test", "claims.usedefault.test"
	w.resources(t, "Claim "+claims+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, "{admission: {defaulting: Policy}, classes: {use: {subject: Namespace}}}")+
		classKind("classes."+group, "{claimKinds: [{name: "+claims+"}]}")+class(group, "Class", "usual", isDefault)+
		mayUse("default-usual", "", "kind: Group, name: 'system:serviceaccounts:default'", group, "classes", "usual"))
	w.awaitPolicy(t, claims, manifestOf(t, unopinionated(group, "probe")))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	before := w.boundByPolicy(t, claims)
	claim := unopinionated(group, "claim")
	require.NoError(t, w.Create(t.Context(), claim))
	assert.Equal(t, "Class/usual", classOf(claim))
	assert.Equal(t, 1, w.boundByPolicy(t, claims)-before)
	claim = unopinionated(group, "claim")
	claim.SetNamespace("team-b")
	if err := w.Create(t.Context(), claim); err == nil {
		assert.Empty(t, classOf(claim), "We should give no class that the claim may not use.")
	} else {
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
	}
	assert.Equal(t, 1, w.boundByPolicy(t, claims)-before, "We should take a default that may not be used for none.")
}
