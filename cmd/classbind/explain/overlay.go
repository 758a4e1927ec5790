package explain

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// overlay is a cluster as it would be if files were applied to it.
type overlay struct {
	cluster source
	files   *files
}

func (o *overlay) registrations(ctx context.Context) ([]v1alpha1.ClaimKind, []v1alpha1.ClassKind, error) {
	claimKinds, classKinds, err := o.cluster.registrations(ctx)
	claimKinds = replace[v1alpha1.ClaimKind](claimKinds, o.files.claimKinds)
	classKinds = replace[v1alpha1.ClassKind](classKinds, o.files.classKinds)
	return claimKinds, classKinds, err
}

// replace returns all with next, which take the place of those of their names and are as old. The others
// of next were created just now, at the same time.
func replace[T any, P interface {
	*T
	metav1.Object
}](all, next []T) []T {
	now := metav1.Now()
	for _, t := range next {
		i := slices.IndexFunc(all, func(old T) bool { return P(&old).GetName() == P(&t).GetName() })
		if i < 0 {
			P(&t).SetCreationTimestamp(now)
			all = append(all, t)
			continue
		}
		P(&t).SetCreationTimestamp(P(&all[i]).GetCreationTimestamp())
		all[i] = t
	}
	return all
}

func (o *overlay) resolve(ctx context.Context, name string, verbs ...string) (resource, error) {
	found, err := o.cluster.resolve(ctx, name, verbs...)
	if added, ok := o.files.crds[name]; ok && notServed(err) {
		return added.resource, nil
	}
	return found, err
}

func (o *overlay) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	if s, err := o.files.schema(ctx, kind); s != nil || err != nil {
		return s, err
	}
	return o.cluster.schema(ctx, kind)
}

// classes of the cluster, with those of the files. A kind that only the files define has no others.
func (o *overlay) classes(ctx context.Context, kind *selector.ClassKind) (*selector.Classes, error) {
	added, err := o.files.classList(kind)
	if err != nil {
		return nil, err
	}
	if _, err := o.cluster.resolve(ctx, kind.Name, "list", "watch"); notServed(err) {
		return selector.NewClasses(kind, added), nil
	}
	classes, err := o.cluster.classes(ctx, kind)
	if err != nil {
		return nil, err
	}
	for _, c := range added {
		classes = classes.With(c)
	}
	return classes, nil
}

func (o *overlay) namespaceLabels(ctx context.Context, name string) (labels.Set, error) {
	if has, err := o.files.namespaceLabels(ctx, name); has != nil || err != nil {
		return has, err
	}
	return o.cluster.namespaceLabels(ctx, name)
}
