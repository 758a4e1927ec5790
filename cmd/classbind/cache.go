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

// cacheOptions keep what is cached to what is read: two webhook
// configurations, one Secret, and of CRDs that they changed.
func cacheOptions(namespace, secret string) cache.Options {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: named(v1alpha1.WebhookConfiguration)},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(v1alpha1.WebhookConfiguration)},
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {FieldSelector: named(secret)}}},
		controller.CRD(): {Transform: func(object any) (any, error) {
			if m, err := meta.Accessor(object); err == nil {
				m.SetAnnotations(nil)
				m.SetManagedFields(nil)
			}
			return object, nil
		}},
	}}
}
