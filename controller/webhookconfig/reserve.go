package webhookconfig

import (
	"context"
	"errors"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

func reservesFor(k *v1beta1.ClaimKind, classKinds []v1beta1.ClassKind) bool {
	return slices.ContainsFunc(rules.Serving(k, classKinds), (*v1beta1.ClassKind).IsHard)
}

// AskedToReserve reports whether the API server asks us about all writes by which claims use more of the classes of a kind.
func (w *Configurator) AskedToReserve(ctx context.Context, kind *inventory.ClassKind) (bool, error) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, c); err != nil {
		return false, err
	}
	claimKinds, _, err := registry.List(ctx, w.Client)
	if err != nil {
		return false, err
	}
	for i := range claimKinds {
		k := &claimKinds[i]
		if !slices.Contains(kind.ClaimKinds, k.Name) {
			continue
		}
		if _, err := w.Registration.LookUpClaims(ctx, k); errors.Is(err, cluster.ErrNotInstalled) {
			continue // There are none.
		}
		due := matchConditions(claim.ReserveConditions(k))
		if !slices.ContainsFunc(c.Webhooks, func(e admissionregistrationv1.ValidatingWebhook) bool {
			return e.Name == k.Name+v1beta1.CheckSuffix && slices.Equal(e.MatchConditions, due)
		}) {
			return false, nil
		}
	}
	return true, nil
}
