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
	"github.com/classbind/classbind/controller"
)

func named(name string) cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// slim is an object without what nobody reads.
func slim(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetAnnotations(nil)
		m.SetManagedFields(nil)
	}
	return object, nil
}

// cacheOptions keep what is cached to what is read: two webhook configurations,
// and of CRDs that they changed.
func cacheOptions() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   named(v1alpha1.WebhookConfiguration),
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: named(v1alpha1.WebhookConfiguration),
		controller.CRD(): {Transform: slim},
	}}
}

// leaderCacheOptions are the same, that one Secret changed, and, where a ClaimKind
// selects namespaces, their labels.
func leaderCacheOptions(namespace, secret string) cache.Options {
	o := cacheOptions()
	o.ByObject[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: named(secret).Field}}}
	o.ByObject[controller.Namespace()] = cache.ByObject{Transform: slim}
	return o
}
