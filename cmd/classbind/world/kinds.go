package world

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

// Resource in the version that the API server prefers, or in which claims are read.
type Resource struct {
	lookup.Resource
	Guessed bool  // Guessed reports whether the scope is that of the objects that are known.
	Unread  error // Unread is why claims cannot be read, such as that their version is not served.

	new bool // new reports whether the cluster does not have it, but files that are put on top.
}

// Of its name, <plural>.<group>, it is this resource.
func (r Resource) Of(name string) schema.GroupVersionResource {
	return r.GroupVersion().WithResource(schema.ParseGroupResource(name).Resource)
}

// notServedError is for what is not served by files, or has no schema.
type notServedError struct{ error }

// NotServed reports whether an error means that there is no such kind, or not in this version.
func NotServed(err error) bool {
	return registry.NotInstalledOrUnsuitable(err) || errors.As(err, new(notServedError))
}

// World decides on claims, by registrations and classes as they were when a kind was first asked for, or as they would be after a change.
// It is for one caller at a time.
type World struct {
	source

	Own      string   // Own is the namespace of classbind.
	Settings Settings // Settings are what --set says.
	files    Manifests
	// What was read for the claims before, by name.
	resources  map[string]Resource // of claim kinds
	kinds      map[string]*Kind
	classKinds map[string]*ClassKind
	schemas    map[schema.GroupVersionKind]func() (*Schema, error)
	// counted are the views of the claim kinds that were asked for, which count the claims that are decided on here. inCluster count those
	// of the cluster; uncounted is why those of a claim kind cannot be listed.
	counted, inCluster selector.Snapshot
	uncounted          map[string]error
}

// Kind of claims, with all classes.
type Kind struct {
	View *selector.View
	// Resource of the claims, in the version for which the paths are written.
	Resource   schema.GroupVersionResource
	Namespaced bool
	Notes      []string            // Notes say why the server may decide otherwise.
	Invalid    []InvalidExpression // Invalid expressions of the claim kind, and of class kinds that serve it.
	Paths      *inventory.Fault    // Paths is what the schema of the claims does not allow, nil if that is nothing.
	// Serving are all classes, also of class kinds that the View leaves out.
	Serving []*inventory.Classes

	spec  *v1beta1.ClaimKind
	world *World
}

// Resource of the claims of a ClaimKind. It says why it cannot be read, and is without a kind where it is not served at all.
func (w *World) Resource(ctx context.Context, k *v1beta1.ClaimKind) Resource {
	found, ok := w.resources[k.Name]
	if !ok {
		found, found.Unread = w.Resolve(ctx, k.Resource(), w.Memory.VersionOf(k), "create")
		w.resources[k.Name] = found
	}
	return found
}

// ClaimKindsOf a kind.
func (w *World) ClaimKindsOf(ctx context.Context, kind schema.GroupKind) (kinds []*v1beta1.ClaimKind, err error) {
	for i := range w.ClaimKinds {
		k := &w.ClaimKinds[i]
		if _, group, _ := strings.Cut(k.Resource(), "."); group != kind.Group {
			continue
		}
		found := w.Resource(ctx, k)
		if found.Unread != nil && !NotServed(found.Unread) {
			return nil, fmt.Errorf("cannot determine whether claim kind %q is that of the claim: %w", k.Name, found.Unread)
		}
		if found.Kind == kind.Kind {
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

// SchemaOf a kind, which is read once.
func (w *World) SchemaOf(ctx context.Context, kind schema.GroupVersionKind) (*Schema, error) {
	if w.schemas[kind] == nil {
		w.schemas[kind] = sync.OnceValues(func() (*Schema, error) { return w.schema(ctx, kind) })
	}
	return w.schemas[kind]()
}

// schemaSource has the schemas that are at hand.
func (w *World) schemaSource(ctx context.Context) openapi.Source {
	of := func(name, version string) *openapi.Schema {
		found, err := w.Resolve(ctx, name, version)
		if err != nil {
			return nil
		}
		if s, err := w.SchemaOf(ctx, found.GroupVersionKind); err == nil && s != nil {
			return s.paths
		}
		return nil
	}
	return openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), w.Memory.VersionOf(k)) },
	}
}

// OfTheCluster is where a claim of the cluster was read from.
const OfTheCluster = "the cluster"

// Stored reads a claim of the cluster. kind is a name of its resource. The claim is read in the version for which the paths of
// its ClaimKind are written, so that the API server converts it, as it does for the webhook.
func (w *World) Stored(ctx context.Context, kind, namespace, name string) (d Document, err error) {
	arg := kind + "/" + name
	_, found, err := w.Named(ctx, kind)
	if err != nil {
		return d, fmt.Errorf("%q: %w", arg, err)
	}
	if !found.Namespaced {
		namespace = ""
	}
	d.Object, err = w.object(ctx, found, namespace, name)
	if err = cmp.Or(found.Unread, err); err == nil && d.Object == nil {
		err = errors.New("there is none of this name")
	}
	if err != nil {
		return d, fmt.Errorf("cannot get the claim %q: %w", arg, err)
	}
	d.Where, d.Stored = OfTheCluster, true
	return d, nil
}

// Named returns the ClaimKinds that a word names: one by its name, or all of one resource, by a name that kubectl takes.
func (w *World) Named(ctx context.Context, word string) ([]*v1beta1.ClaimKind, Resource, error) {
	var all []*v1beta1.ClaimKind
	for i := range w.ClaimKinds {
		all = append(all, &w.ClaimKinds[i])
	}
	kinds, known := lookup.Find(word, all, (*v1beta1.ClaimKind).GetName,
		func(k *v1beta1.ClaimKind) (string, lookup.Resource) {
			return k.Resource(), w.Resource(ctx, k).Resource
		})
	resources := sets.New[string]()
	for _, k := range kinds {
		resources.Insert(k.Resource())
	}
	switch len(resources) {
	case 0:
		return nil, Resource{}, fmt.Errorf("no ClaimKind registers %q%s", word,
			cmp.Or(near.Meant(word, known), ": name the kind of a claim, or its plural"))
	case 1:
		return kinds, w.Resource(ctx, kinds[0]), nil
	}
	return nil, Resource{}, fmt.Errorf("%q may be any of %s: name one of them", word, strings.Join(sets.List(resources), ", "))
}

func newKind(ctx context.Context, w *World, k *v1beta1.ClaimKind) *Kind {
	found := w.Resource(ctx, k)
	return &Kind{Resource: found.Of(k.Resource()), Namespaced: found.Namespaced, spec: k, world: w}
}

// Kind of the claims of a ClaimKind, with all classes.
func (w *World) Kind(ctx context.Context, k *v1beta1.ClaimKind) (*Kind, error) {
	if v := w.kinds[k.Name]; v != nil {
		return v, nil
	}
	v := newKind(ctx, w, k)
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		v.note("classbind does not bind claims of %s now (%s): %s", k.Name, c.Reason, c.Message)
	}
	serving := rules.Serving(k, w.ClassKinds)
	for _, ck := range serving {
		classes, err := v.Offered(ctx, ck)
		if err != nil {
			return nil, err
		}
		if classes != nil {
			v.Serving = append(v.Serving, classes)
		}
	}
	kind := selector.NewClaimKind(k, serving...)
	if kind.Use != "" && w.Cluster == nil {
		kind.Use = ""
		v.note("who may use which class is not known without a cluster: all classes count as allowed (classes.use)")
	}
	s, err := w.SchemaOf(ctx, w.Resource(ctx, k).GroupVersionKind)
	if err != nil {
		v.note("the paths of the registration are not compared with the schema of the claims: %v", err)
	}
	paths := selector.PathsCheck{} // No kind of Kubernetes' own has the field that is the default.
	isBuiltIn := scheme.Scheme.IsGroupRegistered(kind.Reader.Resource.Group)
	paths.SelectorAbsent = isBuiltIn && kind.Reader.Selector.String() == "spec.classSelector"
	if s != nil {
		paths = selector.CheckPaths(kind, s.paths)
	}
	kind.SetPaths(paths)
	related, fault, err := v.relate(ctx, kind)
	if err != nil {
		return nil, err
	}
	v.View = selector.NewView(kind, slices.Clone(v.Serving)).WithRelated(related)
	if reason, text := v.View.PathsProblem(paths); reason != "" {
		v.Paths = &inventory.Fault{Reason: reason, Text: text}
		if reason == v1beta1.ReasonReferenceRefused || reason == v1beta1.ReasonAllReferencesRefused {
			v.note("the registration does not fit the schema of the claims: %s", text)
		}
	}
	schemas := w.schemaSource(ctx)
	invalid := append(v.View.Kind.Rules.InvalidExpressions(), schemas.MistypedOfClaims(ctx, k, serving)...)
	v.Invalid = append(v.Invalid, InvalidOf("claimkind/"+k.Name, invalid)...)
	for _, ck := range serving {
		invalid := schemas.MistypedOfClasses(ctx, ck, rules.Served(ck, w.ClaimKinds))
		v.Invalid = append(v.Invalid, InvalidOf("classkind/"+ck.Name, invalid)...)
	}
	v.View.Fault = cmp.Or(selector.ConflictOf(k, w.ClaimKinds), v.View.Fault, fault)
	for _, leftOut := range v.View.LeftOut {
		v.note("%v", v.View.FaultOf(leftOut.Name))
	}
	w.kinds[k.Name] = v
	return v, nil
}

// ClassKind is a registered kind of classes.
type ClassKind struct {
	*inventory.ClassKind
	Found Resource
	Err   error // Err is why its resource was not found, and so its classes are not known.

	list func() (*inventory.Classes, error)
}

// String is the name of the ClassKind.
func (k *ClassKind) String() string { return k.Name }

// Classes of the kind, of the cluster and of the files. They are listed once, whatever number of claim kinds they serve.
func (k *ClassKind) Classes() (*inventory.Classes, error) { return k.list() }

// ClassKind compiles a class kind, once.
func (w *World) ClassKind(ctx context.Context, ck *v1beta1.ClassKind) *ClassKind {
	k := w.classKinds[ck.Name]
	if k == nil {
		k = w.Compile(ctx, ck)
		w.classKinds[ck.Name] = k
	}
	return k
}

// Compile a class kind that need not be registered.
func (w *World) Compile(ctx context.Context, ck *v1beta1.ClassKind) *ClassKind {
	k := &ClassKind{}
	k.Found, k.Err = w.Resolve(ctx, ck.Name, "", "list", "watch")
	kind := k.Found.GroupVersionKind
	kind.Kind = cmp.Or(kind.Kind, ck.Name) // Two unknown kinds are not the same.
	k.ClassKind = inventory.NewClassKind(ck, kind, k.Found.Namespaced, rules.Served(ck, w.ClaimKinds)...)
	k.list = sync.OnceValues(func() (*inventory.Classes, error) {
		if k.Err != nil {
			return nil, k.Err
		}
		return w.classes(ctx, k.ClassKind, k.Found)
	})
	return k
}

// Offered classes of a kind, nil where the server leaves them out.
func (k *Kind) Offered(ctx context.Context, ck *v1beta1.ClassKind) (*inventory.Classes, error) {
	if ck.IsIgnored() {
		k.note("the classes of %s are left out, as classbind does: the ClassKind has the annotation %s", ck.Name, v1beta1.IgnoredAnnotation)
		return nil, nil
	}
	ready := meta.FindStatusCondition(ck.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason != v1beta1.ReasonAmbiguousReference { // The View knows that.
		k.note("classbind may know other classes of %s than these, by the status (%s): %s", ck.Name, ready.Reason, ready.Message)
	}
	kind, err := k.classKind(ctx, ck)
	if kind == nil || err != nil {
		return nil, err
	}
	return kind.Classes()
}

// classKind of a registration, nil where the server leaves out its classes.
func (k *Kind) classKind(ctx context.Context, ck *v1beta1.ClassKind) (*ClassKind, error) {
	kind := k.world.ClassKind(ctx, ck)
	switch {
	case NotServed(kind.Err):
		k.note("the classes of %s are left out, as classbind does: %v", ck.Name, kind.Err)
		return nil, nil
	case kind.Err != nil:
		return nil, fmt.Errorf("cannot find the kind of the classes of %q: %w", ck.Name, kind.Err)
	case kind.Fault != nil:
		k.note("the classes of %s are left out, as classbind does: %v", ck.Name, kind.Fault)
		k.Invalid = append(k.Invalid, InvalidOf("classkind/"+ck.Name, rules.InvalidOfClasses(ck))...)
		return nil, nil //nolint:nilerr // It is noted.
	}
	return kind, nil
}

// InvalidOf a registration are these.
func InvalidOf(registration string, all []rules.Invalid) (invalid []InvalidExpression) {
	for _, e := range all {
		invalid = append(invalid, InvalidExpression{registration, e.Field, e.Err.Line, e.Err.Column, e.Err.Text, e.Err.Caret()})
	}
	return invalid
}

func (k *Kind) note(format string, args ...any) {
	k.Notes = append(k.Notes, fmt.Sprintf(format, args...))
}

// Unselected says why the claims of a namespace are not bound, empty where they are.
func (w *World) Unselected(ctx context.Context, k *v1beta1.ClaimKind, namespace string) (string, error) {
	namespaces, err := claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, w.Own)
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
