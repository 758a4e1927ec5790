package explain

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// overlay is a cluster as it would be if files were applied to it.
type overlay struct {
	cluster source
	files   *files
}

func (o *overlay) registrations(ctx context.Context) ([]v1beta1.ClaimKind, []v1beta1.ClassKind, error) {
	claimKinds, classKinds, err := o.cluster.registrations(ctx)
	claimKinds = replace(claimKinds, o.files.claimKinds, func(old *v1beta1.ClaimKind, next v1beta1.ClaimKind) { old.Spec = next.Spec })
	classKinds = replace(classKinds, o.files.classKinds, func(old *v1beta1.ClassKind, next v1beta1.ClassKind) { old.Spec = next.Spec })
	return claimKinds, classKinds, err
}

// replace returns all with next. Those of the same name keep all but what change takes of the next one,
// such as their status.
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

func (o *overlay) resolve(ctx context.Context, name, version string, verbs ...string) (resource, error) {
	found, err := o.cluster.resolve(ctx, name, version, verbs...)
	if _, ok := o.files.crds[name]; ok && notServed(err) {
		added, err := o.files.resolve(ctx, name, version, verbs...)
		added.new = found.Kind == ""
		return added, err
	}
	return found, err
}

func (o *overlay) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	if _, c := o.files.definitionOf(kind.GroupKind()); c != nil {
		return o.files.schema(ctx, kind)
	}
	return o.cluster.schema(ctx, kind)
}

// classes of the cluster, with those of the files.
func (o *overlay) classes(ctx context.Context, kind *inventory.ClassKind, of resource) (*inventory.Classes, error) {
	added, err := o.files.classList(kind)
	if err != nil {
		return nil, err
	}
	if of.new {
		return inventory.NewClasses(kind, added), nil
	}
	classes, err := o.cluster.classes(ctx, kind, of)
	if err != nil {
		return nil, err
	}
	for _, c := range added {
		classes = classes.With(c)
	}
	return classes, nil
}

func (o *overlay) object(ctx context.Context, of resource, namespace, name string) (map[string]any, error) {
	if found, err := o.files.object(ctx, of, namespace, name); found != nil || err != nil || of.new {
		return found, err
	}
	return o.cluster.object(ctx, of, namespace, name)
}

func (o *overlay) names(ctx context.Context, of resource, namespace string) []string {
	return o.cluster.names(ctx, of, namespace)
}
