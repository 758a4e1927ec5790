package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
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

func (w *world) impersonating(t *testing.T, user string) client.Client {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return must(newClient(config))(t)
}

// naming is a claim with a reference in a namespace; "", it has none.
func naming(group, namespace, name, reference string) *unstructured.Unstructured {
	claim, spec := object(group, "Claim", name), map[string]any{}
	claim.SetNamespace(namespace)
	for field := range strings.FieldsSeq(reference) {
		key, value, _ := strings.Cut(field, "=")
		_ = unstructured.SetNestedField(spec, value, "classRef", key)
	}
	claim.Object["spec"] = spec
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
	const gold, iron, pool = "apiVersion=use.test/v1 kind=Class name=gold", "apiVersion=use.test/v1 kind=Class name=iron", "apiVersion=use.test/v1 kind=Pool name=big"
	awaitWrites(t, w, naming(group, "team-a", "probe", gold), "may not use the class", "We should see the API server check it.")
	awaitWrites(t, w, naming(group, "team-a", "probe", iron), "", "We should see the right in force.")

	// The admin writes all of these: the right of the namespace counts.
	refused := func(claim *unstructured.Unstructured, text string) {
		err := w.Create(t.Context(), claim)
		refusedWith(t, err, http.StatusForbidden, text)
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
	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", "team-a-iron")
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
	w.apply(t, lateVendor(group)+claimKind(claims, fmt.Sprintf(spec, "Namespace"))+serving("classes."+group, claims)+
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

func claimIn(group, namespace, name string) string {
	return strings.Replace(claim(group, name), "namespace: default", "namespace: "+namespace, 1)
}

// accessReviews are those about the use of classes of a group that classbind asked.
func (w *world) accessReviews(t *testing.T) (n int) {
	for _, e := range w.audited(t) {
		if e.ObjectRef != nil && e.ObjectRef.Resource == "subjectaccessreviews" && e.Verb == "create" && e.Stage == auditv1.StageResponseComplete &&
			strings.Contains(e.User.Username, "classbind") {
			n++
		}
	}
	return n
}

// TestUse has 1,000 classes, of which namespaces may use one, or two, or none.
func TestUse(t *testing.T) {
	t.Parallel()
	const group, classes = "use.test", 1000
	w, _ := servedWorld(t, controlplane.Options{Audit: true})
	w.namespaces(t, "one", "two", "none", "later")
	const use = "classes: {kinds: [{name: classes." + group + "}], use: {subject: Namespace}}"
	w.register(t, group, "{reference: {path: .spec.classRef}, "+use+"}")
	w.resources(t, "Open opens."+group+" Namespaced", "Later laters."+group+" Namespaced")
	w.apply(t, strings.Replace(lateVendor(group), "name: classbind-"+group, "name: classbind-more-"+group, 1)+
		claimKind("opens."+group, "{classes: {kinds: [{name: classes."+group+"}]}}")+
		claimKind("laters."+group, "{whenUnmatched: BindLater, "+use+"}"))
	concurrently(t, classes, func(i int) error {
		return w.Create(t.Context(), object(group, "Class", fmt.Sprintf("class-%03d", i)))
	})
	w.awaitClasses(t, "classes."+group, classes)
	w.awaitClaims(t, "opens."+group)
	w.awaitClaims(t, "laters."+group)

	w.apply(t, namespaceMayUse(group, "one", "class-777")+namespaceMayUse(group, "two", "class-500")+followsRoles)
	w.awaitBound(t, claimIn(group, "one", "probe"), "Class/class-777", "We should see the roles followed.")
	reviews := w.accessReviews(t)
	w.binds(t, claimIn(group, "two", "first"), "Class/class-500", "We should give the one class that the namespace may use.")
	asked := w.accessReviews(t)
	assert.Positive(t, asked-reviews, "We should ask the API server.")
	assert.LessOrEqual(t, asked-reviews, 3, "We should ask little.")
	second := w.binds(t, claimIn(group, "two", "second"), "Class/class-500", "We should give it again.")
	assert.Equal(t, asked, w.accessReviews(t), "We should keep the answer.")
	open := strings.Replace(claimIn(group, "none", "open"), "kind: Claim", "kind: Open", 1)
	_, warnings := w.warned(t, open)
	assert.Empty(t, warnings)
	assert.Equal(t, asked, w.accessReviews(t), "We should ask nothing where all may use all.")
	timed := func(claim string) (took []time.Duration) {
		for i := range 100 {
			began := time.Now()
			w.created(t, strings.Replace(claim, "name: ", fmt.Sprintf("name: timed-%d-", i), 1))
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	all, one := timed(open), timed(claimIn(group, "two", "one"))
	t.Logf("a create took %v (p50), %v (p99), and where all may use all %v, %v", one[50], one[99], all[50], all[99])

	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", group+".two")
	asked = w.accessReviews(t)
	second.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, w.Update(t.Context(), second), "We should let an update pass that leaves the reference.")
	assert.Equal(t, asked, w.accessReviews(t), "We should ask nothing for it.")

	refused := func(name string) string {
		claim, warnings := w.warned(t, strings.Replace(claimIn(group, "none", name), "{}", "{matchLabels: {tier: gold}}", 1))
		assert.Empty(t, classOf(claim))
		require.Len(t, warnings, 1)
		return warnings[0]
	}
	const said = `no class that namespace "none" may use matches the selector "tier=gold"`
	assert.Equal(t, said+", nor any other that is known; classbind classes claims.use.test shows all that a claim can get with -n none", refused("refused"))
	w.apply(t, namespaceMayUse(group, "none", "class-001", "class-002"))
	eventually(t, func(c *attempt) {
		claim, warnings, err := w.create(t, strings.Replace(claimIn(group, "none", "asked"), "{}", "{matchLabels: {tier: gold}}", 1), client.DryRunAll)
		require.NoError(c, err)
		require.Empty(c, classOf(claim))
		require.Len(c, warnings, 1)
		require.Contains(c, warnings[0], said+": it may use Class/class-001, Class/class-002; classbind classes")
	}, "We should tell what it may use, and of no other class.")

	later := strings.Replace(claimIn(group, "later", "waits"), "kind: Claim", "kind: Later", 1)
	w.binds(t, later, "", "We should not bind a claim that may use nothing.")
	w.apply(t, namespaceMayUse(group, "later", "class-321"))
	eventually(t, func(c *attempt) {
		o := object(group, "Later", "waits")
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Namespace: "later", Name: "waits"}, o))
		require.Equal(c, "Class/class-321", classOf(o))
	}, "We should bind it once its namespace may use a class.")
}

// TestUseOfNamespaces has 150 classes in a namespace, of which a Role there lets another namespace use one. Only who knows that
// Role comes to it: without, a claim may be refused a hundred of them.
func TestUseOfNamespaces(t *testing.T) {
	const group = "namespaces.use.test"
	w := sharedWorld(t)
	w.namespaces(t, "use-pools", "use-tenant")
	w.resources(t, "Class classes."+group+" Namespaced")
	w.install(t, kinds(group, "{classes: {namespaces: {from: All}, use: {subject: Namespace}}}"))
	concurrently(t, 150, func(i int) error {
		class := object(group, "Class", fmt.Sprintf("class-%03d", i))
		class.SetNamespace("use-pools")
		return w.Create(t.Context(), class)
	})
	w.awaitClasses(t, "classes."+group, 150)
	w.awaitClaims(t, "claims."+group)
	w.apply(t, followsRoles+mayUse("use-one", "use-pools", "kind: Group, name: 'system:serviceaccounts:use-tenant'", group, "classes", "class-042"))
	for i := range 5 {
		w.awaitBound(t, claimIn(group, "use-tenant", fmt.Sprint("claim-", i)), "Class/class-042", "We should follow the roles of namespaces.")
	}
	w.kubectl(t, "delete", "rolebinding", "use-one", "-n", "use-pools")
	w.awaitBound(t, claimIn(group, "use-tenant", "late"), "", "We should see the right taken away.")
}

// TestUseShares draws 20,000 times for two namespaces with different rights.
func TestUseShares(t *testing.T) {
	long(t)
	const group, draws = "shares.use.test", 20_000
	w, _ := servedWorld(t, controlplane.Options{})
	var classes []string
	for i := range 6 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), fmt.Sprintf("annotations: {classbind.io/weight: '%d'}, ", i+1)))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	for namespace, may := range map[string][]int{"a": {0, 2, 4}, "b": {1, 2, 3, 5}} {
		w.namespaces(t, namespace)
		names, weights := []string{}, 0
		for _, i := range may {
			names, weights = append(names, fmt.Sprint("class-", i)), weights+i+1
		}
		w.apply(t, namespaceMayUse(group, namespace, names...)+followsRoles)
		eventually(t, func(c *attempt) {
			claim, _, err := w.create(t, claimIn(group, namespace, "probe"), client.DryRunAll)
			require.NoError(c, err)
			require.NotEmpty(c, classOf(claim))
		})
		var mu sync.Mutex
		got := map[string]float64{}
		concurrently(t, draws/2, func(i int) error {
			claim := selecting(group, "Claim", namespace, fmt.Sprint("claim-", i), nil)
			err := w.Create(t.Context(), claim, client.DryRunAll)
			mu.Lock()
			defer mu.Unlock()
			got[classOf(claim)]++
			return err
		})
		chi := 0.0
		for _, i := range may {
			want := float64(draws/2) * float64(i+1) / float64(weights)
			off := got[fmt.Sprint("Class/class-", i)] - want
			chi += off * off / want
			delete(got, fmt.Sprint("Class/class-", i))
		}
		assert.Empty(t, got, "We should give nothing else.")
		t.Logf("namespace %s: chi-square %.2f with %d degrees of freedom", namespace, chi, len(may)-1)
		assert.Less(t, chi, 16.3, "We should keep the weights among those that the namespace may use (p = 0.001 with 3 degrees of freedom).")
	}
}

type right struct{ tenant, class string }

type rights struct {
	mu sync.Mutex
	// times when a tenant had each of them: from before the binding was written until after it was deleted.
	times map[right][]period
}

type period struct{ from, to time.Time } // to is zero as long as it lasts

func (r *rights) change(ctx context.Context, c client.Client, of right) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "history:" + of.tenant + ":" + of.class}}
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "history:" + of.class}
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + of.tenant}}
	if all := r.times[of]; len(all) > 0 && all[len(all)-1].to.IsZero() {
		err := c.Delete(ctx, binding)
		all[len(all)-1].to = time.Now()
		return err
	}
	r.times[of] = append(r.times[of], period{from: time.Now()})
	return c.Create(ctx, binding)
}

func (r *rights) had(of right, at period) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.times[of], func(p period) bool {
		return !p.from.After(at.to) && (p.to.IsZero() || !p.to.Before(at.from))
	})
}

// TestUseHistory has four tenants create 10,000 claims through two API servers, by admission, late binding, a policy and
// explicit references, while rights change ten times a second. No claim gets a class that its namespace did not have the
// right to use within 10 s before that was stored.
func TestUseHistory(t *testing.T) {
	long(t)
	needsPolicies(t)
	const group, tenants, classes, claims = "history.use.test", 4, 10, 10_000
	w := newWorld(t, controlplane.Options{APIServers: 2})
	w.serveBehind(t, 2)
	const use = "classes: {kinds: [{name: classes." + group + "}], use: {subject: Namespace}}"
	var offered []string
	roles := followsRoles
	for i := range classes {
		metadata := ""
		if i == 1 {
			metadata = isDefault
		}
		name := fmt.Sprint("class-", i)
		offered = append(offered, class(group, "Class", name, metadata))
		roles += fmt.Sprintf("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'history:%[1]s'}\n"+
			"rules: [{apiGroups: [%[2]s], resources: [classes], resourceNames: [%[1]s], verbs: [use]}]\n", name, group)
	}
	w.apply(t, roles)
	w.register(t, group, "{reference: {path: .spec.classRef}, "+use+"}", offered...)
	w.resources(t, "Later laters."+group+" Namespaced", "Policy policies."+group+" Namespaced")
	w.serves(t, claimKind("laters."+group, "{whenUnmatched: BindLater, "+use+"}")+claimKind("policies."+group, "{admission: {defaulting: Policy}, "+use+"}"))
	w.namespaces(t, "tenant-0", "tenant-1", "tenant-2", "tenant-3")
	for _, kind := range []string{"claims", "laters", "policies"} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+"."+group, "UseEnforced", metav1.ConditionTrue, "")
	}
	clients := make([]client.Client, len(w.plane.Configs))
	for i, config := range w.plane.Configs {
		clients[i] = must(newClient(config))(t)
	}

	// Of each tenant, two classes are never allowed, some rights come and go each second, and others seldom.
	r := &rights{times: map[right][]period{}}
	var often, seldom []right
	for i := range tenants {
		for j := range classes {
			switch of := (right{fmt.Sprint("tenant-", i), fmt.Sprint("class-", j)}); {
			case (i+j)%5 == 0:
			case j%5 == 1:
				often = append(often, of)
			default:
				seldom = append(seldom, of)
			}
		}
	}
	concurrently(t, 100, func(i int) error { // These wait for a right.
		return clients[i%len(clients)].Create(t.Context(), selecting(group, "Later", fmt.Sprint("tenant-", i%tenants), fmt.Sprint("waits-", i), nil))
	})
	for _, of := range append(slices.Clone(often), seldom[:len(seldom)/2]...) {
		require.NoError(t, r.change(t.Context(), clients[0], of))
	}
	ctx := t.Context()
	until, stop := context.WithCancel(ctx)
	var changing errgroup.Group
	changes := 0
	changing.Go(func() error {
		turn := time.NewTicker(time.Second / 10)
		defer turn.Stop()
		for ; ; changes++ {
			select {
			case <-until.Done():
				return nil
			case <-turn.C:
			}
			of := often
			if changes%5 == 0 {
				of = seldom
			}
			if err := r.change(ctx, clients[changes%len(clients)], of[rand.IntN(len(of))]); err != nil { //nolint:gosec // It need not be secret.
				return err
			}
		}
	})
	var mu sync.Mutex
	outcomes := map[string]int{}
	concurrently(t, claims, func(i int) error {
		kind := []string{"Claim", "Later", "Policy", "Claim"}[i/tenants%4]
		claim, how := selecting(group, kind, fmt.Sprint("tenant-", i%tenants), fmt.Sprint("claim-", i), nil), kind
		switch i / tenants % 4 {
		case 3:
			how = "explicit"
			claim.Object["spec"] = map[string]any{"classRef": map[string]any{
				"apiVersion": group + "/v1", "kind": "Class", "name": fmt.Sprint("class-", rand.IntN(classes)), //nolint:gosec // It need not be secret.
			}}
		case 2: // It asks for the default class.
			delete(claim.Object, "spec")
		}
		err := clients[i%len(clients)].Create(t.Context(), claim)
		switch {
		case apierrors.IsForbidden(err):
			how += " refused"
		case err != nil:
			return err
		case classOf(claim) == "":
			how += " without"
		}
		mu.Lock()
		defer mu.Unlock()
		outcomes[how]++
		return nil
	})
	stop()
	require.NoError(t, changing.Wait())
	wrong, judged, later := 0, 0, 0
	for _, kind := range []string{"Claim", "Later", "Policy"} {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(object(group, kind+"List", "").GroupVersionKind())
		require.NoError(t, w.List(t.Context(), all))
		for i := range all.Items {
			claim := &all.Items[i]
			name, has := strings.CutPrefix(classOf(claim), "Class/")
			if !has {
				continue
			}
			if judged++; kind == "Later" {
				later++
			}
			stored := claim.GetCreationTimestamp().Time
			for _, m := range claim.GetManagedFields() { // In seconds.
				if m.Time != nil && m.Time.After(stored) {
					stored = m.Time.Time
				}
			}
			if !r.had(right{claim.GetNamespace(), name}, period{stored.Add(-10 * time.Second), stored.Add(time.Second)}) {
				wrong++
				t.Errorf("%s %s/%s has %s, which it had no right to use since 10 s before %v", kind, claim.GetNamespace(), claim.GetName(), name, stored)
			}
		}
	}
	t.Logf("%d claims: %v; %d changes of rights; %d claims with a class, %d without the right to it", claims, outcomes, changes, judged, wrong)
	for _, how := range []string{"Claim", "Later", "Policy", "explicit", "explicit refused"} {
		assert.Positive(t, outcomes[how], how)
	}
	assert.Greater(t, later, outcomes["Later"], "We should have bound some of those that waited.")
}

type offer struct {
	Classes []struct {
		Kind, Name string
		Labels     map[string]string
		Dropped    *struct{ Reason string }
	}
}

// TestUseClasses compares what "classbind classes" lists for five namespaces and five users with what 500 claims get.
func TestUseClasses(t *testing.T) {
	const group, claims = "classes.use.test", 50
	notInPods(t, "The command needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	var classes []string
	for i := range 24 {
		metadata := fmt.Sprintf("labels: {a: '%d', b: '%d'}, ", i%4, i%3)
		if i%8 == 7 {
			metadata += "annotations: {classbind.io/cordoned: 'true'}, "
		}
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), metadata))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	w.resources(t, "Own owns."+group+" Namespaced")
	w.apply(t, followsRoles+claimKind("owns."+group, "{classes: {kinds: [{name: classes."+group+"}], use: {subject: Requester}}}"))
	for _, kind := range []string{"claims.", "owns."} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+group, v1beta1.ConditionUseEnforced, metav1.ConditionTrue, "")
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	some := func() (names []string) {
		for range random.IntN(8) {
			names = append(names, fmt.Sprint("class-", random.IntN(24)))
		}
		return append(names, "none")
	}
	got := map[bool]int{}
	for n := range 10 {
		kind, namespace, by, flags := "Claim", fmt.Sprint("classes-team-", n), client.Client(w), []string(nil)
		w.namespaces(t, namespace)
		if n < 5 {
			w.apply(t, namespaceMayUse(group, namespace, some()...))
		} else {
			user := fmt.Sprint("classes-user-", n)
			kind, by, flags = "Own", w.as(t, user, group), []string{"--as=" + user}
			for i, name := range some() {
				w.apply(t, mayUse(fmt.Sprintf("%s.%d", user, i), "", "kind: User, name: "+user, group, "classes", name))
			}
		}
		plural := map[string]string{"Claim": "claims.", "Own": "owns."}[kind] + group
		args := []string{"classes", plural, "-n", namespace, "-o", "json", "--kubeconfig=" + w.plane.Kubeconfig}
		report := reportOf[struct{ Items []offer }](t, w, append(args, flags...)...)
		require.Len(t, report.Items, 1)
		require.Len(t, report.Items[0].Classes, 24, "We should list every class.")
		for i := range claims {
			want := map[string]any{"a": fmt.Sprint(random.IntN(4))}
			if i%2 == 0 {
				want["b"] = fmt.Sprint(random.IntN(3))
			}
			var may []string
			for _, c := range report.Items[0].Classes {
				if c.Dropped == nil && c.Labels["a"] == want["a"] && (want["b"] == nil || c.Labels["b"] == want["b"]) {
					may = append(may, c.Kind+"/"+c.Name)
				}
			}
			eventually(t, func(c *attempt) { // A right takes a moment, and an answer is kept for some.
				attempt := selecting(group, kind, namespace, fmt.Sprint("claim-", i), want)
				err := by.Create(t.Context(), attempt, client.DryRunAll)
				require.False(c, apierrors.IsForbidden(err), "%v", err)
				require.NoError(c, err)
				if len(may) == 0 {
					require.Empty(c, classOf(attempt), "We should give none, as was listed: %v", want)
				} else {
					require.Contains(c, may, classOf(attempt), "We should give one of those that were listed: %v", want)
				}
			})
			got[len(may) > 0]++
		}
	}
	t.Logf("%d claims got a class, and %d none", got[true], got[false])
	assert.Positive(t, got[true])
	assert.Positive(t, got[false])
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
		case "hangs":
			<-r.Context().Done()
			return
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

// TestUseAuthorizer has another authorizer beside RBAC, which hangs, fails, denies or allows.
func TestUseAuthorizer(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "authorizer.use.test"
	server := httptest.NewTLSServer(http.HandlerFunc(useAuthorizer))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
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
	w.namespaces(t, "hangs", "fails", "denied", "allowed", "roles")
	w.apply(t, followsRoles+namespaceMayUse(group, "allowed", "class-1")+namespaceMayUse(group, "roles", "class-1"))
	w.awaitBound(t, claimIn(group, "roles", "probe"), "Class/class-1", "We should see the roles followed.")

	var hanging []chan error
	for i := range 20 {
		ended := make(chan error, 1)
		hanging = append(hanging, ended)
		go func() {
			claim := selecting(group, "Claim", "hangs", fmt.Sprint("claim-", i), nil)
			err := w.client(t).Create(t.Context(), claim)
			assert.Empty(t, classOf(claim), "We should give no class that we did not ask about.")
			ended <- err
		}()
	}
	for i := range 50 {
		w.binds(t, claimIn(group, "roles", fmt.Sprint("claim-", i)), "Class/class-1", "We should go on with other namespaces.")
	}
	said := w.refuses(t, claimIn(group, "fails", "claim"), "cannot tell which classes are not allowed", "We should give no class where an authorizer fails.")
	assert.NotContains(t, said, "class-", "We should name none.")
	claim, warnings := w.warned(t, claimIn(group, "denied", "claim"))
	assert.Empty(t, classOf(claim), "We should give no class that is denied.")
	require.Len(t, warnings, 1)
	w.awaitBound(t, claimIn(group, "allowed", "claim"), "Class/class-1", "We should prefer what a role allows, once it is known.")
	w.remove(t, "clusterrolebindings.rbac.authorization.k8s.io", group+".allowed")
	w.awaitBound(t, claimIn(group, "allowed", "other"), "Class/class-5", "We should honour another authorizer.")
	for _, ended := range hanging {
		err := <-ended
		require.ErrorContains(t, err, "cannot tell which classes are not allowed", "We should answer before the API server gives up.")
		assert.NotContains(t, err.Error(), "class-", "We should name none.")
	}
}

func (w *world) client(t *testing.T) client.Client {
	c, err := newClient(w.config)
	assert.NoError(t, err)
	return c
}
