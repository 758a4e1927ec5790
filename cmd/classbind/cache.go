package main

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
)

// byName limits the cache to the object with the name.
func byName(name string) cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// stripMetadata removes metadata that nobody reads from an object.
func stripMetadata(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetAnnotations(nil)
		m.SetManagedFields(nil)
	}
	return object, nil
}

// cacheOptions limits the cache to what is read: two webhook configurations, and
// the metadata of CRDs, which shows that they changed.
func cacheOptions() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   byName(v1alpha1.WebhookConfiguration),
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: byName(v1alpha1.WebhookConfiguration),
		cluster.CRD(): {Transform: stripMetadata},
	}}
}

// leaderCacheOptions adds the named Secret, to notice its changes, and, if a
// ClaimKind selects namespaces, the labels of namespaces.
func leaderCacheOptions(namespace, secret string) cache.Options {
	o := cacheOptions()
	o.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: byName(secret).Field}}}
	o.ByObject[latebinding.Namespace()] = cache.ByObject{Transform: stripMetadata}
	return o
}
