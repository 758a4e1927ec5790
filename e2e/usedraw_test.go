package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

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
	w := newWorld(t, controlplane.Options{Audit: true})
	w.serve(t)
	for _, namespace := range []string{"one", "two", "none", "later"} {
		w.kubectl(t, "create", "namespace", namespace)
	}
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

	w.kubectl(t, "delete", "clusterrolebinding", group+".two")
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
	t.Parallel()
	const group = "namespaces.use.test"
	w := sharedWorld(t)
	w.kubectl(t, "create", "namespace", "use-pools")
	w.kubectl(t, "create", "namespace", "use-tenant")
	w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Namespaced")
	w.apply(t, lateVendor(group)+claimKind("claims."+group, "{classes: {namespaces: {from: All}, use: {subject: Namespace}}}")+
		classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}]}"))
	concurrently(t, 150, func(i int) error {
		class := object(group, "Class", fmt.Sprintf("class-%03d", i))
		class.SetNamespace("use-pools")
		return w.Create(t.Context(), class)
	})
	w.awaitClasses(t, "classes."+group, 150)
	w.awaitClaims(t, "claims."+group)
	w.apply(t, followsRoles+mayUse("use-one", "use-pools", "kind: Group, name: 'system:serviceaccounts:use-tenant'", group, "classes", "class-042"))
	const claims = 5
	for i := range claims {
		w.awaitBound(t, claimIn(group, "use-tenant", fmt.Sprint("claim-", i)), "Class/class-042", "We should follow the roles of namespaces.")
	}
	w.kubectl(t, "delete", "rolebinding", "use-one", "-n", "use-pools")
	w.awaitBound(t, claimIn(group, "use-tenant", "late"), "", "We should see the right taken away.")
}

// TestUseShares draws 20,000 times for two namespaces with different rights.
func TestUseShares(t *testing.T) {
	long(t)
	const group, draws = "shares.use.test", 20_000
	w := newWorld(t, controlplane.Options{})
	w.serve(t)
	var classes []string
	for i := range 6 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), fmt.Sprintf("annotations: {classbind.io/weight: '%d'}, ", i+1)))
	}
	w.register(t, group, "{reference: {path: .spec.classRef}, classes: {use: {subject: Namespace}}}", classes...)
	for namespace, may := range map[string][]int{"a": {0, 2, 4}, "b": {1, 2, 3, 5}} {
		w.kubectl(t, "create", "namespace", namespace)
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
			claim := object(group, "Claim", fmt.Sprint("claim-", i))
			claim.SetNamespace(namespace)
			claim.Object["spec"] = map[string]any{"classSelector": map[string]any{}}
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
	w.apply(t, claimKind("laters."+group, "{whenUnmatched: BindLater, "+use+"}")+claimKind("policies."+group, "{admission: {defaulting: Policy}, "+use+"}"))
	w.awaitClaims(t, "laters."+group)
	w.awaitClaims(t, "policies."+group)
	for i := range tenants {
		w.kubectl(t, "create", "namespace", fmt.Sprint("tenant-", i))
	}
	for _, kind := range []string{"claims", "laters", "policies"} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+"."+group, "UseEnforced", metav1.ConditionTrue, "")
	}
	clients := make([]client.Client, len(w.plane.Configs))
	for i, config := range w.plane.Configs {
		var err error
		clients[i], err = newClient(config)
		require.NoError(t, err)
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
		claim := object(group, "Later", fmt.Sprint("waits-", i))
		claim.SetNamespace(fmt.Sprint("tenant-", i%tenants))
		claim.Object["spec"] = map[string]any{"classSelector": map[string]any{}}
		return clients[i%len(clients)].Create(t.Context(), claim)
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
		claim := object(group, kind, fmt.Sprint("claim-", i))
		claim.SetNamespace(fmt.Sprint("tenant-", i%tenants))
		how := kind
		switch i / tenants % 4 {
		case 3:
			how = "explicit"
			claim.Object["spec"] = map[string]any{"classRef": map[string]any{
				"apiVersion": group + "/v1", "kind": "Class", "name": fmt.Sprint("class-", rand.IntN(classes)), //nolint:gosec // It need not be secret.
			}}
		case 2: // It asks for the default class.
		default:
			claim.Object["spec"] = map[string]any{"classSelector": map[string]any{}}
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
