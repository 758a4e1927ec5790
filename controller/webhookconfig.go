package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1alpha1"
)

// applyTimeout is for one round of the configurator.
const applyTimeout = 30 * time.Second

// WebhookConfigurator keeps one entry per claim kind in the
// MutatingWebhookConfiguration. It runs on the leader. An entry is written once
// the leader can serve it, together with the CA that its calls need; the object
// itself belongs to whoever deploys classbind, and is never created.
type WebhookConfigurator struct {
	Registration *Registration
	Client       client.Client
	// Namespace of classbind itself.
	Namespace string
	// URL of the webhook server, for one outside the cluster; empty, Service is called.
	URL string
	// Service in front of the webhook server, in Namespace.
	Service string
	// Serving is an error until this replica serves a certificate that the CA verifies.
	Serving func(ctx context.Context, ca []byte) error

	// problem of the last round, since when, and what of it concerns all entries.
	problem string
	since   time.Time
	shared  atomic.Pointer[string]
}

// Problem is why the configuration as a whole is not as it should be, empty if it is.
func (w *WebhookConfigurator) Problem() string {
	if p := w.shared.Load(); p != nil {
		return *p
	}
	return ""
}

// errNotHeardOf says that the claim kind is about to be registered on this replica.
var errNotHeardOf = errors.New("it is not registered on this replica yet")

// waiting for something that is not an error, and is looked at again after a
// while. It may concern one entry alone.
type waiting struct {
	why      string
	again    time.Duration
	oneEntry bool
}

func (w *waiting) Error() string { return w.why }

// SetupWithManager adds the controller.
func (w *WebhookConfigurator) SetupWithManager(mgr ctrl.Manager) error {
	toConfiguration := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: v1alpha1.WebhookConfiguration}}}
	})
	opened := make(chan event.GenericEvent, 1)
	w.Registration.onOpen(func() { opened <- event.GenericEvent{} })
	err := ctrl.NewControllerManagedBy(mgr).Named("webhook-configuration").
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		Watches(&v1alpha1.ClaimKind{}, toConfiguration, revisionChanged).
		Watches(&corev1.Secret{}, toConfiguration).
		WatchesMetadata(CRD(), toConfiguration).
		WatchesRawSource(source.Channel(opened, toConfiguration)).
		Complete(byName(w.reconcile))
	if err != nil {
		return fmt.Errorf("cannot set up the webhook configuration: %w", err)
	}
	return nil
}

func (w *WebhookConfigurator) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	if w.Registration.Inventory.Snapshot() == nil {
		return ctrl.Result{}, nil // What opens it comes back here.
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err := w.write(ctx, name)
	problem, shared := "", ""
	if err != nil {
		problem, shared = err.Error(), err.Error()
	}
	if problem != w.problem {
		w.problem, w.since = problem, time.Now()
	}
	result := ctrl.Result{}
	if wait := (*waiting)(nil); errors.As(err, &wait) {
		logf.FromContext(ctx).V(1).Info("The webhook configuration is not complete", "because", wait.why)
		if wait.oneEntry {
			shared = ""
		}
		result.RequeueAfter, err = wait.again, nil
		if time.Since(w.since) > refusalGrace { // What takes so long is not worth a round a second.
			result.RequeueAfter = retryAfter
		}
	}
	w.shared.Store(&shared)
	return result, err
}

func (w *WebhookConfigurator) write(ctx context.Context, name string) error {
	current := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, current); apierrors.IsNotFound(err) {
		return &waiting{fmt.Sprintf("there is no MutatingWebhookConfiguration %q: kubectl apply -k deploy/base", name), retryAfter, false}
	} else if err != nil {
		return fmt.Errorf("cannot get the webhook configuration: %w", err)
	}
	secret := &corev1.Secret{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: v1alpha1.CASecret}, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot get the CA: %w", err)
	}
	ca := secret.Data[corev1.ServiceAccountRootCAKey]
	if err := w.Serving(ctx, ca); err != nil {
		return &waiting{fmt.Sprintf("this replica does not serve yet: %v", err), 200 * time.Millisecond, false}
	}
	kinds := &v1alpha1.ClaimKindList{}
	if err := w.Client.List(ctx, kinds); err != nil {
		return fmt.Errorf("cannot list claim kinds: %w", err)
	}
	// The cache has no order, and every new order would be a change.
	slices.SortFunc(kinds.Items, func(a, b v1alpha1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	rules, incomplete := w.rules(ctx, kinds.Items, current)

	// The uid makes the API server refuse, rather than create the object anew,
	// if it was deleted meanwhile, as it is by an uninstallation.
	desired := admissionregistrationac.MutatingWebhookConfiguration(name).WithUID(current.UID)
	for i := range kinds.Items {
		if rules[i] != nil {
			desired.WithWebhooks(w.entry(&kinds.Items[i], rules[i], ca))
		}
	}
	if err := w.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("cannot apply the webhook configuration: %w", err)
	}
	return incomplete
}

// rules of all claim kinds, nil for one that is to have no entry. One that is
// not there, or does not answer, keeps the others waiting for a moment only; the
// error says what is to be looked at again.
func (w *WebhookConfigurator) rules(ctx context.Context, kinds []v1alpha1.ClaimKind, current *admissionregistrationv1.MutatingWebhookConfiguration) ([]*admissionregistrationac.RuleWithOperationsApplyConfiguration, error) {
	rules := make([]*admissionregistrationac.RuleWithOperationsApplyConfiguration, len(kinds))
	errs := make([]error, len(kinds))
	var all errgroup.Group
	all.SetLimit(lookUps)
	for i := range kinds {
		all.Go(func() error {
			rules[i], errs[i] = w.rule(ctx, kinds[i].Name, current)
			return nil
		})
	}
	_ = all.Wait() // It has none: each is in errs.
	incomplete := (*waiting)(nil)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if incomplete == nil {
			incomplete = &waiting{fmt.Sprintf("claim kind %q: %v", kinds[i].Name, err), retryAfter, true}
		}
		if errors.Is(err, errNotServed) || errors.Is(err, errNotHeardOf) {
			incomplete.again = retryCRDAfter
		}
	}
	if incomplete == nil {
		return rules, nil
	}
	return rules, incomplete
}
