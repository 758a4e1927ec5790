package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
)

// source of registrations and classes: files, or a cluster, or a cluster as it would be if files were applied to it.
type source struct {
	Cluster *Cluster         // Cluster is nil if none is asked.
	Memory  *registry.Memory // Memory of what was served
	// objectNamespace is that of objects that name none, and ClaimNamespace that of claims.
	objectNamespace, ClaimNamespace string

	ClaimKinds []v1beta1.ClaimKind
	ClassKinds []v1beta1.ClassKind
	// CRDs by name, objects and Claims are of files. objects are all of --offline or --with; Claims are those to explain.
	CRDs            map[string]CRD
	objects, Claims []Document
	removals        []*removal // removals are what is there and does not count.
	// Twice is called for a class that is there already, which is then left out. Without it, that is an error.
	Twice func(d *Document, err error)
	// read are objects of the cluster that many claims name, nil where there is none.
	read map[objectName]map[string]any
}

// maxRead limits the objects that are kept, so that those of the next claims are read again.
const maxRead = 1000

// objectName names an object.
type objectName struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// KindOf a registration.
func KindOf(registration string) schema.GroupKind {
	return v1beta1.GroupVersion.WithKind(registration).GroupKind()
}

var crdKind = apiextensionsv1.Kind("CustomResourceDefinition")

// nameable is an object of a type.
type nameable[T any] interface {
	*T
	metav1.Object
}

// onTop are all with next. Those of the same name keep all but what change takes of the next one, such as their status.
func onTop[T any, P nameable[T]](all, next []T, change func(P, T)) []T {
	all = slices.Clone(all)
	for _, t := range next {
		if i := slices.Index(Names[T, P](all), P(&t).GetName()); i >= 0 {
			change(P(&all[i]), t)
		} else {
			all = append(all, t)
		}
	}
	return all
}

// Names of all.
func Names[T any, P nameable[T]](all []T) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = P(&all[i]).GetName()
	}
	return names
}

// addAll reads objects as the API server would if they were applied. What it reads must not be there twice. Other objects, such as the
// parts of a kustomization, may be.
func (s *source) addAll(ctx context.Context, objects []Document) error {
	seen := places{}
	for i := range objects {
		d := &objects[i]
		used, err := s.Add(ctx, d)
		if used && err == nil {
			err = seen.add(d, "")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.Where, err)
		}
	}
	return nil
}

// places of objects, by their id.
type places map[string]string

// add an object, which must not be there already.
func (p places) add(d *Document, namespace string) error {
	key := ID(d.GroupVersionKind().GroupKind(), namespace, d.GetName())
	if place, twice := p[key]; twice {
		return fmt.Errorf("%s %q is there already, in %s: leave out one of the two", d.GetKind(), d.GetName(), place)
	}
	p[key] = d.Where
	return nil
}

// ID of an object.
func ID(kind schema.GroupKind, namespace, name string) string {
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}

// Add an object, and report whether it is a registration or a CRD.
func (s *source) Add(ctx context.Context, d *Document) (used bool, err error) {
	used = true
	switch d.GroupVersionKind().GroupKind() {
	case KindOf("ClaimKind"):
		s.ClaimKinds, err = decoded(ctx, d, s.ClaimKinds)
	case KindOf("ClassKind"):
		s.ClassKinds, err = decoded(ctx, d, s.ClassKinds)
	case crdKind:
		s.CRDs[d.GetName()], err = readCRD(d)
	default:
		used = false
	}
	if err == nil {
		s.objects = append(s.objects, *d)
	}
	return used, err
}

// decoded are registrations with one more, read as the API server would. It loses its status and the time of its creation, which describe a
// cluster and not these files.
func decoded[T any](ctx context.Context, d *Document, others []T) ([]T, error) {
	schemas, err := ownSchemas()
	if err != nil {
		return others, err
	}
	s := schemas[d.GroupVersionKind()]
	if s == nil {
		return others, fmt.Errorf("apiVersion %q is not served", d.GetAPIVersion())
	}
	object := d.DeepCopy().Object
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(object, "status")
	errs, _ := s.Decode(object)
	errs = append(errs, FieldErrors(s.validate(ctx, object))...)
	if errs = errs[:min(len(errs), v1beta1.MaxErrors)]; len(errs) > 0 {
		return others, &RefusedError{fmt.Sprintf("%s %q", d.GetKind(), d.GetName()), errs}
	}
	var t T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &t); err != nil {
		return others, fmt.Errorf("cannot read the %s %q: %w", d.GetKind(), d.GetName(), err)
	}
	return append(others, t), nil
}

// RefusedError means that the API server would refuse an object, and why.
type RefusedError struct {
	Object string
	Errs   []FieldError
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the API server would refuse the %s: %s", e.Object, Joined(e.Errs))
}

// CRD of files: what the API server would say about its resource, in the version that it prefers, and the CRD as JSON.
type CRD struct {
	lookup.Resource
	Name   string
	JSON   []byte
	served []string // served are the versions.
}

func readCRD(d *Document) (CRD, error) {
	text, err := d.MarshalJSON()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = json.Unmarshal(text, crd)
	}
	if err != nil {
		return CRD{}, fmt.Errorf("cannot read the CRD %q: %w", d.GetName(), err)
	}
	spec, r := &crd.Spec, CRD{Name: d.GetName(), JSON: text}
	r.Group, r.Kind, r.Namespaced = spec.Group, spec.Names.Kind, spec.Scope == apiextensionsv1.NamespaceScoped
	r.Aliases = strings.Join(append(spec.Names.ShortNames, spec.Names.Singular), ",")
	for _, v := range spec.Versions {
		if v.Served {
			r.served = append(r.served, v.Name)
		}
	}
	r.Version = preferred(r.served)
	if r.Kind == "" || spec.Scope == "" || r.Version == "" {
		return r, fmt.Errorf("cannot read the CRD %q: it needs spec.names.kind, spec.scope, and a version that is served", d.GetName())
	}
	return r, nil
}

// ReadKinds reads the CRDs and the registrations of files and folders.
func ReadKinds(ctx context.Context, files Files, paths []string) (*World, error) {
	objects, err := files.Manifests(ctx, paths)
	if err != nil {
		return nil, err
	}
	w := NewWorld("")
	return w, w.addAll(ctx, objects)
}

// preferred returns the version that the API server prefers, empty if there is none.
func preferred(versions []string) string {
	if len(versions) == 0 {
		return ""
	}
	return slices.MaxFunc(versions, version.CompareKubeAwareVersionStrings)
}

// IsOf reports whether a resource, <plural>.<group>, may be that of a kind: English has three plurals.
func IsOf(resource string, kind schema.GroupVersionKind) bool {
	plural, group, _ := strings.Cut(resource, ".")
	name := strings.ToLower(kind.Kind)
	stem, y := strings.CutSuffix(name, "y")
	return group == kind.Group && (plural == name || plural == name+"s" || plural == name+"es" || y && plural == stem+"ies")
}

// Resolve a resource by its name, <plural>.<group>, in a version, or in the preferred one if that is empty; a notServedError where there is
// none. Where its CRD does not serve the version, it is in the preferred one, with an error.
func (s *source) Resolve(ctx context.Context, name, version string, verbs ...string) (found Resource, err error) {
	definition, defined := s.CRDs[name]
	switch {
	case s.Cluster != nil:
		found.Resource, err = s.Cluster.Kinds.Resolve(ctx, name, version, verbs...)
		if !defined || !NotServed(err) {
			return found, err
		}
	case !defined:
		return s.guess(name, version), nil
	}
	found = Resource{Resource: definition.Resource, new: s.Cluster != nil && found.Kind == ""}
	if version != "" && !slices.Contains(definition.served, version) {
		return found, notServedError{fmt.Errorf("the CRD %q does not serve the version for which the paths are written, %q, but %s: "+
			"write the paths for one of these, and set spec.claims.version to it", name, version, strings.Join(definition.served, ", "))}
	}
	found.Version = cmp.Or(version, found.Version)
	return found, nil
}

// guess a resource without a CRD from the first object, so that a typing error in a later one does not count. A kind without any object
// counts as installed, and has no classes.
func (s *source) guess(name, version string) Resource {
	r := Resource{Guessed: true}
	_, r.Group, _ = strings.Cut(name, ".")
	var versions []string
	for _, d := range slices.Concat(s.objects, s.Claims) {
		gvk := d.GroupVersionKind()
		if !IsOf(name, gvk) || r.Kind != "" && gvk.Kind != r.Kind { // Kinds of one plural differ in case alone.
			continue
		}
		r.Kind = gvk.Kind
		r.Namespaced = r.Namespaced || d.GetNamespace() != ""
		versions = append(versions, gvk.Version)
	}
	r.Version = cmp.Or(version, preferred(versions))
	return r
}

// schema of a kind, nil where none is at hand; a notServedError where the version is not served.
func (s *source) schema(ctx context.Context, kind schema.GroupVersionKind) (*Schema, error) {
	for name, c := range s.CRDs {
		if c.GroupKind() != kind.GroupKind() {
			continue
		}
		if !slices.Contains(c.served, kind.Version) {
			return nil, notServedError{fmt.Errorf("the CRD %q does not serve the version %q", name, kind.Version)}
		}
		return schemaOfCRD(c.JSON, kind.Version)
	}
	if s.Cluster == nil {
		return nil, nil // Nothing is known of it.
	}
	return s.Cluster.Schema(ctx, kind)
}

// classes of the cluster, with those of the files, and without those that are removed.
func (s *source) classes(ctx context.Context, kind *inventory.ClassKind, of Resource) (classes *inventory.Classes, err error) {
	var added []*inventory.Class
	seen := places{}
	for i := range s.objects {
		d := &s.objects[i]
		if d.GroupVersionKind().GroupKind() != kind.GroupVersionKind.GroupKind() {
			continue
		}
		c := d.DeepCopy()
		if c.GetName() == "" {
			return nil, fmt.Errorf("%s: this class has no metadata.name: give it one", d.Where)
		}
		namespace := ""
		if kind.Namespaced {
			namespace = cmp.Or(c.GetNamespace(), s.objectNamespace)
		}
		c.SetNamespace(namespace)
		if err := seen.add(d, namespace); err != nil {
			if s.Twice == nil {
				return nil, fmt.Errorf("%s: %w", d.Where, err)
			}
			s.Twice(d, err)
			continue
		}
		added = append(added, kind.NewClass(c, c.Object))
	}
	if s.Cluster == nil || of.new {
		return s.remove(inventory.NewClasses(kind, added), of), nil
	}
	if classes, err = s.Cluster.Kinds.Classes(ctx, kind); err != nil {
		return nil, err
	}
	for _, c := range added {
		classes = classes.With(c)
	}
	return s.remove(classes, of), nil
}
