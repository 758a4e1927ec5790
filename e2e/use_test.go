package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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
	c := w.impersonating(t, user)
	eventually(t, func(col *attempt) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(object(group, "Claim", "").GroupVersionKind())
		require.NoError(col, c.List(t.Context(), list))
	})
	return c
}

func (w *world) impersonating(t *testing.T, user string, groups ...string) client.Client {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return must(newClient(config))(t)
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
	w, r := servedWorld(t, controlplane.Options{})
	const group, claims = "use.test", "claims.use.test"
	w.namespaces(t, "team-a", "team-b", "shared")
	w.resources(t, "Pool pools."+group+" Namespaced", "Other others."+group+" Cluster")
	w.install(t, lateVendor(group)+claimKind(claims, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}, namespaces: {from: All}}}")+
		serving("classes."+group, claims)+serving("pools."+group, claims)+
		class(group, "Class", "gold", "")+class(group, "Class", "iron", "")+class(group, "Pool", "big", "namespace: shared, ")+class(group, "Other", "gold", "")+
		mayUse("team-a-iron", "", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "classes", "iron")+
		mayUse("team-a-pool", "shared", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "pools", "big"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, claims, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "the API server itself checks")
	const (
		gold = "apiVersion=use.test/v1 kind=Class name=gold"
		iron = "apiVersion=use.test/v1 kind=Class name=iron"
		pool = "apiVersion=use.test/v1 kind=Pool name=big"
	)
	awaitWrites(t, w, naming(group, "team-a", "probe", gold), "may not use the class", "We should see the API server check it.")
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "", "We should see the right in force.")

	// The admin writes all of these: the right of the namespace counts.
	refused := func(claim *unstructured.Unstructured, text string) {
		refusedWith(t, w.Create(t.Context(), claim), http.StatusForbidden, text)
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
	}
	check("up")

	claim := naming(group, "team-a", "changing", iron)
	require.NoError(t, w.Create(t.Context(), claim))
	change := func(patch string) error {
		return w.Patch(t.Context(), claim.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	refusedWith(t, change(`{"spec":{"classRef":{"name":"gold"}}}`), http.StatusForbidden, `may not use the class "Class/gold"`)
	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", "team-a-iron")
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "may not use the class", "We should see the right taken away.")
	require.NoError(t, change(`{"metadata":{"labels":{"a":"c"}}}`), "We should let pass what does not touch the reference.")
	w.apply(t, mayUse("team-a-iron", "", "kind: Group, name: 'system:serviceaccounts:team-a'", group, "classes", "iron"))
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "", "We should see the right given back.")

	t.Run("Requester", func(t *testing.T) { w.useOfRequester(t) })
	t.Run("Default", func(t *testing.T) { w.useOfDefault(t) })

	require.NoError(t, r.Stop())
	check("down")

	w.serve(t)
	w.apply(t, claimKind(claims, "{reference: {path: .spec.classRef}, classes: {namespaces: {from: All}}}"))
	awaitWrites(t, w, naming(group, "team-a", "probe", gold), "", "We should check nothing where nobody says so.")
	name := client.ObjectKey{Name: claims + v1beta1.UseSuffix}
	eventually(t, func(c *attempt) {
		require.True(c, apierrors.IsNotFound(w.Get(t.Context(), name, &admissionregistrationv1.ValidatingAdmissionPolicy{})))
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
	awaitWrites(t, bob, of("probe"), `user "bob" may not use the class "gold" (verb use on classes.requester.test "gold"): classbind classes `+
		`claims.requester.test -n default`,
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

func (w *world) useOfDefault(t *testing.T) {
	needsPolicies(t)
	const group, claims = "usedefault.test", "claims.usedefault.test"
	w.install(t, lateVendor(group)+claimKind(claims, "{admission: {defaulting: Policy}, classes: {use: {subject: Namespace}}}")+
		serving("classes."+group, claims)+class(group, "Class", "usual", isDefault)+
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

// followsRoles lets classbind follow roles and bindings.
const followsRoles = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: classbind-roles, labels: {classbind.io/aggregate-to-classbind: "true"}}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings, clusterroles, clusterrolebindings], verbs: [list, watch]}
`

func namespaceMayUse(group, namespace string, names ...string) string {
	return mayUse(group+"."+namespace, "", "kind: Group, name: 'system:serviceaccounts:"+namespace+"'", group, "classes", strings.Join(names, ", "))
}

// TestUse has 200 classes; namespaces may use one, or two, or none.
func TestUse(t *testing.T) {
	const group, classes = "draw.use.test", 200
	w, _ := sharedReplica(t)
	asked := func() (n int) {
		for _, outcome := range []string{"allowed", "refused"} {
			n += sharing.count(t, "classbind_access_reviews_total", map[string]string{"claim_kind": "claims.draw.use.test", "outcome": outcome})
		}
		return n
	}
	w.namespaces(t, "use-one", "use-two", "use-none", "use-later")
	const use = "classes: {kinds: [{name: classes." + group + "}], use: {subject: Namespace}}"
	w.register(t, group, "{reference: {path: .spec.classRef}, "+use+"}")
	w.resources(t, "Later laters."+group+" Namespaced")
	w.apply(t, strings.Replace(lateVendor(group), "name: classbind-"+group, "name: classbind-more-"+group, 1)+
		claimKind("laters."+group, "{whenUnmatched: BindLater, "+use+"}"))
	concurrently(t, classes, func(i int) error {
		return w.Create(t.Context(), object(group, "Class", fmt.Sprintf("class-%03d", i)))
	})
	w.awaitClasses(t, "classes."+group, classes)
	w.awaitClaims(t, "laters."+group)

	w.apply(t, followsRoles+namespaceMayUse(group, "use-two", "class-150")+namespaceMayUse(group, "use-one", "class-177"))
	eventually(t, func(c *attempt) { // A single claim may find its class by luck, among the first that the API server is asked about.
		for i := range 10 {
			claim, _, err := w.create(t, claimIn(group, "use-one", fmt.Sprint("probe-", i)), client.DryRunAll)
			require.NoError(c, err)
			require.Equal(c, "Class/class-177", classOf(claim))
		}
	}, "We should see the roles followed.")
	before := asked()
	second := w.binds(t, claimIn(group, "use-two", "claim"), "Class/class-150", "We should give the one class that the namespace may use.")
	after := asked()
	assert.Positive(t, after-before, "We should ask the API server.")
	assert.LessOrEqual(t, after-before, 3, "We should ask little.")
	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", group+".use-two")
	second.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, w.Update(t.Context(), second), "We should let an update pass that leaves the reference.")
	assert.Equal(t, after, asked(), "We should ask nothing for it.")

	w.apply(t, namespaceMayUse(group, "use-none", "class-001", "class-002"))
	eventually(t, func(c *attempt) {
		claim, warnings, err := w.create(t, strings.Replace(claimIn(group, "use-none", "asked"), "{}", "{matchLabels: {tier: gold}}", 1), client.DryRunAll)
		require.NoError(c, err)
		require.Empty(c, classOf(claim))
		require.Len(c, warnings, 1)
		require.Contains(
			c, warnings[0],
			`no class that namespace "use-none" may use matches the selector "tier=gold": it may use Class/class-001, Class/class-002; classbind classes`,
		)
	}, "We should report what it may use, and no other class.")

	later := strings.Replace(claimIn(group, "use-later", "waits"), "kind: Claim", "kind: Later", 1)
	w.binds(t, later, "", "We should not bind a claim that may use nothing.")
	w.apply(t, namespaceMayUse(group, "use-later", "class-121"))
	w.awaitStored(t, documents(t, later)[0], "Class/class-121", "We should bind it once its namespace may use a class.")
}

type offer struct {
	Classes []struct {
		Kind, Name string
		Labels     map[string]string
		Dropped    *struct{ Reason string }
	}
}

// TestUseClasses compares what "classbind classes" lists for a namespace and for a user with what claims of all labels get.
func TestUseClasses(t *testing.T) {
	const group = "classes.use.test"
	notInPods(t, "The command needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	var classes []string
	for i := range 12 {
		metadata := fmt.Sprintf("labels: {a: '%d', b: '%d'}, ", i%4, i%3)
		if i == 7 {
			metadata += "annotations: {classbind.io/cordoned: 'true'}, "
		}
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), metadata))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	w.resources(t, "Own owns."+group+" Namespaced")
	w.namespaces(t, "classes-team")
	w.apply(t, followsRoles+claimKind("owns."+group, "{classes: {kinds: [{name: classes."+group+"}], use: {subject: Requester}}}")+
		namespaceMayUse(group, "classes-team", "class-1", "class-5", "class-6", "class-7")+
		mayUse("classes-user", "", "kind: User, name: classes-user", group, "classes", "class-0, class-7, class-8"))
	for _, kind := range []string{"claims.", "owns."} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+group, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	}
	for kind, by := range map[string]client.Client{"Claim": w, "Own": w.as(t, "classes-user", group)} {
		args := []string{"classes", strings.ToLower(kind) + "s." + group, "-n", "classes-team", "-o", "json", "--kubeconfig=" + w.plane.Kubeconfig}
		if kind == "Own" {
			args = append(args, "--requester=classes-user")
		}
		report := reportOf[struct{ Items []offer }](t, w, args...)
		require.Len(t, report.Items, 1)
		require.Len(t, report.Items[0].Classes, 12, "We should list every class.")
		got := map[bool]int{}
		for i := range 16 {
			want := map[string]any{"a": fmt.Sprint(i % 4)}
			if i/4 < 3 {
				want["b"] = fmt.Sprint(i / 4)
			}
			may := []string{}
			for _, c := range report.Items[0].Classes {
				if c.Dropped == nil && c.Labels["a"] == want["a"] && (want["b"] == nil || c.Labels["b"] == want["b"]) {
					may = append(may, c.Kind+"/"+c.Name)
				}
			}
			got[len(may) > 0]++
			if len(may) == 0 {
				may = []string{""}
			}
			eventually(t, func(c *attempt) { // A right takes a moment, and an answer is kept for some.
				claim := selecting(group, kind, "classes-team", fmt.Sprint("claim-", i), want)
				require.NoError(c, by.Create(t.Context(), claim, client.DryRunAll))
				require.Contains(c, may, classOf(claim), "We should give one of those that were listed, or none: %v", want)
			})
		}
		assert.Positive(t, min(got[true], got[false]), "We should try claims that get a class, and some that get none.")
	}
}

// useAuthorizer answers the API server, after RBAC, for the namespaces of TestUseAuthorizer.
func useAuthorizer(w http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	namespace := ""
	for _, g := range review.Spec.Groups {
		_, _ = fmt.Sscanf(g, "system:serviceaccounts:%s", &namespace)
	}
	if a := review.Spec.ResourceAttributes; a != nil && a.Verb == "use" {
		switch namespace {
		case "fails":
			http.Error(w, "no answer", http.StatusBadRequest)
			return
		case "denied":
			review.Status.Denied = a.Name == "class-1"
		case "allowed":
			review.Status.Allowed = a.Name == "class-5"
		}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// TestUseAuthorizer has another authorizer beside RBAC, which fails, denies or allows. That one which hangs does no harm is tested beside the gate.
func TestUseAuthorizer(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "authorizer.use.test"
	server := httptest.NewTLSServer(http.HandlerFunc(useAuthorizer))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "authorizer.kubeconfig")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"+
		"clusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}]\n", server.URL), 0o600))
	w := newWorld(t, controlplane.Options{APIServerFlags: map[string]string{
		"authorization-mode": "RBAC,Webhook", "authorization-webhook-config-file": config, "authorization-webhook-version": "v1",
	}})
	w.serve(t)
	var classes []string
	for i := range 8 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	w.namespaces(t, "fails", "denied", "allowed", "roles")
	w.apply(t, followsRoles+namespaceMayUse(group, "allowed", "class-1")+namespaceMayUse(group, "roles", "class-1"))
	w.awaitBound(t, claimIn(group, "roles", "probe"), "Class/class-1", "We should see the roles followed.")

	said := w.refuses(t, claimIn(group, "fails", "claim"), "cannot determine which classes are not allowed", "We should give no class where an authorizer fails.")
	assert.NotContains(t, said, "class-", "We should name none.")
	claim, warnings := w.warned(t, claimIn(group, "denied", "claim"))
	assert.Empty(t, classOf(claim), "We should give no class that is denied.")
	require.Len(t, warnings, 1)
	w.awaitBound(t, claimIn(group, "allowed", "claim"), "Class/class-1", "We should prefer what a role allows, once it is known.")
	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", group+".allowed")
	w.awaitBound(t, claimIn(group, "allowed", "other"), "Class/class-5", "We should honour another authorizer.")
}
