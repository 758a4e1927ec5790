package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// resourceKind is how the objects of a kind are read: a ClassKind, or keptObjects.
type resourceKind interface {
	Resource() schema.GroupVersionResource
	MetadataOnly() bool
}

// classClient reads classes of any kind, and related objects: only their metadata, unless the kind needs more.
type classClient struct {
	metadata metadata.Interface
	dynamic  dynamic.Interface
	// stored is called with each default class that a watch shows, and its uid. It may be nil.
	stored func(*inventory.Class, types.UID)
}

func newClassClient(config *rest.Config) (*classClient, error) {
	config = cluster.WithMaxDepth(config)
	m, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for metadata: %w", err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for classes: %w", err)
	}
	return &classClient{metadata: m, dynamic: d}, nil
}

// list returns the classes of a namespace; empty means all namespaces.
func (c *classClient) list(ctx context.Context, k resourceKind, namespace string, o metav1.ListOptions) (list runtime.Object, err error) {
	if k.MetadataOnly() {
		list, err = c.metadata.Resource(k.Resource()).Namespace(namespace).List(ctx, o)
	} else {
		list, err = c.dynamic.Resource(k.Resource()).Namespace(namespace).List(ctx, o)
	}
	return list, truncate.Error(err)
}

// each visits the classes of a namespace, or of all, page by page, so that only one page of whole objects is held.
func (c *classClient) each(
	ctx context.Context, k resourceKind, namespace string, o metav1.ListOptions, visit func(runtime.Object) error,
) error {
	for o.Limit = v1beta1.ListPage; ; {
		list, err := c.list(ctx, k, namespace, o)
		if err != nil {
			return err
		}
		if err := meta.EachListItem(list, visit); err != nil {
			return err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("cannot read a list of classes: %w", err)
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

func (c *classClient) watch(ctx context.Context, k resourceKind, o metav1.ListOptions) (events apiwatch.Interface, err error) {
	if k.MetadataOnly() {
		events, err = c.metadata.Resource(k.Resource()).Watch(ctx, o)
	} else {
		events, err = c.dynamic.Resource(k.Resource()).Watch(ctx, o)
	}
	return events, truncate.Error(err)
}

// objects of a kind, in all namespaces, to be followed.
func (c *classClient) objects(name string, kind resourceKind) cluster.Objects {
	return cluster.Objects{
		Name: name, Client: c.metadata,
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.list(ctx, kind, "", o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return c.watch(ctx, kind, o)
		},
		Why: func(ctx context.Context) error {
			_, err := c.list(ctx, kind, "", metav1.ListOptions{Limit: 1})
			return err
		},
	}
}

// get returns an object as it is stored, NotFound if there is none. If the role allows only list and watch, it reads a list of one. That
// may take longer: the API server waits until its cache is as new as etcd.
func (c *classClient) get(ctx context.Context, kind resourceKind, namespace, name string) (metav1.Object, error) {
	object, err := c.getOne(ctx, kind, namespace, name)
	if !apierrors.IsForbidden(err) {
		return object, err
	}
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name) // It escapes the name.
	if namespace != "" {
		one = fields.AndSelectors(one, fields.OneTermEqualSelector("metadata.namespace", namespace))
	}
	list, err := c.list(ctx, kind, "", metav1.ListOptions{FieldSelector: one.String()})
	if err != nil {
		return nil, err
	}
	found, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, apierrors.NewNotFound(kind.Resource().GroupResource(), name)
	}
	only, err := meta.Accessor(found[0])
	if err == nil && (only.GetName() != name || only.GetNamespace() != namespace) {
		err = fmt.Errorf("asked for a list of %q alone, the API server answered with %q", name, only.GetName())
	}
	return only, err
}

func (c *classClient) getOne(ctx context.Context, kind resourceKind, namespace, name string) (object metav1.Object, err error) {
	if kind.MetadataOnly() {
		object, err = c.metadata.Resource(kind.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	} else {
		object, err = c.dynamic.Resource(kind.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return object, truncate.Error(err)
}

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
	return &Reader{Resolver: resolver, classes: classes}, err
}

// Classes returns the classes of a kind: only their metadata, unless the kind needs more.
func (r *Reader) Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error) {
	var all []*inventory.Class
	err := r.classes.each(ctx, kind, "", metav1.ListOptions{}, func(o runtime.Object) error {
		c, err := class(nil, kind, o)
		all = append(all, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the classes of %q: %w", kind.Name, err)
	}
	return inventory.NewClasses(kind, all), nil
}
