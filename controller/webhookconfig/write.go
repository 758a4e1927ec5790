package webhookconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// namesOf returns the name of each item.
func namesOf[T any](items []T, name func(*T) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(&items[i])
	}
	return names
}

// remove deletes the entries that are not due. Applying only the others is not enough if
// somebody else owns an entry, too, such as whoever restored a backup: it would stay, with an
// old CA, and its kind would be refused for ever.
func (w *Configurator) remove(ctx context.Context, current client.Object, stored, due []string) error {
	names := slices.DeleteFunc(stored, func(name string) bool { return slices.Contains(due, name) })
	if len(names) == 0 {
		return nil
	}
	entries := make([]map[string]string, len(names))
	for i, name := range names {
		entries[i] = map[string]string{"$patch": "delete", "name": name}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": current.GetUID(), "resourceVersion": current.GetResourceVersion()},
		"webhooks": entries,
	})
	if err != nil {
		return fmt.Errorf("cannot encode the entries to remove: %w", err)
	}
	removal := client.RawPatch(types.StrategicMergePatchType, patch)
	return written(w.Client.Patch(ctx, current, removal, client.FieldOwner(v1alpha1.FieldManager)))
}

// apply writes the desired configuration with the uid and the version that were read.
// So the API server refuses to recreate an object that was deleted meanwhile, as in an
// uninstallation, and to overwrite what another leader wrote.
func (w *Configurator) apply(ctx context.Context, desired runtime.ApplyConfiguration, incomplete error) error {
	if err := written(w.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)); err != nil {
		return err
	}
	return incomplete
}

// written classifies the error of a write.
func written(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return &retryLater{"the webhook configuration has changed since it was read: " + err.Error(), 200 * time.Millisecond, false}
	}
	return fmt.Errorf("cannot write the webhook configuration: %w", err)
}
