package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// NewWorld has nothing yet. own is the namespace of classbind.
func NewWorld(own string) *World {
	return &World{
		source: source{
			Memory: &registry.Memory{}, objectNamespace: metav1.NamespaceDefault, ClaimNamespace: metav1.NamespaceDefault,
			CRDs: map[string]CRD{}, read: map[objectName]map[string]any{},
		},
		Own: own, resources: map[string]Resource{}, kinds: map[string]*Kind{}, classKinds: map[string]*ClassKind{},
		counted: selector.Snapshot{}, inCluster: selector.Snapshot{}, uncounted: map[string]error{},
		schemas: map[schema.GroupVersionKind]func() (*Schema, error){},
	}
}

// OfCluster reads the registrations of a cluster. own is the namespace of classbind, and namespace that of objects that name none.
func OfCluster(ctx context.Context, config *rest.Config, own, namespace string) (*World, error) {
	c, err := Connect(config)
	if err != nil {
		return nil, err
	}
	w, err := c.World(ctx, own)
	if w.in(namespace); err == nil {
		w.Memory, err = c.memory(ctx)
	}
	return w, err
}

// World has what is registered. It knows nothing of what was served.
func (c *Cluster) World(ctx context.Context, own string) (w *World, err error) {
	w = NewWorld(own)
	w.Cluster = c
	w.ClaimKinds, w.ClassKinds, err = c.Registrations(ctx)
	return w, err
}

// OfFiles are the objects of files alone.
func OfFiles(ctx context.Context, files Manifests, own, namespace string) (*World, error) {
	w := NewWorld(own)
	w.files = files
	w.in(namespace)
	return w, w.addAll(ctx, files)
}

// in a namespace are the objects that name none.
func (s *source) in(namespace string) {
	s.objectNamespace = cmp.Or(namespace, s.objectNamespace)
	s.ClaimNamespace = s.objectNamespace
}

// Again returns a World of what this one has read, in which no claim was decided on.
func (w *World) Again() *World {
	again := *w
	again.kinds, again.counted = map[string]*Kind{}, selector.Snapshot{}
	return &again
}

// Simulated is a kind of claims, nil if no ClaimKind has this name. A Fault of its View says why no claim is bound.
func (w *World) Simulated(ctx context.Context, name string) (*Kind, error) {
	i := slices.Index(Names(w.ClaimKinds), name)
	if i < 0 {
		return nil, nil
	}
	spec := &w.ClaimKinds[i]
	k, err := w.Bindable(ctx, spec)
	switch fault := (*inventory.Fault)(nil); {
	case err == nil, k != nil && errors.As(err, &fault):
	case !NotServed(err):
		return nil, err
	default:
		k = newKind(ctx, w, spec)
		fault = &inventory.Fault{Reason: v1beta1.ReasonUnsuitable, Text: err.Error()}
		k.View = &selector.View{Kind: selector.NewClaimKind(spec), Fault: fault}
	}
	if k.View.Kind.Rules.UsesRequest() && k.View.Kind.Use != v1beta1.UseByRequester {
		k.View.Fault = cmp.Or(k.View.Fault, inventory.Faultf(v1beta1.ReasonUnsuitable,
			"the expressions of the claim kind look at who creates the claim, which nothing that is stored says"))
	}
	k.View.Kind.Tally = &selector.Tally{}
	k.View.Kind.Room = w.counted.Room // What the claims of the cluster use counts once they are decided on here.
	if k.View.Fault != nil {
		k.note("no claim of the kind is bound: %s", k.View.Fault.Text)
	}
	for seat, of := range k.View.DefaultsBySeat() {
		if len(of) > 1 {
			k.note("%d classes are marked default for a claim%s: %s; the API server would refuse the second one",
				len(of), seat.In(), selector.ListFunc(of, (*inventory.Class).String))
		}
	}
	w.counted[name] = k.View
	return k, nil
}

// BindableKinds returns the claim kinds that a word names, with their classes as they are now. It is an error if one of them cannot bind
// claims that are stored. own is the namespace of classbind.
func BindableKinds(ctx context.Context, config *rest.Config, own, word string) (kinds []*Kind, err error) {
	w, named, err := Registered(ctx, config, own, word)
	if err != nil {
		return nil, err
	}
	for _, spec := range named {
		k, err := w.Bindable(ctx, spec)
		switch {
		case err != nil:
		case k.View.Kind.Rules.UsesRequest():
			err = errors.New("its expressions look at who creates the claim, which nothing that is stored says")
		case k.View.Kind.External != nil:
			err = errors.New("its chooser decides, and this command does not ask it: set whenUnmatched: BindLater, and late binding does")
		}
		if err != nil {
			return nil, fmt.Errorf("cannot bind stored claims of %q: %w", spec.Name, err)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// Registered in a cluster are the claim kinds that a word names.
func Registered(ctx context.Context, config *rest.Config, own, word string) (*World, []*v1beta1.ClaimKind, error) {
	w, err := OfCluster(ctx, config, own, "")
	if err != nil {
		return nil, nil, err
	}
	named, found, err := w.Named(ctx, word)
	return w, named, cmp.Or(err, found.Unread)
}

// Bindable is the Kind of a ClaimKind. It is an error if they cannot be bound, and the Kind may then be nil.
func (w *World) Bindable(ctx context.Context, k *v1beta1.ClaimKind) (*Kind, error) {
	if err := cmp.Or(w.Resource(ctx, k).Unread, cluster.CheckBindable(k)); err != nil {
		return nil, err
	}
	v, err := w.Kind(ctx, k)
	if err == nil && v.View.Fault != nil {
		err = v.View.Fault
	}
	return v, err
}

// Decide on a stored claim as late binding does. The memory of a strategy is that of this Kind.
func (k *Kind) Decide(ctx context.Context, in claim.Intake) (selector.Decision, error) {
	decider := k.world.Decider(rand.Uint64, nil)
	decider.Patient = true
	return decider.Decide(ctx, k.View, in, selector.Mode{Stored: true})
}

// Excluded says why the claims of a namespace are not bound, empty where they are.
func (k *Kind) Excluded(ctx context.Context, namespace string) (why string, err error) {
	return k.world.Unselected(ctx, k.spec, namespace)
}

// Each stored claim of the kind is visited, as JSON that is valid until the next: those of the cluster, or else those of the files.
func (k *Kind) Each(ctx context.Context, visit func(raw []byte) error) error {
	w, of := k.world, k.world.Resource(ctx, k.spec)
	if w.Cluster != nil {
		return w.Cluster.Objects.Pages(ctx, k.Resource, metav1.NamespaceAll, visit, ctx.Err)
	}
	for _, d := range w.files {
		if d.GroupVersionKind().GroupKind() != of.GroupKind() {
			continue
		}
		object := d.DeepCopy()
		if object.GetNamespace() == "" && (of.Namespaced || of.Guessed) {
			object.SetNamespace(w.ClaimNamespace)
		}
		raw, err := object.MarshalJSON()
		if err != nil {
			return fmt.Errorf("%s: cannot encode the claim: %w", d.Where, err)
		}
		if err := visit(raw); err != nil {
			return err
		}
	}
	return nil
}

// Selectors that exist are those of the labels of each class of the kind, each once, sorted.
func (k *Kind) Selectors() []string {
	all := sets.New[string]()
	for _, classes := range k.View.Classes {
		classes.Each(func(c *inventory.Class) { all.Insert(labels.Set(c.Labels.Set()).String()) })
	}
	return sets.List(all.Delete("")) // It asks for any class.
}

// SelectorAnnotation is the annotation of a claim that has its class selector.
func (k *Kind) SelectorAnnotation() string {
	return k.View.Kind.Reader.Annotation[len(k.View.Kind.Reader.Annotation)-1]
}

// Unbind takes what classbind wrote of its reference out of a claim, and fills in the defaults of the schema, as its creation does.
// It notes if it is not known what the author wrote, and that may matter.
func (k *Kind) Unbind(ctx context.Context, object map[string]any, managed []metav1.ManagedFieldsEntry) (notes []string) {
	namespaced := func(c *inventory.Classes) bool { return c.Kind.Namespaced }
	matters := len(k.View.Classes) > 1 || k.View.Kind.Reader.Reference.Decides || slices.ContainsFunc(k.View.Classes, namespaced)
	if !k.View.Kind.Reader.Reference.Unbind(object, managed) && matters {
		notes = []string{fmt.Sprintf("what the author wrote of .%s is not known, and counts as nothing: in most claims, "+
			"managedFields say it (kubectl get -o yaml --show-managed-fields)", k.View.Kind.Reader.Reference.Path)}
	}
	if s, err := k.world.SchemaOf(ctx, k.world.Resource(ctx, k.spec).GroupVersionKind); err == nil && s != nil && s.fields != nil {
		defaulting.Default(object, s.fields)
	}
	return notes
}
