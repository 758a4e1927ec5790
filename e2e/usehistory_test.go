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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

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
	balancer := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = balancer.Close() })
	for range 2 {
		r := w.serve(t, "--webhook-url="+balancer.URL)
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
	}
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
