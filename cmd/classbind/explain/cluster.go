package explain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// cluster is a source that reads the API server, like the server does. It needs only
// the right to list.
type cluster struct {
	api    client.Reader
	reader *registry.Reader
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
	return &cluster{api: api, reader: reader}, nil
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
