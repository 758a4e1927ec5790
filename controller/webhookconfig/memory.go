package webhookconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
)

// memoryDelay is how long changes gather before they are written.
const memoryDelay = 100 * time.Millisecond

// Memory keeps what was served in the ValidatingWebhookConfiguration. It runs on the leader, and apart
// from the rounds, which a kind that does not answer may delay.
type Memory struct {
	Registration *registry.Registration
	Client       client.Client
}

// SetupWithManager adds the controller.
func (m *Memory) SetupWithManager(mgr ctrl.Manager) error {
	listen := func(ctx context.Context, request func(time.Duration)) {
		m.Registration.OnRegistered(ctx, func(string) { request(memoryDelay) })
		m.Registration.ClassKinds.OnChange(ctx, func(*inventory.ClassKind) { request(memoryDelay) })
	}
	on := watches{
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: nil,
		&v1beta1.ClaimKind{}: {loop.RevisionChanged}, &v1beta1.ClassKind{}: {loop.RevisionChanged},
	}
	return setUpRounds(mgr, "memory", on, listen, func(ctx context.Context) (ctrl.Result, error) {
		err := m.write(ctx)
		if apierrors.IsConflict(err) { // The cache is about to have the next version.
			return ctrl.Result{RequeueAfter: memoryDelay}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	})
}

func (m *Memory) write(ctx context.Context) error {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := m.Client.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, c); err != nil {
		return fmt.Errorf("cannot get the webhook configuration: %w", err)
	}
	claimKinds, classKinds, err := registry.List(ctx, m.Client)
	if err != nil {
		return err
	}
	now, err := m.Registration.Remember(registry.MemoryOf(c), claimKinds, classKinds)
	if err != nil || c.Annotations[v1beta1.MemoryAnnotation] == now {
		return err
	}
	// With the version that was read, the API server refuses to overwrite what another leader wrote.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": c.ResourceVersion, "annotations": map[string]string{v1beta1.MemoryAnnotation: now},
	}})
	if err != nil {
		return fmt.Errorf("cannot encode what is served: %w", err)
	}
	if err := m.Client.Patch(ctx, c, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1beta1.FieldManager)); err != nil {
		return fmt.Errorf("cannot write what is served: %w", err)
	}
	return nil
}
