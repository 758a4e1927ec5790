package serve

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector/recovered"
)

func byName(name string) cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// stripMetadata removes unread metadata from an object.
func stripMetadata(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetAnnotations(nil)
		m.SetManagedFields(nil)
	}
	return object, nil
}

// cacheOptions limits the cache to what is read: the webhook configurations, and the
// metadata of CRDs, which shows that they changed.
func cacheOptions() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   byName(v1beta1.LastConfiguration),
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: byName(v1beta1.ClassConfiguration),
		cluster.CRD(): {Transform: stripMetadata},
	}}
}

// leaderCacheOptions adds the named Secret, to notice its changes, and, if a ClaimKind selects namespaces, the labels of namespaces.
func leaderCacheOptions(namespace, secret string) cache.Options {
	o := cacheOptions()
	o.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: byName(secret).Field}}}
	o.ByObject[latebinding.Namespace()] = cache.ByObject{Transform: stripMetadata}
	return o
}

// bothConfigurations is a cache that has the other MutatingWebhookConfiguration, too. A
// cache holds one name of a kind or all of them, and the rights of classbind go by name.
type bothConfigurations struct {
	cache.Cache
	first cache.Cache
}

func newCache(config *rest.Config, o cache.Options) (cache.Cache, error) {
	all, err := cache.New(config, o)
	if err != nil {
		return nil, err
	}
	o.ByObject = map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: byName(v1beta1.FirstConfiguration),
	}
	first, err := cache.New(config, o)
	return &bothConfigurations{all, first}, err
}

// Get an object.
func (b *bothConfigurations) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if isConfiguration(o) && key.Name == v1beta1.FirstConfiguration {
		return b.first.Get(ctx, key, o, opts...)
	}
	return b.Cache.Get(ctx, key, o, opts...)
}

// GetInformer of a kind.
func (b *bothConfigurations) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := b.Cache.GetInformer(ctx, o, opts...)
	if err != nil || !isConfiguration(o) {
		return i, err
	}
	first, err := b.first.GetInformer(ctx, o, opts...)
	return &bothInformers{i, first}, err
}

// Start both until the context ends.
func (b *bothConfigurations) Start(ctx context.Context) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(recovered.Func(func() error { return b.Cache.Start(ctx) }))
	both.Go(recovered.Func(func() error { return b.first.Start(ctx) }))
	return both.Wait()
}

// WaitForCacheSync waits until all was listed.
func (b *bothConfigurations) WaitForCacheSync(ctx context.Context) bool {
	return b.Cache.WaitForCacheSync(ctx) && b.first.WaitForCacheSync(ctx)
}

func isConfiguration(o client.Object) bool {
	_, is := o.(*admissionregistrationv1.MutatingWebhookConfiguration)
	return is
}

type bothInformers struct {
	cache.Informer
	first cache.Informer
}

// AddEventHandlerWithOptions is what a controller calls.
func (b *bothInformers) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	_, ofFirst := b.first.AddEventHandlerWithOptions(h, o)
	registration, err := b.Informer.AddEventHandlerWithOptions(h, o)
	return registration, errors.Join(ofFirst, err)
}
