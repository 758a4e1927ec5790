package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

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
	"github.com/classbind/classbind/selector/truncate"
)

// Change is what differs in a World from what is there.
type Change struct {
	Manifests // Manifests are added, or take the place of objects of the same name.
	// Remove names what is not there, each KIND/NAME or KIND/NAMESPACE/NAME. KIND is claimkind, classkind, or a kind of classes.
	Remove []string
}

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

// After is the World as it would be after a change.
func (w *World) After(ctx context.Context, change Change) (*World, error) {
	next := NewWorld(w.Own)
	next.in(w.objectNamespace)
	next.Cluster, next.Memory, next.read, next.files = w.Cluster, w.Memory, w.read, w.files
	objects := change.Manifests
	if w.Cluster == nil {
		objects = w.files.under(objects, w.objectNamespace)
	}
	if err := next.addAll(ctx, objects); err != nil {
		return nil, err
	}
	for _, text := range change.Remove {
		parts := strings.Split(text, "/")
		if len(parts) == 2 {
			parts = slices.Insert(parts, 1, w.objectNamespace)
		}
		if len(parts) != 3 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("--remove=%q: must be KIND/NAME or KIND/NAMESPACE/NAME", text)
		}
		next.removals = append(next.removals, &removal{text: text, kind: parts[0], namespace: parts[1], name: parts[2]})
	}
	if w.Cluster != nil {
		next.ClaimKinds = onTop(w.ClaimKinds, next.ClaimKinds, func(old *v1beta1.ClaimKind, k v1beta1.ClaimKind) { old.Spec = k.Spec })
		next.ClassKinds = onTop(w.ClassKinds, next.ClassKinds, func(old *v1beta1.ClassKind, k v1beta1.ClassKind) { old.Spec = k.Spec })
	}
	next.ClaimKinds = slices.DeleteFunc(next.ClaimKinds, func(k v1beta1.ClaimKind) bool { return next.removes("claimkind", k.Name) })
	next.ClassKinds = slices.DeleteFunc(next.ClassKinds, func(k v1beta1.ClassKind) bool { return next.removes("classkind", k.Name) })
	return next, nil
}

// under a change are the manifests that it does not replace, and then its own. namespace is that of objects that name none.
func (m Manifests) under(change Manifests, namespace string) Manifests {
	idOf := func(d Document) string {
		return ID(d.GroupVersionKind().GroupKind(), cmp.Or(d.GetNamespace(), namespace), d.GetName())
	}
	replaced := sets.New[string]()
	for _, d := range change {
		replaced.Insert(idOf(d))
	}
	kept := slices.DeleteFunc(slices.Clone(m), func(d Document) bool { return replaced.Has(idOf(d)) })
	return append(kept, change...)
}

// removal of an object. done reports whether there was one.
type removal struct {
	text, kind, namespace, name string
	done                        bool
}

// removes reports whether a registration of a kind is removed.
func (s *source) removes(kind, name string) bool {
	return slices.ContainsFunc(s.removals, func(rm *removal) bool {
		is := strings.EqualFold(strings.TrimSuffix(rm.kind, "s"), kind) && rm.name == name
		rm.done = rm.done || is
		return is
	})
}

// remove the classes of a kind that are removed.
func (s *source) remove(from *inventory.Classes, of Resource) *inventory.Classes {
	for _, rm := range s.removals {
		if rm.kind != from.Kind.Name && !of.Means(rm.kind, from.Kind.Name) {
			continue
		}
		namespace := ""
		if from.Kind.Namespaced {
			namespace = rm.namespace
		}
		if from.Find(namespace, rm.name) != nil {
			from, rm.done = from.Without(namespace, rm.name), true
		}
	}
	return from
}

// Again returns a World of what this one has read, in which no claim was decided on.
func (w *World) Again() *World {
	again := *w
	again.kinds, again.counted = map[string]*Kind{}, selector.Snapshot{}
	return &again
}

// Check that a change has an effect: else its simulation would find no difference, whatever was meant. It returns the objects that matter
// to no claim, and an error if none matters, or if what is to be removed is not there.
func (w *World) Check(ctx context.Context, change Change) (unused []string, err error) {
	matters := sets.New(KindOf("ClaimKind"), KindOf("ClassKind"), crdKind, namespaces.GroupKind())
	resources := sets.New(Names(w.ClassKinds)...)
	for i := range w.ClassKinds {
		if len(w.removals) > 0 {
			if _, err := (&Kind{world: w}).Offered(ctx, &w.ClassKinds[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range w.ClaimKinds {
		for _, related := range w.ClaimKinds[i].Spec.Classes.Related {
			resources.Insert(related.Resource)
		}
	}
	for name := range resources {
		of, err := w.Resolve(ctx, name, "")
		if err != nil && !NotServed(err) {
			return nil, fmt.Errorf("cannot find the kind of %q: %w", name, err)
		}
		matters.Insert(of.GroupKind())
	}
	for _, d := range change.Manifests {
		if !matters.Has(d.GroupVersionKind().GroupKind()) {
			unused = append(unused, fmt.Sprintf("%s/%s in %s", d.GetKind(), d.GetName(), d.Where))
		}
	}
	for _, rm := range w.removals {
		if !rm.done {
			return nil, fmt.Errorf("--remove=%q: there is no such registration, and no such class of a registered kind", rm.text)
		}
	}
	if len(unused) > 0 && len(unused) == len(change.Manifests) && len(change.Remove) == 0 {
		return nil, fmt.Errorf("the change has no registration, and no object of a registered kind, but %s", selector.List(unused))
	}
	return unused, nil
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

// Recreated is a claim that is decided on as if it was created now, without the class that it has.
type Recreated struct {
	Namespace, Name string
	Has             Place // Has is the class that the claim has now, or UnknownClass or WithoutClass.

	kind *Kind
	in   claim.Intake
	sole bool // sole reports whether the decision had one candidate.
	// Unsure says what is not known of what its author wrote.
	Unsure []string
	// outcome is that of a claim that cannot be read, or is in a namespace whose claims are not bound; why says it for people.
	outcome, why string
}

// Read a claim of the kind, from JSON. A claim whose name the API server made up is drawn afresh, as then.
func (k *Kind) Read(ctx context.Context, raw []byte) (*Recreated, error) {
	head := struct {
		Metadata struct {
			Namespace, Name, GenerateName string
			Annotations                   map[string]string
			ManagedFields                 []metav1.ManagedFieldsEntry
		}
	}{}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("cannot read a claim: %w", err)
	}
	m := head.Metadata
	r := &Recreated{Namespace: m.Namespace, Name: cmp.Or(m.Name, m.GenerateName), kind: k, Has: Place{Outcome: WithoutClass}}
	r.in.Name = m.Name
	object, err := k.View.Kind.Reader.DecodeValid(raw)
	if err != nil { // The server refuses such a claim.
		r.outcome, r.why = Refused, truncate.Error(err).Error()
		return r, nil
	}
	if k.View.Kind.Reader.Reference.HasReference(object) {
		if class, _ := k.View.Kind.Demand.ClassOf(k.View.All, m.Namespace, object); class != nil {
			r.Has = Place{Class: selector.NameOf(class)}
		} else if k.View.Kind.Reader.Reference.NamesClass(object) {
			r.Has.Outcome = UnknownClass
		}
		if _, bound := m.Annotations[v1beta1.DecisionAnnotation]; bound || !k.View.Kind.Reader.Annotates {
			r.Unsure = k.Unbind(ctx, object, m.ManagedFields)
		}
	}
	if r.why, err = k.Excluded(ctx, m.Namespace); r.why != "" {
		r.outcome = Ignored
	}
	if err != nil || r.why != "" || k.View.Fault != nil {
		return r, err
	}
	name := m.Name
	if m.GenerateName != "" {
		name = ""
	}
	r.in = k.View.Kind.Reader.Read(m.Namespace, name, object)
	r.in.GenerateName = m.GenerateName
	return r, k.AddRequester(ctx, &r.in)
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

// Predictable reports whether every replica gives the claim the same class at every time. A decided claim may have a choice of one.
func (r *Recreated) Predictable() bool {
	if r == nil {
		return true
	}
	k := r.kind.View.Kind
	return !k.Limited && (r.sole || k.Strategy.Depends == "" && r.in.Name != "" && r.kind.spec.Spec.Choice.Seed != v1beta1.SeedRequest)
}

// Place is where claims are: a class, or an outcome.
type Place struct {
	Class   selector.ClassName `json:"class,omitzero"`
	Outcome string             `json:"outcome,omitempty"`
}

// The outcomes.
const (
	Waits        = "Waits"        // until a class matches
	Refused      = "Refused"      // by classbind, or by the API server while the registration is at fault
	WithoutClass = "WithoutClass" // created without a class
	Ignored      = "LeftAlone"    // not for classbind to bind
	UnknownClass = "UnknownClass" // names a class that is not there, or whose kind is not known
	AnyClass     = "AnyClass"     // gets a class, and it is not known which
)

// String is for people.
func (p Place) String() string {
	if p.Outcome == "" {
		return p.Class.String()
	}
	return map[string]string{
		Waits: "waits for a class", Refused: "refused", WithoutClass: "without a class", Ignored: "left alone",
		UnknownClass: "a class that is not known", AnyClass: "a class",
	}[p.Outcome]
}

// Decide on the claim, and say why it gets no class. It is an error if that is unknown, as where a right is missing. nil is a claim that no
// ClaimKind registers.
func (r *Recreated) Decide(ctx context.Context, fresh uint64) (to Place, why string, err error) {
	if r == nil {
		return Place{Outcome: Ignored}, "no ClaimKind registers the claims", nil
	}
	if r.outcome != "" {
		return Place{Outcome: r.outcome}, r.why, nil
	}
	k := r.kind
	decider := k.world.Decider(func() uint64 { return fresh }, nil)
	decider.Patient = true
	d, err := decider.Decide(ctx, k.View, r.in, selector.Mode{})
	fault := (*inventory.Fault)(nil)
	switch {
	case errors.As(err, &fault) && fault.Reason == v1beta1.ReasonConflict:
		return Place{Outcome: Ignored}, fault.Text, nil
	case fault != nil && k.spec.Spec.Admission.FailurePolicy == v1beta1.Ignore:
		return Place{Outcome: WithoutClass}, fault.Text, nil
	case fault != nil:
		return Place{Outcome: Refused}, fault.Text, nil //nolint:nilerr // It is what becomes of the claim.
	case err != nil:
		return to, "", fmt.Errorf("cannot decide on the claim %s/%s: %w", r.Namespace, r.Name, truncate.Error(err))
	case d.Claim.LeftAlone != "":
		return Place{Outcome: Ignored}, d.Claim.LeftAlone, nil
	case d.Class != nil:
		r.sole = d.Candidates == 1
		return Place{Class: selector.NameOf(d.Class)}, "", nil
	case len(d.Claim.Problems) > 0, d.Denied():
		return Place{Outcome: Refused}, d.Warning(), nil
	case d.Unneeded():
		return Place{Outcome: Ignored}, "the claim asks for no class, and none is the default", nil
	case k.View.Kind.BindLater:
		return Place{Outcome: Waits}, d.Warning(), nil
	}
	return Place{Outcome: WithoutClass}, d.Warning(), nil
}
