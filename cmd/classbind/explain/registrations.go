package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
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
	// new says that the cluster does not have it, but files that are put on top.
	new bool
	// guessed says that the scope is that of the objects that are known.
	guessed bool
	// unread is why claims cannot be read: their version is not served.
	unread error
}

// notServedError is for what is not served by files, or has no schema.
type notServedError struct{ error }

func notServed(err error) bool {
	return registry.NotInstalledOrUnsuitable(err) || errors.As(err, new(notServedError))
}

// registrations are what is registered.
type registrations struct {
	*source
	claimKinds []v1beta1.ClaimKind
	classKinds []v1beta1.ClassKind

	own string // namespace of classbind
	// settings are what --set says. unsettable says that there is no such flag.
	settings   settings
	unsettable bool
	// What was read for the claims before, by name.
	resources  map[string]resource // of claim kinds
	namespaces map[string]map[string]any
	views      map[string]*view
	schemas    map[schema.GroupVersionKind]foundSchema
	ledgers    *ledgers
}

type foundSchema struct {
	*objectSchema
	err error
}

// view of a claim kind.
type view struct {
	*selector.View
	// all classes, also of class kinds that the View leaves out.
	all []*inventory.Classes
	// notes are what people should know of it.
	notes []string
	// invalid expressions of the claim kind, and of class kinds that serve it.
	invalid []InvalidExpression
	// unknownRoom says of which classes it is not known how much is taken, empty where it is of all.
	unknownRoom string
}

func newRegistrations(ctx context.Context, s *source, own string) (*registrations, error) {
	claimKinds, classKinds, err := s.registrations(ctx)
	return &registrations{
		source: s, own: own, claimKinds: claimKinds, classKinds: classKinds,
		resources: map[string]resource{}, namespaces: map[string]map[string]any{}, views: map[string]*view{},
		schemas: map[schema.GroupVersionKind]foundSchema{},
	}, err
}

// claimKindsOf a kind.
func (r *registrations) claimKindsOf(ctx context.Context, kind schema.GroupKind) (kinds []*v1beta1.ClaimKind, err error) {
	for i := range r.claimKinds {
		k := &r.claimKinds[i]
		if _, group, _ := strings.Cut(k.Resource(), "."); group != kind.Group {
			continue
		}
		found, ok := r.resources[k.Name]
		if !ok {
			var err error
			found, err = r.resolve(ctx, k.Resource(), k.ReadVersion(), "create")
			if err != nil && !notServed(err) {
				return nil, fmt.Errorf("cannot tell whether claim kind %q is that of the claim: %w", k.Name, err)
			}
			found.unread = err
			r.resources[k.Name] = found // Without a kind, where it is not served.
		}
		if found.Kind == kind.Kind {
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

func (r *registrations) schemaOf(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	found, ok := r.schemas[kind]
	if !ok {
		found.objectSchema, found.err = r.schema(ctx, kind)
		r.schemas[kind] = found
	}
	return found.objectSchema, found.err
}

// schemaSource has the schemas that are at hand.
func (r *registrations) schemaSource(ctx context.Context) openapi.Source {
	of := func(name, version string) *openapi.Schema {
		found, err := r.resolve(ctx, name, version)
		if err != nil {
			return nil
		}
		if s, err := r.schemaOf(ctx, found.GroupVersionKind); err == nil && s != nil {
			return s.paths
		}
		return nil
	}
	return openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), k.ReadVersion()) },
	}
}

// stored reads a claim of the cluster, KIND/NAME, where KIND is a name of its resource. It is read in the version for which the
// paths of its ClaimKind are written, so that the API server converts it, as it does for the webhook.
func (r *registrations) stored(ctx context.Context, arg, namespace string) (d document, err error) {
	kind, name, _ := strings.Cut(arg, "/")
	_, found, err := r.named(ctx, kind)
	if err != nil {
		return d, fmt.Errorf("%q: %w", arg, err)
	}
	if !found.Namespaced {
		namespace = ""
	}
	if err = found.unread; err == nil {
		d.Object, err = r.object(ctx, found, namespace, name)
	}
	if err == nil && d.Object == nil {
		names := connect.Names(ctx, r.cluster.API, found.GroupVersionKind, namespace)
		err = errors.New("there is none of this name" + near.Meant(name, names))
	}
	if err != nil {
		return d, fmt.Errorf("cannot get the claim %q: %w", arg, err)
	}
	d.where, d.stored = "the cluster", true
	return d, nil
}

// named returns the ClaimKinds that a word names: one by its name, or all of one resource, by a name that kubectl takes. Their
// resource says why it cannot be read.
func (r *registrations) named(ctx context.Context, word string) ([]*v1beta1.ClaimKind, resource, error) {
	all := make([]*v1beta1.ClaimKind, len(r.claimKinds))
	for i := range r.claimKinds {
		all[i] = &r.claimKinds[i]
	}
	resolve := func(k *v1beta1.ClaimKind) resource {
		of, why := r.resolve(ctx, k.Resource(), k.ReadVersion(), "create")
		if notServed(why) { // The claim can be there in another version.
			of, why = r.resolve(ctx, k.Resource(), "", "create")
		}
		of.unread = why
		return of
	}
	kinds, known := lookup.Find(word, all, (*v1beta1.ClaimKind).GetName,
		func(k *v1beta1.ClaimKind) (string, lookup.Resource) { return k.Resource(), resolve(k).Resource })
	resources := sets.New[string]()
	for _, k := range kinds {
		resources.Insert(k.Resource())
	}
	switch resources.Len() {
	case 0:
		return nil, resource{}, fmt.Errorf("no ClaimKind registers %q%s", word,
			cmp.Or(near.Meant(word, known), ": name the kind of a claim, or its plural"))
	case 1:
		return kinds, resolve(kinds[0]), nil
	}
	return nil, resource{}, fmt.Errorf("%q may be any of %s: name one of them", word, strings.Join(sets.List(resources), ", "))
}

// view of a claim kind, with all classes.
func (r *registrations) view(ctx context.Context, k *v1beta1.ClaimKind) (*view, error) {
	if v := r.views[k.Name]; v != nil {
		return v, nil
	}
	v := &view{}
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		v.note("classbind does not bind claims of %s now (%s): %s", k.Name, c.Reason, c.Message)
	}
	serving := rules.Serving(k, r.classKinds)
	for _, ck := range serving {
		classes, err := r.offered(ctx, ck, v)
		if err != nil {
			return nil, err
		}
		if classes != nil {
			v.all = append(v.all, classes)
		}
	}
	kind := selector.NewClaimKind(k, serving...)
	if kind.Use != "" && r.authorizer == nil {
		kind.Use = ""
		v.note("who may use which class is not known without a cluster: all classes count as allowed (classes.use)")
	}
	addRoom(ctx, r, kind, serving, v)
	paths := r.comparePaths(ctx, kind, v)
	kind.SetPaths(paths)
	v.View = selector.NewView(kind, slices.Clone(v.all))
	reason, problem := v.PathsProblem(paths)
	if reason == v1beta1.ReasonReferenceRefused || reason == v1beta1.ReasonAllReferencesRefused {
		v.note("the registration does not fit the schema of the claims: %s", problem)
	}
	schemas := r.schemaSource(ctx)
	for _, e := range append(v.Kind.InvalidExpressions(), schemas.MistypedOfClaims(ctx, k, serving)...) {
		v.invalid = append(v.invalid, newInvalidExpression("claimkind/"+k.Name, e))
	}
	for _, ck := range serving {
		for _, e := range schemas.MistypedOfClasses(ctx, ck, rules.Served(ck, r.claimKinds)) {
			v.invalid = append(v.invalid, newInvalidExpression("classkind/"+ck.Name, e))
		}
	}
	v.Fault = cmp.Or(selector.ConflictOf(k, r.claimKinds), v.Fault)
	if err := r.relate(ctx, v); err != nil {
		return nil, err
	}
	for _, leftOut := range v.LeftOut {
		v.note("%v", v.FaultOf(leftOut.Name))
	}
	r.views[k.Name] = v
	return v, nil
}

// comparePaths of a registration with the schema of the claims, as classbind does.
func (r *registrations) comparePaths(ctx context.Context, kind *selector.ClaimKind, v *view) (check selector.PathsCheck) {
	s, err := r.schemaOf(ctx, r.resources[kind.Name].GroupVersionKind)
	if err != nil {
		v.note("the paths of the registration are not compared with the schema of the claims: %v", err)
	}
	if s == nil { // No kind of Kubernetes' own has the field that is the default.
		check.SelectorAbsent = scheme.Scheme.IsGroupRegistered(kind.Resource.Group) && kind.Selector.String() == "spec.classSelector"
		return check
	}
	return selector.CheckPaths(kind, s.paths)
}

// offered classes of a kind, nil where the server leaves them out.
func (r *registrations) offered(ctx context.Context, ck *v1beta1.ClassKind, v *view) (*inventory.Classes, error) {
	if ready := connect.LeftOut(ck); ready != nil {
		v.note("the classes of %s are left out, as classbind does (%s): %s", ck.Name, ready.Reason, ready.Message)
		return nil, nil
	}
	ready := meta.FindStatusCondition(ck.Status.Conditions, v1beta1.ConditionReady)
	if ready != nil && ready.Reason == v1beta1.ReasonStale {
		v.note("classbind may know older classes of %s than these (%s): %s", ck.Name, ready.Reason, ready.Message)
	}
	found, err := r.resolve(ctx, ck.Name, "", "list", "watch")
	if notServed(err) {
		v.note("the classes of %s are left out, as classbind does: %v", ck.Name, err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the kind of the classes of %q: %w", ck.Name, err)
	}
	if found.Kind == "" { // Two kinds of which nothing is known are not the same.
		found.Kind = ck.Name
	}
	kind := inventory.NewClassKind(ck, found.GroupVersionKind, found.Namespaced, rules.Served(ck, r.claimKinds)...)
	if kind.Fault != nil {
		v.note("the classes of %s are left out, as classbind does: %v", ck.Name, kind.Fault)
		for _, e := range rules.InvalidOfClasses(ck) {
			v.invalid = append(v.invalid, newInvalidExpression("classkind/"+ck.Name, e))
		}
		return nil, nil
	}
	return r.classes(ctx, kind, found)
}

func (v *view) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

// unselected says why the claims of a namespace are not bound, empty where they are.
func (r *registrations) unselected(ctx context.Context, k *v1beta1.ClaimKind, namespace string) (string, error) {
	namespaces, err := claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, r.own)
	if err != nil {
		return "", fmt.Errorf("cannot explain claims of %q: %w", k.Name, err)
	}
	switch selected, always := namespaces.Known(namespace); {
	case selected:
		return "", nil
	case always && namespace == r.own:
		return fmt.Sprintf("claims in %s, which is classbind's own namespace, are never bound", r.own), nil
	case always:
		return fmt.Sprintf("claims in %s are never bound", namespace), nil
	}
	found, known, err := r.namespace(ctx, namespace)
	if err != nil {
		return "", err
	}
	if has, _, _ := unstructured.NestedStringMap(found, "metadata", "labels"); namespaces.Select(namespace, has) {
		return "", nil
	}
	why := fmt.Sprintf("the claim kind selects namespaces by %q, which %q does not match", namespaces, namespace)
	if !known {
		why += ", of whose labels nothing is known"
	}
	return why, nil
}
