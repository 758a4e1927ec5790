// Package controllertest has what the tests of several controllers need: fakes of the API server and of its cache, and registered kinds.
package controllertest

import (
	"context"
	"encoding/json"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// Cached is a client that knows these objects and records what is applied.
type Cached struct {
	client.Client
	Configuration *admissionregistrationv1.MutatingWebhookConfiguration // of claims, with the order Last
	First         *admissionregistrationv1.MutatingWebhookConfiguration
	Guarding      *admissionregistrationv1.ValidatingWebhookConfiguration
	ClaimKinds    []v1beta1.ClaimKind
	ClassKinds    []v1beta1.ClassKind
	CRDs          []string
	Namespaces    []string
	Err           error // of every Get
	ListErr       error // of every List
	UpdateErr     error // of every update of a status

	Updated []client.Object
	Removed []string
	Applied []*admissionregistrationv1.MutatingWebhookConfiguration // of either kind, which have the same fields
}

// Get returns an object that it knows.
func (c *Cached) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c.Err != nil {
		return c.Err
	}
	switch o := o.(type) {
	case *v1beta1.ClaimKind:
		if i := slices.IndexFunc(c.ClaimKinds, func(f v1beta1.ClaimKind) bool { return f.Name == k.Name }); i >= 0 {
			c.ClaimKinds[i].DeepCopyInto(o)
			return nil
		}
	case *v1beta1.ClassKind:
		if i := slices.IndexFunc(c.ClassKinds, func(f v1beta1.ClassKind) bool { return f.Name == k.Name }); i >= 0 {
			c.ClassKinds[i].DeepCopyInto(o)
			return nil
		}
	case *metav1.PartialObjectMetadata:
		names := map[string][]string{"CustomResourceDefinition": c.CRDs, "Namespace": c.Namespaces}[o.Kind]
		if slices.Contains(names, k.Name) {
			return nil
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		found := map[string]*admissionregistrationv1.MutatingWebhookConfiguration{
			v1beta1.LastConfiguration: c.Configuration, v1beta1.FirstConfiguration: c.First,
		}[k.Name]
		if found != nil {
			found.DeepCopyInto(o)
			return nil
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		if c.Guarding != nil {
			c.Guarding.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
}

// List returns all registrations that it knows.
func (c *Cached) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if c.ListErr != nil {
		return c.ListErr
	}
	switch l := l.(type) {
	case *v1beta1.ClaimKindList:
		l.Items = slices.Clone(c.ClaimKinds)
	case *v1beta1.ClassKindList:
		l.Items = slices.Clone(c.ClassKinds)
	}
	return nil
}

// Apply records what is applied, and stores it where it is of claims.
func (c *Cached) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	applied := &admissionregistrationv1.MutatingWebhookConfiguration{}
	c.Applied = append(c.Applied, applied)
	if err := json.Unmarshal(text, applied); err != nil {
		return err
	}
	for _, stored := range []*admissionregistrationv1.MutatingWebhookConfiguration{c.Configuration, c.First} {
		if stored != nil && stored.Name == applied.Name {
			stored.Webhooks = applied.Webhooks
		}
	}
	return nil
}

// Patch records which entries are removed: nothing else is patched.
func (c *Cached) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
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
			c.Removed = append(c.Removed, e["name"])
		}
	}
	return nil
}

// Status returns a writer that records what is written.
func (c *Cached) Status() client.SubResourceWriter { return &cachedStatus{cached: c} }

// cachedStatus records what is written.
type cachedStatus struct {
	client.SubResourceWriter
	cached *Cached
}

// Update records an object.
func (s *cachedStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	s.cached.Updated = append(s.cached.Updated, o)
	return s.cached.UpdateErr
}
