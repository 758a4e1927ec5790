package access

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/inventory"
)

const (
	// rolesDelay gathers the changes of roles and bindings within it.
	rolesDelay = 100 * time.Millisecond
	// permittedAfter is how long after a refusal it is asked again whether roles may be followed.
	permittedAfter = 5 * time.Second
)

// Roles follow the roles and bindings of a cluster while a claim kind asks who may use its classes: those that hold
// everywhere, and where classes have a namespace also those of namespaces. It runs on every replica.
type Roles struct {
	registration *registry.Registration
	client       rbacclient.RbacV1Interface
	resolver     cluster.Resolver
	// refused says that we may not follow what is needed, which is told once.
	refused bool

	grants atomic.Pointer[access.Grants]
	wake   chan struct{}

	clusterRoles, roles       followed[access.Role]
	clusterBindings, bindings followed[access.Binding]
}

// NewRoles returns Roles that follow nothing yet.
func NewRoles(config *rest.Config, registration *registry.Registration) (*Roles, error) {
	client, err := rbacclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for roles: %w", err)
	}
	resolver, err := cluster.NewResolver(config)
	if err != nil {
		return nil, err
	}
	return &Roles{client: client, resolver: resolver, registration: registration, wake: make(chan struct{}, 1)}, nil
}

// Grants are nil until all that is needed was listed, and where we may not list it.
func (r *Roles) Grants() *access.Grants { return r.grants.Load() }

// Start follows what is needed until the context ends.
func (r *Roles) Start(ctx context.Context) error {
	r.registration.OnRegistered(ctx, func(string) { r.notify() })
	r.registration.OnChange(ctx, func(*inventory.ClassKind) { r.notify() })
	r.notify()
	for {
		again := (<-chan time.Time)(nil)
		if r.refused {
			again = time.After(permittedAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-again:
		}
		_ = loop.Recovered(func() error { r.round(ctx); return nil }) // A panic is logged; nothing else can fail.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rolesDelay):
		}
	}
}

// NeedLeaderElection is asked by the manager.
func (r *Roles) NeedLeaderElection() bool { return false }

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
		for _, s := range v.All {
			ofNamespaces = ofNamespaces || s.Kind.Namespaced
		}
	}
	return everywhere, ofNamespaces
}

// permitRoles is what lets classbind follow roles and bindings.
const permitRoles = "kubectl create clusterrole classbind-roles --verb=list,watch " +
	"--resource=roles.rbac.authorization.k8s.io,clusterroles.rbac.authorization.k8s.io," +
	"rolebindings.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io && " +
	"kubectl label clusterrole classbind-roles " + v1beta1.AggregateLabel + "=true"

func (r *Roles) round(ctx context.Context) {
	everywhere, ofNamespaces := r.needed()
	if everywhere && !r.permitted(ctx, ofNamespaces) {
		everywhere, ofNamespaces = false, false
	}
	c := r.client
	follow(ctx, r, &r.clusterRoles, everywhere, "clusterroles", c.ClusterRoles().List, c.ClusterRoles().Watch, readRole)
	follow(ctx, r, &r.clusterBindings, everywhere, "clusterrolebindings", c.ClusterRoleBindings().List, c.ClusterRoleBindings().Watch, readBinding)
	follow(ctx, r, &r.roles, ofNamespaces, "roles", c.Roles("").List, c.Roles("").Watch, readRole)
	follow(ctx, r, &r.bindings, ofNamespaces, "rolebindings", c.RoleBindings("").List, c.RoleBindings("").Watch, readBinding)

	roles, known := r.clusterRoles.all(nil)
	bindings, also := r.clusterBindings.all(nil)
	if ofNamespaces {
		var knownToo, alsoToo bool
		roles, knownToo = r.roles.all(roles)
		bindings, alsoToo = r.bindings.all(bindings)
		known, also = known && knownToo, also && alsoToo
	}
	if everywhere && known && also {
		r.grants.Store(access.NewGrants(roles, bindings))
	} else {
		r.grants.Store(nil)
	}
}

// permitted reports whether we may follow what is needed and is not followed yet.
func (r *Roles) permitted(ctx context.Context, ofNamespaces bool) bool {
	var ask []string
	if r.clusterRoles.stop == nil {
		ask = append(ask, "clusterroles", "clusterrolebindings")
	}
	if ofNamespaces && r.roles.stop == nil {
		ask = append(ask, "roles", "rolebindings")
	}
	for _, resource := range ask {
		err := r.resolver.Permitted(ctx, resource+"."+rbacv1.GroupName, "list", "watch")
		if err != nil && !r.refused {
			logf.FromContext(ctx).Info("More access reviews are asked than need be, because classbind may not follow roles: "+permitRoles,
				"because", err.Error())
		}
		if r.refused = err != nil; r.refused {
			return false
		}
	}
	return true
}

func readRole(object any) access.Role {
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		return access.NewRole("", o.Name, o.Rules)
	case *rbacv1.Role:
		return access.NewRole(o.Namespace, o.Name, o.Rules)
	}
	return access.Role{}
}

func readBinding(object any) access.Binding {
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return access.NewBinding("", o.Name, o.Subjects, o.RoleRef)
	case *rbacv1.RoleBinding:
		return access.NewBinding(o.Namespace, o.Name, o.Subjects, o.RoleRef)
	}
	return access.Binding{}
}

// followed are the objects of one resource.
type followed[T any] struct {
	stop   context.CancelFunc // nil while nobody follows them
	health *cluster.Health
	kept   *keeper[T]
}

// all adds the objects, and reports whether they are known.
func (f *followed[T]) all(to []T) ([]T, bool) {
	if f.stop == nil {
		return to, false
	}
	f.kept.mu.Lock()
	defer f.kept.mu.Unlock()
	_, err := f.health.LastError()
	for _, o := range f.kept.objects {
		to = append(to, o)
	}
	return to, f.kept.objects != nil && !apierrors.IsForbidden(err)
}

// follow begins or ends to follow the objects of a resource.
func follow[T any, L runtime.Object](
	ctx context.Context, r *Roles, f *followed[T], needed bool, resource string,
	list func(context.Context, metav1.ListOptions) (L, error),
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error), read func(any) T,
) {
	switch {
	case needed && f.stop == nil:
		f.kept, f.health = &keeper[T]{read: read, changed: r.notify}, &cluster.Health{}
		ctx, f.stop = context.WithCancel(ctx) //nolint:gosec // The next round that needs it no more ends it.
		log := logf.FromContext(ctx).WithValues("resource", resource)
		log.Info("Following roles and bindings, which say who may use a class")
		cluster.Follow(ctx, cluster.Objects{
			Name:  resource,
			List:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) },
			Watch: watch, Client: r.client,
		}, f.kept, f.health, func(err error) {
			if err != nil {
				log.Info("Cannot follow roles and bindings", "because", err.Error())
			}
			r.notify()
		})
	case !needed && f.stop != nil:
		f.stop()
		*f = followed[T]{}
	}
}

// keeper keeps what is read of the objects of one resource. The Reflector calls it.
type keeper[T any] struct {
	read    func(any) T
	changed func()

	mu      sync.Mutex
	objects map[types.NamespacedName]T // nil before they were listed
}

// kept is what the Reflector holds of an object.
type kept[T any] struct {
	metav1.PartialObjectMetadata
	of T
}

// Read is called by the Reflector, as are the others.
func (k *keeper[T]) Read(object any) (*kept[T], error) {
	if o, ok := object.(*kept[T]); ok {
		return o, nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	o := &kept[T]{of: k.read(object)}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = m.GetNamespace(), m.GetName(), m.GetUID(), m.GetResourceVersion()
	return o, nil
}

// Put an object that is new or has changed.
func (k *keeper[T]) Put(o *kept[T]) {
	k.change(func() { k.objects[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.of })
}

// Remove an object.
func (k *keeper[T]) Remove(o *kept[T]) {
	k.change(func() { delete(k.objects, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}) })
}

// Replace all objects.
func (k *keeper[T]) Replace(all []*kept[T]) {
	k.change(func() {
		k.objects = make(map[types.NamespacedName]T, len(all))
		for _, o := range all {
			k.objects[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o.of
		}
	})
}

func (k *keeper[T]) change(how func()) {
	k.mu.Lock()
	how()
	k.mu.Unlock()
	k.changed()
}
