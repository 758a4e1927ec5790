package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
)

const (
	// rolesDelay gathers the changes of roles and bindings within it. roundShare is how many times longer than a round the pause after it
	// is, up to maxRolesDelay: a storm of changes costs a tenth of a core.
	rolesDelay    = 100 * time.Millisecond
	roundShare    = 10
	maxRolesDelay = 30 * time.Second
	// rolesRetry is how long after a refusal or a failure roles are tried again.
	rolesRetry = 5 * time.Second
	// trustFor is how long roles that may no longer be listed and watched are believed.
	trustFor = 30 * time.Second
)

// Roles follow the roles and bindings of a cluster while a claim kind asks who may use its classes: those that hold everywhere, and where
// classes have a namespace also those of namespaces. It runs on every replica.
type Roles struct {
	registration *registry.Registration
	// objects to follow of a resource of RBAC, whose list is of this type.
	objects func(resource string, list runtime.Object) cluster.Objects
	// permitted is asked before they are followed: a Reflector logs each refusal.
	permitted func(ctx context.Context, resource string, verbs ...string) error

	grants   atomic.Pointer[access.Grants]
	wake     chan struct{}
	followed map[string]*followed // by resource
	// problem why they cannot be followed, which is logged once.
	problem string
}

// NewRoles returns Roles that follow nothing yet.
func NewRoles(config *rest.Config, registration *registry.Registration) (*Roles, error) {
	rbac, err := rbacclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for roles: %w", err)
	}
	resolver, err := cluster.NewResolver(config)
	return newRoles(registration, resolver.Permitted, func(resource string, list runtime.Object) cluster.Objects {
		request := func(o metav1.ListOptions) *rest.Request {
			return rbac.RESTClient().Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec)
		}
		return cluster.Objects{
			Name: resource, Client: rbac,
			List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				all := list.DeepCopyObject()
				return all, request(o).Do(ctx).Into(all) // It says which.
			},
			Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.Watch = true
				return request(o).Watch(ctx)
			},
		}
	}), err
}

func newRoles(
	registration *registry.Registration, permitted func(context.Context, string, ...string) error,
	objects func(string, runtime.Object) cluster.Objects,
) *Roles {
	return &Roles{
		registration: registration, permitted: permitted, objects: objects, wake: make(chan struct{}, 1), followed: map[string]*followed{},
	}
}

// Grants are nil until all that is needed was listed, and where we may not list it, or could not for a while.
func (r *Roles) Grants() *access.Grants { return r.grants.Load() }

// NeedLeaderElection is asked by the manager.
func (r *Roles) NeedLeaderElection() bool { return false }

// Start follows what is needed until the context ends.
func (r *Roles) Start(ctx context.Context) error {
	r.registration.OnRegistered(ctx, func(string) { r.notify() })
	r.registration.ClassKinds.OnChange(ctx, func(*inventory.ClassKind) { r.notify() })
	r.notify()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		began := time.Now()
		problem, delay := "", rolesDelay
		if err := recovered.Do(func() error { return r.round(ctx) }); err != nil {
			r.grants.Store(nil)
			problem, delay = err.Error(), rolesRetry
			r.notify()
		}
		if problem != "" && r.problem == "" {
			logf.FromContext(ctx).Info("More access reviews are asked than need be: cannot follow roles", "because", problem)
		}
		r.problem = problem
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pauseAfter(time.Since(began), delay)):
		}
	}
}

// pauseAfter a round that took so long, for at least a delay.
func pauseAfter(took, delay time.Duration) time.Duration {
	return min(max(delay, roundShare*took), maxRolesDelay)
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
	known, size := everywhere, 0
	var roles []access.Role
	var bindings []access.Binding
	for _, x := range []struct {
		resource string
		list     runtime.Object
		needed   bool
	}{
		{"clusterroles", &rbacv1.ClusterRoleList{}, everywhere},
		{"clusterrolebindings", &rbacv1.ClusterRoleBindingList{}, everywhere},
		{"roles", &rbacv1.RoleList{}, ofNamespaces},
		{"rolebindings", &rbacv1.RoleBindingList{}, ofNamespaces},
	} {
		f := r.followed[x.resource]
		switch {
		case !x.needed && f != nil:
			f.stop()
			delete(r.followed, x.resource)
		case x.needed && f == nil:
			if err := r.permitted(ctx, x.resource+"."+rbacv1.GroupName, "list", "watch"); err != nil {
				return fmt.Errorf("%w: %s", err, permitRoles)
			}
			f = &followed{changed: r.notify}
			var following context.Context
			following, f.stop = context.WithCancel(ctx)
			r.followed[x.resource] = f
			cluster.Follow(following, r.objects(x.resource, x.list), f, &f.Health, f.answered)
		}
		if x.needed {
			if err := f.untrusted(); err != nil {
				f.stop()
				delete(r.followed, x.resource)
				return fmt.Errorf("cannot list or watch %s: %w: %s", x.resource, err, permitRoles)
			}
			known = f.read(&roles, &bindings, &size) && known
		}
	}
	switch {
	case !known:
		r.grants.Store(nil)
	case size > v1beta1.MaxRoleNames:
		return fmt.Errorf("roles and bindings have %d names and subjects, more than %d", size, v1beta1.MaxRoleNames)
	default:
		r.grants.Store(access.NewGrants(roles, bindings))
	}
	return nil
}

// permitRoles is what lets classbind follow roles and bindings.
const permitRoles = "kubectl create clusterrole classbind-roles --verb=list,watch " +
	"--resource=roles.rbac.authorization.k8s.io,clusterroles.rbac.authorization.k8s.io," +
	"rolebindings.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io && " +
	"kubectl label clusterrole classbind-roles " + v1beta1.AggregateLabel + "=true"

// seen is what is kept of a role or a binding, with the metadata by which the Reflector goes.
type seen struct {
	metav1.PartialObjectMetadata
	role    access.Role
	binding access.Binding
}

// followed are the roles, or the bindings, of one resource.
type followed struct {
	cluster.Health
	stop    context.CancelFunc
	changed func()

	mu      sync.Mutex // guards all below
	objects map[types.NamespacedName]*seen
	// lost is since when the API server does not let us list or watch them; zero means that it does.
	lost time.Time
}

// answered is called when the API server's answer to the watch changes. After a while without, its objects are no longer believed.
func (f *followed) answered(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.lost = time.Time{}
	case f.lost.IsZero():
		f.lost = time.Now()
		time.AfterFunc(trustFor, func() { defer recovered.Here(); f.changed() })
	}
	f.changed()
}

// untrusted is why the objects are not believed, nil if they are.
func (f *followed) untrusted() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.LastError(); !f.lost.IsZero() && (f.objects == nil || time.Since(f.lost) >= trustFor) {
		return err
	}
	return nil
}

// read adds the objects and their size, and reports whether they were listed.
func (f *followed) read(roles *[]access.Role, bindings *[]access.Binding, size *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		*size += o.role.Size() + o.binding.Size()
		if *size > v1beta1.MaxRoleNames {
			break
		}
		if o.binding.Size() > 0 {
			*bindings = append(*bindings, o.binding)
		} else {
			*roles = append(*roles, o.role)
		}
	}
	return f.objects != nil
}

// Read is called by the Reflector, as are Put, Remove and Replace.
func (f *followed) Read(object any) (*seen, error) {
	s := &seen{}
	switch o := object.(type) {
	case *seen:
		return o, nil
	case *rbacv1.ClusterRole:
		s.ObjectMeta, s.role = o.ObjectMeta, access.NewRole("", o.Name, o.Rules)
	case *rbacv1.Role:
		s.ObjectMeta, s.role = o.ObjectMeta, access.NewRole(o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRoleBinding:
		s.ObjectMeta, s.binding = o.ObjectMeta, access.NewBinding("", o.Name, o.Subjects, o.RoleRef)
	case *rbacv1.RoleBinding:
		s.ObjectMeta, s.binding = o.ObjectMeta, access.NewBinding(o.Namespace, o.Name, o.Subjects, o.RoleRef)
	default:
		return nil, errors.New("it is neither a role nor a binding")
	}
	s.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion}
	return s, nil
}

// Put an object that is new or has changed.
func (f *followed) Put(o *seen) { f.set(o, o) }

// Remove an object.
func (f *followed) Remove(o *seen) { f.set(o, nil) }

// set is silent about objects that have nothing to do with the use of anything.
func (f *followed) set(o, to *seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	before := f.objects[name]
	delete(f.objects, name)
	if to != nil && to.matters() {
		f.objects[name] = to
	}
	if before != nil || to != nil && to.matters() {
		f.changed()
	}
}

func (s *seen) matters() bool { return s.role.Size()+s.binding.Size() > 0 }

// Replace all objects.
func (f *followed) Replace(objects []*seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects = map[types.NamespacedName]*seen{}
	for _, o := range objects {
		if o.matters() {
			f.objects[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
		}
	}
	f.changed()
}
