package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
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

// IsEmpty reports whether nothing changes.
func (c *Change) IsEmpty() bool { return len(c.Manifests)+len(c.Remove) == 0 }

// NewWorld of a cluster, or without one of files, after a change. own is the namespace of classbind, and namespace that of objects that
// name none.
func NewWorld(ctx context.Context, config *rest.Config, files Manifests, own, namespace string, change Change) (*World, error) {
	w := newWorld(own)
	w.objectNamespace = cmp.Or(namespace, w.objectNamespace)
	w.claimNamespace = w.objectNamespace
	objects := change.Manifests
	if config == nil {
		objects = onTop(files, objects, w.objectNamespace)
	}
	if err := w.addAll(ctx, objects); err != nil {
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
		w.removals = append(w.removals, &removal{text: text, kind: parts[0], namespace: parts[1], name: parts[2]})
	}
	if config != nil {
		if err := w.connect(ctx, config); err != nil {
			return nil, err
		}
	}
	w.claimKinds, w.classKinds = without(w, "claimkind", w.claimKinds), without(w, "classkind", w.classKinds)
	return w, nil
}

// onTop has the objects of base that no object of change replaces, and those of change. namespace is that of objects that name none.
func onTop(base, change Manifests, namespace string) Manifests {
	idOf := func(d document) string {
		return id(d.GroupVersionKind().GroupKind(), cmp.Or(d.GetNamespace(), namespace), d.GetName())
	}
	replaced := sets.New[string]()
	for _, d := range change {
		replaced.Insert(idOf(d))
	}
	kept := slices.DeleteFunc(slices.Clone(base), func(d document) bool { return replaced.Has(idOf(d)) })
	return append(kept, change...)
}

// removal of an object. done says that there was one.
type removal struct {
	text, kind, namespace, name string
	done                        bool
}

// without the registrations of a kind that are removed.
func without[T any, P nameable[T]](w *World, kind string, all []T) []T {
	return slices.DeleteFunc(all, func(t T) bool {
		return slices.ContainsFunc(w.removals, func(rm *removal) bool {
			is := strings.EqualFold(strings.TrimSuffix(rm.kind, "s"), kind) && rm.name == P(&t).GetName()
			rm.done = rm.done || is
			return is
		})
	})
}

// remove the classes of a kind that are removed.
func (s *source) remove(from *inventory.Classes, of resource) *inventory.Classes {
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

// Registered are the ClaimKinds.
func (w *World) Registered() []v1beta1.ClaimKind { return w.claimKinds }

// ClaimKinds are the names of all, sorted.
func (w *World) ClaimKinds() []string { return slices.Sorted(slices.Values(namesOf(w.claimKinds))) }

// Check that a change has an effect: else its simulation would find no difference, whatever was meant. It returns the objects that matter
// to no claim, and an error if none matters, or if what is to be removed is not there.
func (w *World) Check(ctx context.Context, change Change) (unused []string, err error) {
	matters := sets.New(kindOf("ClaimKind"), kindOf("ClassKind"), crdKind, namespaces.GroupKind())
	resources := sets.New(namesOf(w.classKinds)...)
	for i := range w.classKinds {
		if len(w.removals) > 0 {
			if _, err := (&Kind{world: w}).offered(ctx, &w.classKinds[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range w.claimKinds {
		for _, related := range w.claimKinds[i].Spec.Classes.Related {
			resources.Insert(related.Resource)
		}
	}
	for name := range resources {
		of, err := w.resolve(ctx, name, "")
		if err != nil && !notServed(err) {
			return nil, fmt.Errorf("cannot find the kind of %q: %w", name, err)
		}
		matters.Insert(of.GroupKind())
	}
	for _, d := range change.Manifests {
		if !matters.Has(d.GroupVersionKind().GroupKind()) {
			unused = append(unused, fmt.Sprintf("%s/%s in %s", d.GetKind(), d.GetName(), d.where))
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

// Explain a stored claim by its ClaimKind, which is one of Registered, as it is or as if it had no class.
func (w *World) Explain(ctx context.Context, claimKind, namespace, name string, unbound bool) (*Item, error) {
	d, err := w.stored(ctx, claimKind+"/"+name, namespace)
	if err != nil {
		return nil, err
	}
	i := slices.Index(namesOf(w.claimKinds), claimKind)
	return (&options{unbound: unbound, fresh: rand.Uint64}).answer(ctx, w, &w.claimKinds[i], d, namespace)
}

// Claims among the objects of files, as JSON, by the names of their ClaimKinds.
func (w *World) Claims(ctx context.Context, files Manifests) (map[string][][]byte, error) {
	claims := map[string][][]byte{}
	for _, d := range files {
		kinds, err := w.claimKindsOf(ctx, d.GroupVersionKind().GroupKind())
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			object, of := d.DeepCopy(), w.resources[k.Name]
			if object.GetNamespace() == "" && (of.Namespaced || of.guessed) {
				object.SetNamespace(w.claimNamespace)
			}
			raw, err := object.MarshalJSON()
			if err != nil {
				return nil, fmt.Errorf("%s: cannot encode the claim: %w", d.where, err)
			}
			claims[k.Name] = append(claims[k.Name], raw)
		}
	}
	return claims, nil
}

// Kind of claims, nil if no ClaimKind has this name. A Fault of its View says why no claim is bound.
func (w *World) Kind(ctx context.Context, name string) (*Kind, error) {
	i := slices.Index(namesOf(w.claimKinds), name)
	if i < 0 {
		return nil, nil
	}
	spec := &w.claimKinds[i]
	k, err := w.View(ctx, spec)
	switch fault := (*inventory.Fault)(nil); {
	case err == nil, k != nil && errors.As(err, &fault):
	case !notServed(err):
		return nil, err
	default:
		k = newKind(ctx, w, spec)
		fault = &inventory.Fault{Reason: v1beta1.ReasonUnsuitable, Text: err.Error()}
		k.View = &selector.View{Kind: selector.NewClaimKind(spec), Fault: fault}
	}
	if k.Kind.UsesRequest() && k.Kind.Use != v1beta1.UseByRequester {
		k.Fault = cmp.Or(k.Fault, inventory.Faultf(v1beta1.ReasonUnsuitable,
			"the expressions of the claim kind look at who creates the claim, which nothing that is stored says"))
	}
	k.MakeIndex() // There are many claims to decide on.
	k.Kind.Tally = &selector.Tally{}
	k.Kind.Room = w.counted.Room // What the claims of the cluster use counts once they are decided on here.
	if k.Fault != nil {
		k.note("no claim of the kind is bound: %s", k.Fault.Text)
	}
	for seat, of := range k.DefaultsBySeat() {
		if len(of) > 1 {
			k.note("%d classes are marked default for a claim%s: %s; the API server would refuse the second one",
				len(of), seat.In(), selector.ListFunc(of, (*inventory.Class).String))
		}
	}
	w.counted[name] = k.View
	return k, nil
}

// Kinds returns the claim kinds that a word names, with their classes as they are now. It is an error if one of them cannot bind claims
// that are stored. own is the namespace of classbind.
func Kinds(ctx context.Context, config *rest.Config, own, word string) (kinds []*Kind, err error) {
	w, named, err := registered(ctx, config, own, word)
	if err != nil {
		return nil, err
	}
	for _, spec := range named {
		k, err := w.View(ctx, spec)
		switch {
		case err != nil:
		case k.Kind.UsesRequest():
			err = errors.New("its expressions look at who creates the claim, which nothing that is stored says")
		}
		if err != nil {
			return nil, fmt.Errorf("cannot bind stored claims of %q: %w", spec.Name, err)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// registered in a cluster are the claim kinds that a word names.
func registered(ctx context.Context, config *rest.Config, own, word string) (*World, []*v1beta1.ClaimKind, error) {
	w, err := NewWorld(ctx, config, nil, own, "", Change{})
	if err != nil {
		return nil, nil, err
	}
	named, found, err := w.named(ctx, word)
	return w, named, cmp.Or(err, found.unread)
}

// View of the claims of a ClaimKind. It is an error if they cannot be bound, and the Kind may then be nil.
func (w *World) View(ctx context.Context, k *v1beta1.ClaimKind) (*Kind, error) {
	if err := cmp.Or(w.resourceOf(ctx, k).unread, cluster.CheckBindable(k)); err != nil {
		return nil, err
	}
	v, err := w.kind(ctx, k)
	if err == nil && v.Fault != nil {
		err = v.Fault
	}
	return v, err
}

// Decide on a stored claim as late binding does. The memory of a strategy is that of this Kind.
func (k *Kind) Decide(ctx context.Context, in claim.Intake) (selector.Decision, error) {
	decider := k.world.decider(rand.Uint64, &Item{})
	decider.Now, decider.Patient = time.Now, true
	return decider.Decide(ctx, k.View, in, selector.Later)
}

// Excluded says why the claims of a namespace are not bound, empty where they are.
func (k *Kind) Excluded(ctx context.Context, namespace string) (why string, err error) {
	return k.world.unselected(ctx, k.spec, namespace)
}

// Selectors that exist are those of the labels of each class of the kind, each once, sorted.
func (k *Kind) Selectors() []string {
	all := sets.New[string]()
	for _, classes := range k.Classes {
		classes.Each(func(c *inventory.Class) { all.Insert(labels.Set(c.Labels.Set()).String()) })
	}
	return sets.List(all.Delete("")) // It asks for any class.
}

// SelectorAnnotation is the annotation of a claim that has its class selector.
func (k *Kind) SelectorAnnotation() string { return k.Kind.Annotation[len(k.Kind.Annotation)-1] }

// Recreated is a claim that is decided on as if it was created now, without the class that it has.
type Recreated struct {
	Namespace, Name string
	Has             Place // Has is the class that the claim has now, or UnknownClass or WithoutClass.

	kind *Kind
	in   claim.Intake
	sole bool // sole says that the decision had one candidate.
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
	object, err := k.Kind.DecodeValid(raw)
	if err != nil { // The server refuses such a claim.
		r.outcome, r.why = Refused, truncate.Error(err).Error()
		return r, nil
	}
	if k.Kind.HasReference(object) {
		if class, _ := k.Kind.ClassOf(k.All, m.Namespace, object); class != nil {
			r.Has = Place{Class: selector.NameOf(class)}
		} else if k.Kind.NamesClass(object) {
			r.Has.Outcome = UnknownClass
		}
		if _, bound := m.Annotations[v1beta1.DecisionAnnotation]; bound || !k.Kind.Annotates {
			r.Unsure = k.unbind(ctx, object, m.ManagedFields)
		}
	}
	if r.why, err = k.Excluded(ctx, m.Namespace); r.why != "" {
		r.outcome = Ignored
	}
	if err != nil || r.why != "" || k.Fault != nil {
		return r, err
	}
	name := m.Name
	if m.GenerateName != "" {
		name = ""
	}
	r.in = k.Kind.Read(m.Namespace, name, object)
	r.in.GenerateName = m.GenerateName
	return r, k.addRequester(ctx, &r.in)
}

// unbind takes what classbind wrote of its reference out of a claim, and fills in the defaults of the schema, as its creation does.
// It notes if it is not known what the author wrote, and that may matter.
func (k *Kind) unbind(ctx context.Context, object map[string]any, managed []metav1.ManagedFieldsEntry) (notes []string) {
	namespaced := func(c *inventory.Classes) bool { return c.Kind.Namespaced }
	matters := len(k.Classes) > 1 || k.Kind.Decides || slices.ContainsFunc(k.Classes, namespaced)
	if !k.Kind.Unbind(object, managed) && matters {
		notes = []string{fmt.Sprintf("what the author wrote of .%s is not known, and counts as nothing: in most claims, "+
			"managedFields say it (kubectl get -o yaml --show-managed-fields)", k.Kind.ClassRef)}
	}
	if s, err := k.world.schemaOf(ctx, k.world.resources[k.spec.Name].GroupVersionKind); err == nil && s != nil && s.fields != nil {
		defaulting.Default(object, s.fields)
	}
	return notes
}

// Predictable reports whether every replica gives the claim the same class at every time. A decided claim may have a choice of one.
func (r *Recreated) Predictable() bool {
	if r == nil {
		return true
	}
	k := r.kind.Kind
	return !k.Limited && (r.sole || k.Strategy.Depends == "" && r.in.Name != "" && r.kind.spec.Spec.Choice.Seed != v1beta1.SeedRequest)
}

// Remembers reports whether what a claim gets depends on those before it.
func (k *Kind) Remembers() bool { return k.Kind.Strategy.Depends != "" || k.Kind.Limited }

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

// Decide on the claim, and say why it gets no class. It is an error if nobody knows, as where a right is missing. nil is a claim that no
// ClaimKind registers.
func (r *Recreated) Decide(ctx context.Context, fresh uint64) (to Place, why string, err error) {
	if r == nil {
		return Place{Outcome: Ignored}, "no ClaimKind registers the claims", nil
	}
	if r.outcome != "" {
		return Place{Outcome: r.outcome}, r.why, nil
	}
	k := r.kind
	decider := k.world.decider(func() uint64 { return fresh }, &Item{})
	decider.Patient = true
	d, err := decider.Decide(ctx, k.View, r.in, selector.Admit)
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
	case k.Kind.BindLater:
		return Place{Outcome: Waits}, d.Warning(), nil
	}
	return Place{Outcome: WithoutClass}, d.Warning(), nil
}
