// Package world is what the commands know of a cluster, or of one that files describe, and how they decide on claims. cluster is what
// they ask a cluster, and manifests reads files. source has registrations and classes, of a cluster, of files, or of both.
// kinds combines them as the server does, counts says how much is taken of each class, and seen what expressions see besides. schema knows
// the fields of objects. access asks the cluster who may use a class. world decides on claims that are stored, change is what
// differs from what is there, and recreated decides on stored claims as if they were created now.
package world

import (
	"context"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Cluster is what the commands ask of a cluster. It reads each discovery document once: to see later ones, connect again.
type Cluster struct {
	API     client.Reader // API has registrations, what an installation consists of, and single objects of any kind, without a cache.
	Kinds   Kinds
	Objects Objects

	mapper     meta.RESTMapper
	authorizer *authorizer
}

// Kinds of the cluster, their classes and their schemas: a *registry.Reader.
type Kinds interface {
	Resolve(ctx context.Context, name, version string, verbs ...string) (lookup.Resource, error)
	Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error)
	CRD(ctx context.Context, name string) (json.RawMessage, error)
	OpenAPI(ctx context.Context, version schema.GroupVersion) (json.RawMessage, error)
}

// Objects of any kind, as JSON, page by page: a latebinding.Client.
type Objects interface {
	Pages(ctx context.Context, of schema.GroupVersionResource, namespace string, each func(raw []byte) error, after func() error) error
}

// Connect to a cluster.
func Connect(config *rest.Config) (*Cluster, error) {
	scheme, adders := runtime.NewScheme(), runtime.SchemeBuilder{
		v1beta1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, admissionregistrationv1.AddToScheme,
	}
	if err := adders.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot make the scheme: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	kinds, err := registry.NewReader(config)
	if err != nil {
		return nil, err
	}
	kinds.Resolver = kinds.Caching() // For many kinds, the documents are the same.
	c := &Cluster{API: api, Kinds: kinds, mapper: api.RESTMapper()}
	if c.Objects, err = latebinding.NewClient(config); err != nil {
		return nil, err
	}
	c.authorizer, err = newAuthorizer(config)
	return c, err
}

// Registrations lists what is registered.
func (c *Cluster) Registrations(ctx context.Context) ([]v1beta1.ClaimKind, []v1beta1.ClassKind, error) {
	claimKinds, classKinds := &v1beta1.ClaimKindList{}, &v1beta1.ClassKindList{}
	err := c.API.List(ctx, claimKinds)
	if meta.IsNoMatchError(err) {
		return nil, nil, fmt.Errorf("the cluster does not know ClaimKinds: %w; install classbind: %s", err, lookup.InstallPage)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list ClaimKinds: %w", err)
	}
	if err := c.API.List(ctx, classKinds); err != nil {
		return nil, nil, fmt.Errorf("cannot list ClassKinds: %w", err)
	}
	return claimKinds.Items, classKinds.Items, nil
}

// memory is what classbind served. A status may say something else: others may have the right to write it. It is empty where nothing was
// served, and where the configuration that has it may not be read.
func (c *Cluster) memory(ctx context.Context) (*registry.Memory, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	err := c.API.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, o)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return registry.MemoryOf(o), nil
	}
	return nil, fmt.Errorf("cannot read what was served: %w", truncate.Error(err))
}

// Names returns the names of objects of a kind, of the first page of a list. They are for an error about a name, so
// there are none if they cannot be listed.
func (c *Cluster) Names(ctx context.Context, kind schema.GroupVersionKind, namespace string) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if c.API.List(ctx, list, client.InNamespace(namespace), client.Limit(v1beta1.ListPage)) != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// Schema of a kind, nil where none is at hand; a notServedError where the version is not served. It is that of the CRD, for those who may
// read it, and else that of the OpenAPI document, which every user may read. It lacks what a CRD says of the metadata.
func (c *Cluster) Schema(ctx context.Context, kind schema.GroupVersionKind) (*Schema, error) {
	version := kind.GroupVersion()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, notServedError{fmt.Errorf("the API server does not serve %s of %s", kind.Kind, version)}
	case err != nil:
		return nil, fmt.Errorf("cannot look up %s: %w", version, truncate.Error(err))
	}
	if text, err := c.Kinds.CRD(ctx, mapping.Resource.GroupResource().String()); err == nil {
		return schemaOfCRD(text, kind.Version)
	}
	document, err := c.Kinds.OpenAPI(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("cannot read the schema of %s: %w", version, err)
	}
	return schemaOfOpenAPI(document, kind)
}
