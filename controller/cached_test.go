package controller

import (
	"context"
	"encoding/json"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// cached is a client that knows these objects and records what is applied.
type cached struct {
	client.Client
	configuration *admissionregistrationv1.MutatingWebhookConfiguration
	guarding      *admissionregistrationv1.ValidatingWebhookConfiguration
	kinds         []v1alpha1.ClaimKind
	classKinds    []v1alpha1.ClassKind
	crds          []string
	namespaces    []string
	err           error // of every Get
	listErr       error // of every List
	updateErr     error // of every update of a status

	updated []client.Object
	removed []string
	applied []*admissionregistrationac.MutatingWebhookConfigurationApplyConfiguration
	guarded []*admissionregistrationac.ValidatingWebhookConfigurationApplyConfiguration
}

func (c *cached) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c.err != nil {
		return c.err
	}
	switch o := o.(type) {
	case *v1alpha1.ClaimKind:
		if i := slices.IndexFunc(c.kinds, func(f v1alpha1.ClaimKind) bool { return f.Name == k.Name }); i >= 0 {
			c.kinds[i].DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.ClassKind:
		if i := slices.IndexFunc(c.classKinds, func(f v1alpha1.ClassKind) bool { return f.Name == k.Name }); i >= 0 {
			c.classKinds[i].DeepCopyInto(o)
			return nil
		}
	case *metav1.PartialObjectMetadata:
		if o.Kind == "CustomResourceDefinition" && slices.Contains(c.crds, k.Name) || o.Kind == "Namespace" && slices.Contains(c.namespaces, k.Name) {
			return nil
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		if c.configuration != nil {
			c.configuration.DeepCopyInto(o)
			return nil
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		if c.guarding != nil {
			c.guarding.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
}

func (c *cached) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if c.listErr != nil {
		return c.listErr
	}
	switch l := l.(type) {
	case *v1alpha1.ClaimKindList:
		l.Items = slices.Clone(c.kinds)
	case *v1alpha1.ClassKindList:
		l.Items = slices.Clone(c.classKinds)
	}
	return nil
}

func (c *cached) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	switch o := o.(type) {
	case *admissionregistrationac.MutatingWebhookConfigurationApplyConfiguration:
		c.applied = append(c.applied, o)
	case *admissionregistrationac.ValidatingWebhookConfigurationApplyConfiguration:
		c.guarded = append(c.guarded, o)
	}
	return nil
}

// Patch records which entries are removed: nothing else is patched.
func (c *cached) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var patch struct {
		Webhooks []map[string]string `json:"webhooks"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	for _, e := range patch.Webhooks {
		if e["$patch"] == "delete" {
			c.removed = append(c.removed, e["name"])
		}
	}
	return nil
}

func (c *cached) Status() client.SubResourceWriter { return &cachedStatus{cached: c} }

// cachedStatus records what is written.
type cachedStatus struct {
	client.SubResourceWriter
	cached *cached
}

func (s *cachedStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	s.cached.updated = append(s.cached.updated, o)
	return s.cached.updateErr
}
