package explain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
)

// Kind decides on the claims of a ClaimKind that a cluster stores, by what explain reads of the cluster.
type Kind struct {
	*selector.View
	// Resource of the claims, in the version for which the paths are written.
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Notes say why the server may decide otherwise.
	Notes []string

	spec          *v1beta1.ClaimKind
	registrations *registrations
	// read are related objects, by the name of the relation, the namespace and their name, in a World.
	read map[[3]string]*expression.Object
}

// Kinds returns the claim kinds that a word names, with their classes as they are now. It is an error if one of them
// cannot bind claims that are stored. own is the namespace of classbind.
func Kinds(ctx context.Context, config *rest.Config, own, word string) (kinds []*Kind, err error) {
	r, named, err := registered(ctx, config, own, word)
	if err != nil {
		return nil, err
	}
	for _, spec := range named {
		k, err := r.kind(ctx, spec)
		if err != nil {
			return nil, fmt.Errorf("cannot bind stored claims of %q: %w", spec.Name, err)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// registered in a cluster are the claim kinds that a word names.
func registered(ctx context.Context, config *rest.Config, own, word string) (*registrations, []*v1beta1.ClaimKind, error) {
	s := &source{}
	if err := s.connect(config); err != nil {
		return nil, nil, err
	}
	r, err := newRegistrations(ctx, s, own)
	if err != nil {
		return nil, nil, err
	}
	r.unsettable = true
	named, found, err := r.named(ctx, word)
	if err == nil {
		err = found.unread
	}
	if err == nil {
		_, err = r.claimKindsOf(ctx, found.GroupKind()) // It finds the version of each.
	}
	return r, named, err
}

func (r *registrations) kind(ctx context.Context, spec *v1beta1.ClaimKind) (*Kind, error) {
	v, found, err := r.bindable(ctx, spec)
	if err != nil {
		return nil, err
	}
	if v.Kind.UsesRequest() {
		return nil, errors.New("its expressions look at who creates the claim, which nothing that is stored says")
	}
	if v.unknownRoom != "" {
		return nil, errors.New(v.unknownRoom + ": set whenUnmatched to BindLater, which goes by what classbind counts")
	}
	resource := found.GroupVersion().WithResource(schema.ParseGroupResource(spec.Resource()).Resource)
	return &Kind{v.View, resource, found.Namespaced, v.notes, spec, r, nil}, nil
}

// viewOf a claim kind is its bindable view, whose resource is looked up first.
func viewOf(ctx context.Context, r *registrations, k *v1beta1.ClaimKind) (*view, resource, error) {
	found, err := r.resolve(ctx, k.Resource(), k.ReadVersion(), "create")
	if err != nil && !notServed(err) {
		return nil, found, fmt.Errorf("cannot find the kind of the claims of %q: %w", k.Name, err)
	}
	found.unread = err
	r.resources[k.Name] = found
	return r.bindable(ctx, k)
}

// bindable is the view of a claim kind, and the resource of its claims. It is an error if claims of the kind cannot be bound.
func (r *registrations) bindable(ctx context.Context, k *v1beta1.ClaimKind) (*view, resource, error) {
	found := r.resources[k.Name]
	if found.unread != nil {
		return nil, found, found.unread
	}
	if err := lookup.CheckBindable(k); err != nil {
		return nil, found, err
	}
	v, err := r.view(ctx, k)
	if err == nil && v.Fault != nil {
		err = v.Fault
	}
	return v, found, err
}

// Decide on a stored claim as late binding does. The memory of a strategy is that of this Kind.
func (k *Kind) Decide(ctx context.Context, in claim.Intake) (selector.Decision, error) {
	decider := selector.Decider{
		Fresh: rand.Uint64, Now: time.Now, Related: k.registrations.relatedOf(&Item{}), Gates: k.registrations.gates(), Patient: true,
	}
	return decider.Decide(ctx, k.View, in, selector.Later)
}

// Cluster has what is registered in a cluster, and the classes as they were when a kind was first asked for. It is for one caller at a
// time.
type Cluster struct{ *registrations }

// NewCluster reads what is registered. own is the namespace of classbind.
func NewCluster(ctx context.Context, config *rest.Config, own string) (Cluster, error) {
	s := &source{}
	if err := s.connect(config); err != nil {
		return Cluster{}, err
	}
	r, err := newRegistrations(ctx, s, own)
	r.unsettable = true
	return Cluster{r}, err
}

// ClaimKinds of the cluster.
func (c Cluster) ClaimKinds() []v1beta1.ClaimKind { return c.claimKinds }

// View of a claim kind, with notes. With an error, claims of the kind cannot be bound, and the view may be nil.
func (c Cluster) View(ctx context.Context, k *v1beta1.ClaimKind) (*selector.View, []string, error) {
	v, _, err := viewOf(ctx, c.registrations, k)
	if v == nil {
		return nil, nil, err
	}
	return v.View, v.notes, err
}

// Explain a stored claim, as it is or as if it had no class.
func (c Cluster) Explain(ctx context.Context, claimKind, namespace, name string, unbound bool) (*Item, error) {
	d, err := c.stored(ctx, claimKind+"/"+name, namespace)
	if err != nil {
		return nil, err
	}
	items, err := (&options{unbound: unbound, fresh: rand.Uint64}).answers(ctx, c.registrations, d, namespace)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item.Claim.ClaimKind == claimKind {
			return item, nil
		}
	}
	return nil, fmt.Errorf("no ClaimKind %q registers the claim", claimKind)
}

// Excluded says why the claims of a namespace are not bound, empty where they are.
func (k *Kind) Excluded(ctx context.Context, namespace string) (why string, err error) {
	return k.registrations.unselected(ctx, k.spec, namespace)
}
