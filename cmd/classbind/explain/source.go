package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// registrations of the cluster and of the files. Those of the same name keep all but their spec, such as their status.
func (s *source) registrations(ctx context.Context) (claimKinds []v1beta1.ClaimKind, classKinds []v1beta1.ClassKind, err error) {
	if s.cluster != nil {
		claimKinds, classKinds, err = connect.Registrations(ctx, s.cluster.API)
	}
	claimKinds = replace(claimKinds, s.claimKinds, func(old *v1beta1.ClaimKind, next v1beta1.ClaimKind) { old.Spec = next.Spec })
	classKinds = replace(classKinds, s.classKinds, func(old *v1beta1.ClassKind, next v1beta1.ClassKind) { old.Spec = next.Spec })
	return without(s, "claimkind", claimKinds), without(s, "classkind", classKinds), err
}

// replace returns all with next. Those of the same name keep all but what change takes of the next one.
func replace[T any, P interface {
	*T
	metav1.Object
}](all, next []T, change func(P, T)) []T {
	for _, t := range next {
		i := slices.IndexFunc(all, func(old T) bool { return P(&old).GetName() == P(&t).GetName() })
		if i >= 0 {
			change(P(&all[i]), t)
		} else {
			all = append(all, t)
		}
	}
	return all
}

// resolve a resource by its name, <plural>.<group>, in a version, or in the preferred one if that is empty; a
// notServedError where there is none.
func (s *source) resolve(ctx context.Context, name, version string, verbs ...string) (resource, error) {
	definition, defined := s.crds[name]
	switch {
	case s.cluster != nil:
		found, err := s.cluster.Resolve(ctx, name, version, verbs...)
		if !defined || !notServed(err) {
			return resource{Resource: found}, err
		}
		added, err := definition.resolve(name, version)
		added.new = found.Kind == ""
		return added, err
	case defined:
		return definition.resolve(name, version)
	}
	return s.guess(name, version), nil
}

// schema of a kind, nil where none is at hand; a notServedError where the version is not served. In a cluster, it is that of
// the CRD, for those who may read it, and else that of the OpenAPI document, which every user may read. It lacks what a
// CRD says of the metadata.
func (s *source) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	for name, c := range s.crds {
		switch {
		case c.GroupKind() != kind.GroupKind():
			continue
		case !slices.Contains(c.served, kind.Version):
			return nil, notServedError{fmt.Errorf("the CRD %q does not serve the version %q", name, kind.Version)}
		}
		return schemaOfCRD(c.JSON, kind.Version)
	}
	if s.cluster == nil {
		return nil, nil // Nothing is known of it.
	}
	version := kind.GroupVersion()
	mapping, err := s.cluster.API.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, notServedError{fmt.Errorf("the API server does not serve %s of %s", kind.Kind, version)}
	case err != nil:
		return nil, fmt.Errorf("cannot look up %s: %w", version, truncate.Error(err))
	}
	if text, err := s.cluster.CRD(ctx, mapping.Resource.GroupResource().String()); err == nil {
		return schemaOfCRD(text, kind.Version)
	}
	document, err := s.cluster.OpenAPI(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s: %w", version, err)
	}
	return schemaOfOpenAPI(document, kind)
}

// classes of the cluster, with those of the files.
func (s *source) classes(ctx context.Context, kind *inventory.ClassKind, of resource) (*inventory.Classes, error) {
	added, err := s.classList(kind)
	if err != nil {
		return nil, err
	}
	if s.cluster == nil || of.new {
		return s.remove(inventory.NewClasses(kind, added), of), nil
	}
	classes, err := s.cluster.Classes(ctx, kind)
	if err != nil {
		return nil, err
	}
	for _, c := range added {
		classes = classes.With(c)
	}
	return s.remove(classes, of), nil
}

// object of a resource; nil where there is none, or nothing is known of it.
func (s *source) object(ctx context.Context, of resource, namespace, name string) (map[string]any, error) {
	for n, d := range slices.Concat(s.objects, s.claims) {
		in := cmp.Or(d.GetNamespace(), s.namespace)
		if n >= len(s.objects) {
			in = cmp.Or(d.GetNamespace(), s.claimNamespace)
		}
		if d.GroupVersionKind().GroupKind() == of.GroupKind() && d.GetName() == name && (in == namespace || !of.Namespaced) {
			return d.Object, nil
		}
	}
	if s.cluster == nil || of.new ||
		len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 || of.Namespaced && namespace == "" {
		return nil, nil // Authors of claims make names up. No object can have this one.
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(of.GroupVersionKind)
	err := s.cluster.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	if err != nil {
		return nil, truncate.Error(client.IgnoreNotFound(err))
	}
	return found.Object, nil
}
