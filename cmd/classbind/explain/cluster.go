package explain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// cluster is a source that reads the API server, like the server does. It needs only the right to
// list, and to get the claims that are named, and what expressions look at besides.
type cluster struct {
	api    client.Client
	reader *registry.Reader
}

func newCluster(config *rest.Config) (*cluster, error) {
	api, err := connect.Client(config)
	if err != nil {
		return nil, err
	}
	reader, err := registry.NewReader(config)
	if err != nil {
		return nil, err
	}
	return &cluster{api: api, reader: reader}, nil
}

func (c *cluster) registrations(ctx context.Context) ([]v1beta1.ClaimKind, []v1beta1.ClassKind, error) {
	return connect.Registrations(ctx, c.api)
}

func (c *cluster) resolve(ctx context.Context, name, version string, verbs ...string) (resource, error) {
	found, err := c.reader.Resolve(ctx, name, version, verbs...)
	return resource{Resource: found}, err
}

// schema is that of the CRD, for those who may read it, and else that of the OpenAPI document, which
// every user may read. It lacks what a CRD says of the metadata.
func (c *cluster) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	version := kind.GroupVersion()
	mapping, err := c.api.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, notServedError{fmt.Errorf("the API server does not serve %s of %s", kind.Kind, version)}
	case err != nil:
		return nil, fmt.Errorf("cannot look up %s: %w", version, truncate.Error(err))
	}
	if text, err := c.reader.CRD(ctx, mapping.Resource.GroupResource().String()); err == nil {
		return schemaOfCRD(text, kind.Version)
	}
	document, err := c.reader.OpenAPI(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s: %w", version, err)
	}
	return schemaOfOpenAPI(document, kind)
}

func (c *cluster) classes(ctx context.Context, kind *inventory.ClassKind, _ resource) (*inventory.Classes, error) {
	return c.reader.Classes(ctx, kind)
}

func (c *cluster) object(ctx context.Context, of resource, namespace, name string) (map[string]any, error) {
	if len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 || of.Namespaced && namespace == "" {
		return nil, nil // Authors of claims make names up. No object can have this one.
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(of.GroupVersionKind)
	err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	if err != nil {
		return nil, truncate.Error(client.IgnoreNotFound(err))
	}
	return found.Object, nil
}

func (c *cluster) names(ctx context.Context, of resource, namespace string) []string {
	return connect.Names(ctx, c.api, of.GroupVersionKind, namespace)
}
