package registry

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
)

// Reader reads once what Registration watches, in the same way, to explain a decision.
type Reader struct {
	cluster.Resolver

	classes *classClient
}

// NewReader returns a Reader of a cluster.
func NewReader(config *rest.Config) (*Reader, error) {
	classes, err := newClassClient(config)
	if err != nil {
		return nil, err
	}
	resolver, err := cluster.NewResolver(config)
	if err != nil {
		return nil, err
	}
	return &Reader{Resolver: resolver, classes: classes}, nil
}

// NotInstalledOrUnsuitable says that the API server answered, and does not serve the resource with these verbs or in this version. Other
// errors may pass.
func NotInstalledOrUnsuitable(err error) bool {
	return errors.Is(err, cluster.ErrNotInstalled) || errors.Is(err, cluster.ErrUnsuitable) || errors.Is(err, cluster.ErrVersionNotServed)
}

// Classes returns the classes of a kind: only their metadata, unless the kind needs more.
func (r *Reader) Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error) {
	var all []*inventory.Class
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.classes.list(ctx, kind, "", o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		c, err := class(nil, kind, o)
		all = append(all, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the classes of %q: %w", kind.Name, err)
	}
	return inventory.NewClasses(kind, all), nil
}
