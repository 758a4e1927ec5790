package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

var rbacResources = []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}

// rbacServer serves roles and bindings, by resource.
type rbacServer struct {
	mu      sync.Mutex
	objects map[string][]runtime.Object
	denied  map[string]bool
	watches map[string]*apiwatch.FakeWatcher
}

func (s *rbacServer) follow(resource string, list runtime.Object) cluster.Objects {
	answer := func() error {
		if s.denied[resource] {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
		}
		return nil
	}
	return cluster.Objects{
		Name: resource, Client: s,
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			all := list.DeepCopyObject()
			return all, errors.Join(answer(), meta.SetList(all, s.objects[resource]))
		},
		Watch: func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.watches[resource] = apiwatch.NewFake()
			return s.watches[resource], answer()
		},
	}
}

// IsWatchListSemanticsUnSupported has objects listed before they are watched.
func (s *rbacServer) IsWatchListSemanticsUnSupported() bool { return true }

func (s *rbacServer) permitted(_ context.Context, resource string, _ ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resource, _, _ = strings.Cut(resource, "."); s.denied[resource] {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
	}
	return nil
}

// deny or allow a resource; the watch ends, as where the API server starts again.
func (s *rbacServer) deny(resource string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[resource] = denied
	s.watches[resource].Stop()
}

// rolesWorld has a claim kind whose classes, which are namespaced, not all may use, and a role for the namespace team.
func rolesWorld(t *testing.T) (*rbacServer, *registry.Registration) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // One goes by the clock outside of the test.
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	registration, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{}), &controllertest.Cached{}, nil)
	require.NoError(t, err)
	k := inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.test"},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links("claims.test")},
	},
		schema.GroupVersionKind{Group: "test", Version: "v1", Kind: "Gold"}, true)
	registration.Inventory.SetClaimKind(kindWithUse(v1beta1.UseByNamespace))
	registration.Inventory.SetClasses(inventory.NewClasses(k, nil))
	registration.Inventory.Open()
	s := &rbacServer{denied: map[string]bool{}, watches: map[string]*apiwatch.FakeWatcher{}, objects: map[string][]runtime.Object{
		"clusterroles":        {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "use"}, Rules: usesOf("a")}},
		"clusterrolebindings": {bindingOf("use", "team")},
	}}
	return s, registration
}

func usesOf(names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: []string{"use"}, APIGroups: []string{"test"}, Resources: []string{"golds"}, ResourceNames: names}}
}

func bindingOf(role, namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-" + namespace}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + namespace}},
	}
}

// TestTrustEnds takes away the right to list each resource that is followed, and gives it back.
func TestTrustEnds(t *testing.T) {
	for _, resource := range rbacResources {
		t.Run(resource, func(t *testing.T) {
			s, registration := rolesWorld(t)
			synctest.Test(t, func(t *testing.T) {
				r := newRoles(registration, s.permitted, s.follow)
				var log strings.Builder
				ctx, stop := context.WithCancel(logf.IntoContext(t.Context(), funcr.New(func(_, args string) { fmt.Fprintln(&log, args) }, funcr.Options{})))
				ended := make(chan error)
				go func() { ended <- r.Start(ctx) }()
				time.Sleep(10 * time.Second)
				golds, team := schema.GroupResource{Group: "test", Resource: "golds"}, access.OfNamespace("team")
				require.NotNil(t, r.Grants())
				assert.Len(t, r.followed, len(rbacResources), "The test should be about all that is followed.")
				assert.True(t, r.Grants().Of(team).Allows(golds, "x", "a"))
				assert.False(t, r.Grants().Of(team).Allows(golds, "x", "b"))

				s.deny(resource, true)
				time.Sleep(trustFor - 5*time.Second)
				assert.NotNil(t, r.Grants(), "We should believe for a while what we knew.")
				time.Sleep(6 * time.Second)
				assert.Nil(t, r.Grants(), "We should not believe for ever what we may no longer see.")
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, 1, strings.Count(log.String(), "cannot follow roles"), log.String())
				assert.Contains(t, log.String(), resource)
				assert.Contains(t, log.String(), "kubectl create clusterrole", "We should say what mends it.")

				s.deny(resource, false)
				time.Sleep(15 * time.Second)
				assert.NotNil(t, r.Grants(), "We should see it mended.")
				stop()
				require.NoError(t, <-ended)
				for _, f := range r.followed {
					f.stop()
				}
				synctest.Wait()
			})
		})
	}
}

// TestOnlyUseMatters changes roles that have nothing to do with the use of classes, and one that has.
func TestOnlyUseMatters(t *testing.T) {
	changes := 0
	f := &followed{changed: func() { changes++ }}
	put := func(o runtime.Object) {
		s, err := f.Read(o)
		require.NoError(t, err)
		f.Put(s)
	}
	f.Replace(nil)
	require.Equal(t, 1, changes)
	other := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"pods"}}}}
	put(other)
	assert.Equal(t, 1, changes, "We should do nothing for a role that lets nobody use anything.")
	put(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "use"}, Rules: usesOf("a")})
	assert.Equal(t, 2, changes)
	put(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "use"}})
	assert.Equal(t, 3, changes, "We should see a right taken away.")
	assert.Empty(t, f.objects, "We should keep nothing that does not matter.")
	_, err := f.Read(&metav1.Status{})
	assert.Error(t, err)
}

// TestRolesCost has many bindings and roles with many names.
func TestRolesCost(t *testing.T) {
	f := &followed{changed: func() {}}
	f.Replace(nil)
	for i := range 50_000 {
		s, err := f.Read(bindingOf(fmt.Sprint("role-", i%1000), fmt.Sprint("team-", i)))
		require.NoError(t, err)
		f.Put(s)
	}
	meter := cost.NewMeter(t).OfCPU()
	for range 3 {
		meter.Measure(t, 10<<20, func() {
			var roles []access.Role
			var bindings []access.Binding
			size := 0
			f.read(&roles, &bindings, &size)
			assert.Len(t, bindings, 50_000)
			access.NewGrants(roles, bindings)
		})
	}
}

// TestGateCost asks about 100 classes of a namespace that may use 20,000.
func TestGateCost(t *testing.T) {
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprint("class-", i)
	}
	grants := access.NewGrants([]access.Role{access.NewRole("", "use", usesOf(names...))},
		[]access.Binding{access.NewBinding("", "use", bindingOf("use", "team").Subjects, rbacv1.RoleRef{Kind: "ClusterRole", Name: "use"})})
	v, class := world(v1beta1.UseByNamespace)
	meter := cost.NewMeter(t).OfCPU()
	r := NewReviews(authorizer(func(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		return authorizationv1.SubjectAccessReviewStatus{}, nil
	}))
	r.Grants = func() *access.Grants { return grants }
	meter.Measure(t, 0, func() {
		for range 100 {
			_, err := r.Gate().Drops(t.Context(), selector.Subject{Claim: claim.Claim{Namespace: "team"}, View: v}, class)
			require.NoError(t, err)
		}
	})
}

// TestTooManyRoles has more names in roles than we put together.
func TestTooManyRoles(t *testing.T) {
	s, registration := rolesWorld(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRoles(registration, s.permitted, s.follow)
		many := bindingOf("use", "team")
		many.Name, many.Subjects = "many", make([]rbacv1.Subject, v1beta1.MaxRoleNames)
		for i := range many.Subjects {
			many.Subjects[i] = rbacv1.Subject{Kind: rbacv1.UserKind, Name: "u"}
		}
		s.objects["clusterrolebindings"] = append(s.objects["clusterrolebindings"], many)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Start(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Nil(t, r.Grants(), "We should take roles for not known.")
		assert.Contains(t, r.problem, "more than 262144")
		s.mu.Lock()
		s.watches["clusterrolebindings"].Delete(many)
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		assert.NotNil(t, r.Grants())
		stop()
		require.NoError(t, <-ended)
		synctest.Wait()
	})
}

// TestKeptAnswersEnd has a right end, as roles say, and an API server that learns of it a moment later.
func TestKeptAnswersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may, asked := true, 0
		r := NewReviews(authorizer(func(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			asked++
			return authorizationv1.SubjectAccessReviewStatus{Allowed: may}, nil
		}))
		bound := []access.Binding{access.NewBinding("", "use", bindingOf("use", "team").Subjects, rbacv1.RoleRef{Kind: "ClusterRole", Name: "use"})}
		with := func(names ...string) func() *access.Grants {
			g := access.NewGrants([]access.Role{access.NewRole("", "use", usesOf(names...))}, bound)
			return func() *access.Grants { return g }
		}
		v, class := world(v1beta1.UseByNamespace)
		admits := func() bool {
			refused, err := r.Gate().Drops(t.Context(), selector.Subject{Claim: claim.Claim{Namespace: "team"}, View: v}, class)
			require.NoError(t, err)
			return !refused
		}
		r.Grants = with("a")
		for range 2 {
			require.True(t, admits())
		}
		require.Equal(t, 1, asked)
		r.Grants = with("other") // The API server has not learned of it.
		require.True(t, admits())
		may = false
		assert.False(t, admits(), "We should not keep an answer that contradicts roles which have just changed.")
		r.Grants, may = with("a"), true
		assert.True(t, admits(), "We should not keep a refusal beyond the change that ends it.")
		time.Sleep(v1beta1.AccessAnswerLifetime + rolesSettle)

		r.Grants = with("other") // Another authorizer allows it.
		require.True(t, admits())
		time.Sleep(2 * rolesSettle)
		asked = 0
		for range 3 {
			require.True(t, admits())
		}
		assert.Equal(t, 1, asked, "We should keep what another authorizer says, once roles have settled.")
		may = false
		r.Grants = with("other", "more")
		assert.False(t, admits(), "We should ask again once roles change.")
	})
}

func TestPauseAfter(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: rolesDelay, 10 * time.Millisecond: 100 * time.Millisecond, time.Second: 10 * time.Second, time.Minute: maxRolesDelay,
	} {
		assert.Equal(t, want, pauseAfter(took, rolesDelay), "We should use at most a tenth of a core for rounds of %s.", took)
	}
}
