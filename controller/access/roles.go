package access

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// rolesDelay gathers the changes of roles and bindings within it.
	rolesDelay = 100 * time.Millisecond
	// rolesRetry is how long after a refusal or a failure roles are tried again.
	rolesRetry = 5 * time.Second
)

// Roles follow the roles and bindings of a cluster while a claim kind asks who may use its classes: those that hold everywhere, and where
// classes have a namespace also those of namespaces. It runs on every replica.
type Roles struct {
	registration *registry.Registration
	cache        cache.Cache
	resolver     cluster.Resolver

	grants   atomic.Pointer[access.Grants]
	wake     chan struct{}
	followed map[string]bool // by resource
	// problem why they cannot be followed, which is told once.
	problem string
}

// NewRoles returns Roles that follow nothing yet.
func NewRoles(config *rest.Config, objects cache.Cache, registration *registry.Registration) (*Roles, error) {
	resolver, err := cluster.NewResolver(config)
	return &Roles{
		registration: registration, cache: objects, resolver: resolver, wake: make(chan struct{}, 1), followed: map[string]bool{},
	}, err
}

// Grants are nil until all that is needed was listed, and where we may not list it.
func (r *Roles) Grants() *access.Grants { return r.grants.Load() }

// NeedLeaderElection is asked by the manager.
func (r *Roles) NeedLeaderElection() bool { return false }

// Start follows what is needed until the context ends.
func (r *Roles) Start(ctx context.Context) error {
	r.registration.OnRegistered(ctx, func(string) { r.notify() })
	r.registration.OnChange(ctx, func(*inventory.ClassKind) { r.notify() })
	r.notify()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		problem, wait := "", rolesDelay
		if err := recovered.Do(func() error { return r.round(ctx) }); err != nil {
			r.grants.Store(nil)
			problem, wait = err.Error(), rolesRetry
			r.notify()
		}
		if problem != "" && problem != r.problem {
			logf.FromContext(ctx).Info("More access reviews are asked than need be: cannot follow roles", "because", problem)
		}
		r.problem = problem
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (r *Roles) notify() {
	select {
	case r.wake <- struct{}{}:
	default: // A round is due already.
	}
}

// needed reports whether roles matter to any claim kind, and those of namespaces.
func (r *Roles) needed() (everywhere, ofNamespaces bool) {
	for _, v := range r.registration.Inventory.Snapshot() {
		if v.Kind.Use == "" {
			continue
		}
		everywhere = true
		for _, kind := range v.MeantKinds() {
			ofNamespaces = ofNamespaces || kind.Namespaced
		}
	}
	return everywhere, ofNamespaces
}

func (r *Roles) round(ctx context.Context) error {
	everywhere, ofNamespaces := r.needed()
	known := everywhere
	for _, x := range []struct {
		resource string
		object   client.Object
		needed   bool
	}{
		{"clusterroles", &rbacv1.ClusterRole{}, everywhere},
		{"clusterrolebindings", &rbacv1.ClusterRoleBinding{}, everywhere},
		{"roles", &rbacv1.Role{}, ofNamespaces},
		{"rolebindings", &rbacv1.RoleBinding{}, ofNamespaces},
	} {
		listed, err := r.follow(ctx, x.resource, x.object, x.needed)
		if err != nil {
			return err
		}
		known = known && (listed || !x.needed)
	}
	if !known {
		r.grants.Store(nil)
		if everywhere { // They are being listed.
			r.notify()
		}
		return nil
	}
	return r.read(ctx, ofNamespaces)
}

// permitRoles is what lets classbind follow roles and bindings.
const permitRoles = "kubectl create clusterrole classbind-roles --verb=list,watch " +
	"--resource=roles.rbac.authorization.k8s.io,clusterroles.rbac.authorization.k8s.io," +
	"rolebindings.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io && " +
	"kubectl label clusterrole classbind-roles " + v1beta1.AggregateLabel + "=true"

// follow begins or ends to follow a resource, and reports whether its objects were listed.
func (r *Roles) follow(ctx context.Context, resource string, object client.Object, needed bool) (listed bool, err error) {
	switch {
	case !needed && !r.followed[resource]:
		return false, nil
	case !needed:
		delete(r.followed, resource)
		return false, r.cache.RemoveInformer(ctx, object) //nolint:wrapcheck // It says which.
	case !r.followed[resource]: // The informer would log each refusal.
		if err := r.resolver.Permitted(ctx, resource+"."+rbacv1.GroupName, "list", "watch"); err != nil {
			return false, fmt.Errorf("%w: %s", err, permitRoles)
		}
	}
	informer, err := r.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err == nil && !r.followed[resource] {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { r.notify() }, UpdateFunc: func(any, any) { r.notify() }, DeleteFunc: func(any) { r.notify() },
		})
	}
	if err != nil {
		return false, fmt.Errorf("cannot follow %s: %w", resource, err)
	}
	r.followed[resource] = true
	return informer.HasSynced(), nil
}

// read the roles and bindings that were listed.
func (r *Roles) read(ctx context.Context, ofNamespaces bool) error {
	lists := []client.ObjectList{&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}}
	if ofNamespaces {
		lists = append(lists, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{})
	}
	var allow []access.Role
	var bound []access.Binding
	for _, list := range lists {
		err := r.cache.List(ctx, list, client.UnsafeDisableDeepCopy)
		if err == nil {
			err = meta.EachListItem(list, func(object runtime.Object) error {
				switch o := object.(type) {
				case *rbacv1.ClusterRole:
					allow = append(allow, access.NewRole("", o.Name, o.Rules))
				case *rbacv1.Role:
					allow = append(allow, access.NewRole(o.Namespace, o.Name, o.Rules))
				case *rbacv1.ClusterRoleBinding:
					bound = append(bound, access.NewBinding("", o.Name, o.Subjects, o.RoleRef))
				case *rbacv1.RoleBinding:
					bound = append(bound, access.NewBinding(o.Namespace, o.Name, o.Subjects, o.RoleRef))
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("cannot read roles: %w", err)
		}
	}
	r.grants.Store(access.NewGrants(allow, bound))
	return nil
}
