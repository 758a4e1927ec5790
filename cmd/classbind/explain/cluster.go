package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// cluster is a source that reads the API server, like the server does. It needs only the right to
// list, and to get the claims that are named, and what expressions look at besides.
type cluster struct {
	api       client.Reader
	reader    *registry.Reader
	resolver  lookup.Resolver
	discovery discovery.DiscoveryInterface
	objects   dynamic.Interface
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
	resolver, err := lookup.NewResolver(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for claims: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	return &cluster{api: api, reader: reader, resolver: resolver, discovery: d, objects: objects}, nil
}

func (c *cluster) registrations(ctx context.Context) ([]v1alpha1.ClaimKind, []v1alpha1.ClassKind, error) {
	return connect.Registrations(ctx, c.api)
}

func (c *cluster) resolve(ctx context.Context, name, version string, verbs ...string) (resource, error) {
	kind, namespaced, err := c.reader.Resolve(ctx, name, version, verbs...)
	if registry.NotInstalledOrUnsuitable(err) {
		err = &notServedError{err}
	}
	return resource{GroupVersionKind: kind, namespaced: namespaced}, err
}

// schema is that of the CRD, for those who may read it, and else that of the OpenAPI document, which
// every user may read. It lacks what a CRD says of the metadata.
func (c *cluster) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	version := kind.GroupVersion()
	list, err := c.discovery.ServerResourcesForGroupVersion(version.String())
	switch {
	case apierrors.IsNotFound(err):
		list = &metav1.APIResourceList{}
	case err != nil:
		return nil, fmt.Errorf("cannot look up %s: %w", version, truncate.Error(err))
	}
	found := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") // A subresource may have the kind, too.
	})
	if found < 0 {
		return nil, &notServedError{fmt.Errorf("the API server does not serve %s of %s", kind.Kind, version)}
	}
	name := schema.GroupResource{Group: kind.Group, Resource: list.APIResources[found].Name}
	if text, err := c.resolver.CRD(ctx, name.String()); err == nil {
		return schemaOfCRD(text, kind.Version)
	}
	document, err := c.resolver.OpenAPI(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s: %w", version, err)
	}
	return schemaOfOpenAPI(document, kind)
}

func (c *cluster) classes(ctx context.Context, kind *selector.ClassKind, _ resource) (*selector.Classes, error) {
	return c.reader.Classes(ctx, kind)
}

func (c *cluster) object(ctx context.Context, of resource, plural, namespace, name string) (map[string]any, error) {
	if len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 || of.namespaced && namespace == "" {
		return nil, nil // Authors of claims make names up. No object can have this one.
	}
	var objects dynamic.ResourceInterface = c.objects.Resource(of.GroupVersion().WithResource(plural))
	if namespace != "" {
		objects = c.objects.Resource(of.GroupVersion().WithResource(plural)).Namespace(namespace)
	}
	found, err := objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, truncate.Error(err)
	}
	return found.Object, nil
}
