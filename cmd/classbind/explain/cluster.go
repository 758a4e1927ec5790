package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
)

// cluster is a source that reads the API server, like the server does. It needs only
// the right to list, and to get the claims that are named.
type cluster struct {
	api       client.Reader
	reader    *registry.Reader
	discovery discovery.DiscoveryInterface
	objects   dynamic.Interface
}

func newCluster(config *rest.Config) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("cannot make the scheme: %w", err)
		}
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for registrations: %w", err)
	}
	reader, err := registry.NewReader(config)
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
	return &cluster{api: api, reader: reader, discovery: d, objects: objects}, nil
}

func (c *cluster) registrations(ctx context.Context) ([]v1alpha1.ClaimKind, []v1alpha1.ClassKind, error) {
	return connect.Registrations(ctx, c.api)
}

func (c *cluster) resolve(ctx context.Context, name string, verbs ...string) (resource, error) {
	kind, namespaced, err := c.reader.Resolve(ctx, name, verbs...)
	if registry.NotInstalledOrUnsuitable(err) {
		err = &notServedError{err}
	}
	return resource{GroupVersionKind: kind, namespaced: namespaced}, err
}

// schema reads the OpenAPI documents, which every user may read, rather than CRDs.
func (c *cluster) schema(ctx context.Context, kind schema.GroupVersionKind) (*objectSchema, error) {
	path := "apis/" + kind.GroupVersion().String()
	if kind.Group == "" {
		path = "api/" + kind.Version
	}
	list := &metav1.APIResourceList{}
	err := c.get(ctx, "/"+path, list)
	served := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind })
	switch {
	case apierrors.IsNotFound(err) || err == nil && !served:
		return nil, &notServedError{fmt.Errorf("the API server does not serve %s of %s", kind.Kind, kind.GroupVersion())}
	case err != nil:
		return nil, fmt.Errorf("cannot look up %s: %w", kind.GroupVersion(), brief.Error(err))
	}
	var document struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := c.get(ctx, "/openapi/v3/"+path, &document); err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s: %w", kind.GroupVersion(), brief.Error(err))
	}
	for _, node := range document.Components.Schemas {
		node, _ := node.(map[string]any)
		kinds, _, _ := unstructured.NestedSlice(node, "x-kubernetes-group-version-kind")
		for _, k := range kinds {
			if k, _ := k.(map[string]any); k["group"] == kind.Group && k["version"] == kind.Version && k["kind"] == kind.Kind {
				return &objectSchema{node: node, components: document.Components.Schemas}, nil
			}
		}
	}
	return nil, nil // The API server publishes none of it.
}

func (c *cluster) get(ctx context.Context, path string, into any) error {
	answer, err := c.discovery.RESTClient().Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func (c *cluster) classes(ctx context.Context, kind *selector.ClassKind) (*selector.Classes, error) {
	return c.reader.Classes(ctx, kind)
}

func (c *cluster) namespaceLabels(ctx context.Context, name string) (labels.Set, error) {
	list := &corev1.NamespaceList{}
	if err := c.api.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return nil, fmt.Errorf("cannot read the labels of namespace %q, by which the claim kind selects: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return list.Items[i].Labels, nil
		}
	}
	return nil, nil
}
