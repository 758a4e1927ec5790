package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

// resource in the version that the API server prefers, or in which claims are read.
type resource struct {
	lookup.Resource
	new     bool  // new says that the cluster does not have it, but files that are put on top.
	guessed bool  // guessed says that the scope is that of the objects that are known.
	unread  error // unread is why claims cannot be read, such as that their version is not served.
}

// notServedError is for what is not served by files, or has no schema.
type notServedError struct{ error }

func notServed(err error) bool {
	return registry.NotInstalledOrUnsuitable(err) || errors.As(err, new(notServedError))
}

// World explains claims, and decides on them, by registrations and classes as they were when a kind was first asked for, or as they would
// be after a change. It is for one caller at a time.
type World struct {
	source

	own      string   // namespace of classbind
	settings settings // settings are what --set says.
	// What was read for the claims before, by name.
	resources map[string]resource // of claim kinds
	kinds     map[string]*Kind
	offers    map[string]*offer // of class kinds
	schemas   map[schema.GroupVersionKind]func() (*objectSchema, error)
	// counted are the views of the claim kinds that were asked for, which count the claims that are decided on here. inCluster count those
	// of the cluster; uncounted is why those of a claim kind cannot be listed.
	counted, inCluster selector.Snapshot
	uncounted          map[string]error
}

// Kind of claims, with all classes, as explain reads them.
type Kind struct {
	*selector.View
	// Resource of the claims, in the version for which the paths are written.
	Resource   schema.GroupVersionResource
	Namespaced bool
	Notes      []string // Notes say why the server may decide otherwise.

	spec                      *v1beta1.ClaimKind
	world                     *World
	all                       []*inventory.Classes // all classes, also of class kinds that the View leaves out.
	invalid                   []InvalidExpression  // invalid expressions of the claim kind, and of class kinds that serve it.
	pathsReason, pathsProblem string               // pathsProblem, with its reason, is what the schema of the claims does not allow.
}

// newWorld has nothing yet. own is the namespace of classbind.
func newWorld(own string) *World {
	return &World{
		source: source{
			memory: &registry.Memory{}, objectNamespace: metav1.NamespaceDefault, crds: map[string]CRD{},
			read: map[objectName]map[string]any{},
		},
		own: own, resources: map[string]resource{}, kinds: map[string]*Kind{}, offers: map[string]*offer{}, counted: selector.Snapshot{},
		inCluster: selector.Snapshot{}, uncounted: map[string]error{},
		schemas: map[schema.GroupVersionKind]func() (*objectSchema, error){},
	}
}

// resourceOf the claims of a ClaimKind. It says why it cannot be read, and is without a kind where it is not served at all.
func (w *World) resourceOf(ctx context.Context, k *v1beta1.ClaimKind) resource {
	found, ok := w.resources[k.Name]
	if !ok {
		found, found.unread = w.resolve(ctx, k.Resource(), w.memory.VersionOf(k), "create")
		w.resources[k.Name] = found
	}
	return found
}

// claimKindsOf a kind.
func (w *World) claimKindsOf(ctx context.Context, kind schema.GroupKind) (kinds []*v1beta1.ClaimKind, err error) {
	for i := range w.claimKinds {
		k := &w.claimKinds[i]
		if _, group, _ := strings.Cut(k.Resource(), "."); group != kind.Group {
			continue
		}
		found := w.resourceOf(ctx, k)
		if found.unread != nil && !notServed(found.unread) {
			return nil, fmt.Errorf("cannot tell whether claim kind %q is that of the claim: %w", k.Name, found.unread)
		}
		if found.Kind == kind.Kind {
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

// schemaOf a kind, which is read once.
func (w *World) schemaOf(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	if w.schemas[kind] == nil {
		w.schemas[kind] = sync.OnceValues(func() (*objectSchema, error) { return w.schema(ctx, kind) })
	}
	return w.schemas[kind]()
}

// schemaSource has the schemas that are at hand.
func (w *World) schemaSource(ctx context.Context) openapi.Source {
	of := func(name, version string) *openapi.Schema {
		found, err := w.resolve(ctx, name, version)
		if err != nil {
			return nil
		}
		if s, err := w.schemaOf(ctx, found.GroupVersionKind); err == nil && s != nil {
			return s.paths
		}
		return nil
	}
	return openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), w.memory.VersionOf(k)) },
	}
}

// stored reads a claim of the cluster, KIND/NAME, where KIND is a name of its resource. It is read in the version for which the paths of
// its ClaimKind are written, so that the API server converts it, as it does for the webhook.
func (w *World) stored(ctx context.Context, arg, namespace string) (d document, err error) {
	kind, name, _ := strings.Cut(arg, "/")
	_, found, err := w.named(ctx, kind)
	if err != nil {
		return d, fmt.Errorf("%q: %w", arg, err)
	}
	if !found.Namespaced {
		namespace = ""
	}
	d.Object, err = w.object(ctx, found, namespace, name)
	if err = cmp.Or(found.unread, err); err == nil && d.Object == nil {
		err = errors.New("there is none of this name")
	}
	if err != nil {
		return d, fmt.Errorf("cannot get the claim %q: %w", arg, err)
	}
	d.where, d.stored = "the cluster", true
	return d, nil
}

// named returns the ClaimKinds that a word names: one by its name, or all of one resource, by a name that kubectl takes.
func (w *World) named(ctx context.Context, word string) ([]*v1beta1.ClaimKind, resource, error) {
	var all []*v1beta1.ClaimKind
	for i := range w.claimKinds {
		all = append(all, &w.claimKinds[i])
	}
	kinds, known := lookup.Find(word, all, (*v1beta1.ClaimKind).GetName,
		func(k *v1beta1.ClaimKind) (string, lookup.Resource) {
			return k.Resource(), w.resourceOf(ctx, k).Resource
		})
	resources := sets.New[string]()
	for _, k := range kinds {
		resources.Insert(k.Resource())
	}
	switch len(resources) {
	case 0:
		return nil, resource{}, fmt.Errorf("no ClaimKind registers %q%s", word,
			cmp.Or(near.Meant(word, known), ": name the kind of a claim, or its plural"))
	case 1:
		return kinds, w.resourceOf(ctx, kinds[0]), nil
	}
	return nil, resource{}, fmt.Errorf("%q may be any of %s: name one of them", word, strings.Join(sets.List(resources), ", "))
}

func newKind(ctx context.Context, w *World, k *v1beta1.ClaimKind) *Kind {
	found := w.resourceOf(ctx, k)
	return &Kind{
		Resource:   found.GroupVersion().WithResource(schema.ParseGroupResource(k.Resource()).Resource),
		Namespaced: found.Namespaced, spec: k, world: w,
	}
}

// kind of claims, with all classes.
func (w *World) kind(ctx context.Context, k *v1beta1.ClaimKind) (*Kind, error) {
	if v := w.kinds[k.Name]; v != nil {
		return v, nil
	}
	v := newKind(ctx, w, k)
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		v.note("classbind does not bind claims of %s now (%s): %s", k.Name, c.Reason, c.Message)
	}
	serving := rules.Serving(k, w.classKinds)
	for _, ck := range serving {
		classes, err := v.offered(ctx, ck)
		if err != nil {
			return nil, err
		}
		if classes != nil {
			v.all = append(v.all, classes)
		}
	}
	kind := selector.NewClaimKind(k, serving...)
	if kind.Use != "" && w.authorizer == nil {
		kind.Use = ""
		v.note("who may use which class is not known without a cluster: all classes count as allowed (classes.use)")
	}
	s, err := w.schemaOf(ctx, w.resources[kind.Name].GroupVersionKind)
	if err != nil {
		v.note("the paths of the registration are not compared with the schema of the claims: %v", err)
	}
	paths := selector.PathsCheck{} // No kind of Kubernetes' own has the field that is the default.
	paths.SelectorAbsent = scheme.Scheme.IsGroupRegistered(kind.Resource.Group) && kind.Selector.String() == "spec.classSelector"
	if s != nil {
		paths = selector.CheckPaths(kind, s.paths)
	}
	kind.SetPaths(paths)
	v.View = selector.NewView(kind, slices.Clone(v.all))
	v.pathsReason, v.pathsProblem = v.PathsProblem(paths)
	if v.pathsReason == v1beta1.ReasonReferenceRefused || v.pathsReason == v1beta1.ReasonAllReferencesRefused {
		v.note("the registration does not fit the schema of the claims: %s", v.pathsProblem)
	}
	schemas := w.schemaSource(ctx)
	v.addInvalid("claimkind/"+k.Name, append(v.Kind.InvalidExpressions(), schemas.MistypedOfClaims(ctx, k, serving)...))
	for _, ck := range serving {
		v.addInvalid("classkind/"+ck.Name, schemas.MistypedOfClasses(ctx, ck, rules.Served(ck, w.claimKinds)))
	}
	v.Fault = cmp.Or(selector.ConflictOf(k, w.claimKinds), v.Fault)
	if err := v.relate(ctx); err != nil {
		return nil, err
	}
	for _, leftOut := range v.LeftOut {
		v.note("%v", v.FaultOf(leftOut.Name))
	}
	w.kinds[k.Name] = v
	return v, nil
}

// offer is what was read of a class kind for all claim kinds: its classes, with the notes and invalid expressions of a Kind.
type offer struct {
	by      *Kind
	classes *inventory.Classes
	err     error
}

// offered classes of a kind, nil where the server leaves them out. They are listed once, whatever number of claim kinds they serve.
func (k *Kind) offered(ctx context.Context, ck *v1beta1.ClassKind) (*inventory.Classes, error) {
	o := k.world.offers[ck.Name]
	if o == nil {
		o = &offer{by: &Kind{world: k.world}}
		if o.classes, o.err = o.by.list(ctx, ck); ctx.Err() == nil {
			k.world.offers[ck.Name] = o
		}
	}
	k.Notes, k.invalid = append(k.Notes, o.by.Notes...), append(k.invalid, o.by.invalid...)
	return o.classes, o.err
}

func (k *Kind) list(ctx context.Context, ck *v1beta1.ClassKind) (*inventory.Classes, error) {
	if ck.IsIgnored() {
		k.note("the classes of %s are left out, as classbind does: the ClassKind has the annotation %s", ck.Name, v1beta1.IgnoredAnnotation)
		return nil, nil
	}
	ready := meta.FindStatusCondition(ck.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason != v1beta1.ReasonAmbiguousReference { // The View knows that.
		k.note("classbind may know other classes of %s than these, by the status (%s): %s", ck.Name, ready.Reason, ready.Message)
	}
	kind, found, err := k.classKind(ctx, ck)
	if kind == nil || err != nil {
		return nil, err
	}
	return k.world.classes(ctx, kind, found)
}

// classKind compiles a class kind, nil where the server leaves out its classes.
func (k *Kind) classKind(ctx context.Context, ck *v1beta1.ClassKind) (*inventory.ClassKind, resource, error) {
	found, err := k.world.resolve(ctx, ck.Name, "", "list", "watch")
	if notServed(err) {
		k.note("the classes of %s are left out, as classbind does: %v", ck.Name, err)
		return nil, found, nil
	}
	if err != nil {
		return nil, found, fmt.Errorf("cannot find the kind of the classes of %q: %w", ck.Name, err)
	}
	if found.Kind == "" { // Two kinds of which nothing is known are not the same.
		found.Kind = ck.Name
	}
	kind := inventory.NewClassKind(ck, found.GroupVersionKind, found.Namespaced, rules.Served(ck, k.world.claimKinds)...)
	if kind.Fault != nil {
		k.note("the classes of %s are left out, as classbind does: %v", ck.Name, kind.Fault)
		k.addInvalid("classkind/"+ck.Name, rules.InvalidOfClasses(ck))
		return nil, found, nil //nolint:nilerr // It is noted.
	}
	return kind, found, nil
}

func (k *Kind) addInvalid(registration string, all []rules.Invalid) {
	for _, e := range all {
		k.invalid = append(k.invalid, InvalidExpression{registration, e.Field, e.Err.Line, e.Err.Column, e.Err.Text, e.Err.Caret()})
	}
}

func (k *Kind) note(format string, args ...any) {
	k.Notes = append(k.Notes, fmt.Sprintf(format, args...))
}

// unselected says why the claims of a namespace are not bound, empty where they are.
func (w *World) unselected(ctx context.Context, k *v1beta1.ClaimKind, namespace string) (string, error) {
	namespaces, err := claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, w.own)
	if err != nil {
		return "", fmt.Errorf("cannot explain claims of %q: %w", k.Name, err)
	}
	switch selected, always := namespaces.Known(namespace); {
	case selected:
		return "", nil
	case always:
		return fmt.Sprintf("claims in %s are never bound", namespace), nil
	}
	found, _, err := w.namespace(ctx, namespace)
	has, _, _ := unstructured.NestedStringMap(found, "metadata", "labels")
	if err != nil || namespaces.Select(namespace, has) {
		return "", err
	}
	return fmt.Sprintf("the claim kind selects namespaces by %q, which %q does not match", namespaces, namespace), nil
}
