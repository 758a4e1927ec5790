// Package webhookconfig writes the entries of the webhook configurations, by which the API
// server calls classbind, and the policies by which it need not. It runs on the leader.
package webhookconfig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// roundTimeout limits one round of the configurator. It is longer than an API server takes for the two writes of each configuration (34
	// s each): when one match condition changes, it compiles all of them, 5 s of CPU for as many as MaxEntriesBytes allows.
	roundTimeout = 150 * time.Second
	// rulesTimeout limits the look-ups within a round, so that entries, and their CA,
	// are written even if the API servers of many kinds do not answer.
	rulesTimeout = 10 * time.Second

	registeredDelay = 200 * time.Millisecond // how long the claim kinds gather that are compiled, before a round
	outdatedEvery   = 15 * time.Second       // how often the entries are checked for an outdated bundle
)

// Configurator keeps one entry per claim kind in one of the two MutatingWebhookConfigurations, and in the ValidatingWebhookConfiguration
// one per class kind, and another for its deletions where claims are watched. It runs on the leader. It writes an entry, with the CA for
// its calls, once the leader can serve it. It never creates the three objects: they belong to the deployment of classbind.
type Configurator struct {
	Registration *registry.Registration
	// Servable reports whether the claims of a kind can be bound, and Guarded whether classes of one may be
	// default classes. They are those of the Registration.
	Servable func(context.Context, *v1beta1.ClaimKind) bool
	Guarded  func(context.Context, *v1beta1.ClassKind) bool
	Client   client.Client
	Live     client.Reader // from the API server itself
	Address
	Serving func(ctx context.Context, ca []byte) error // an error until this replica serves a certificate that the CA verifies

	ServiceDelay time.Duration // how long the Service takes to route to a replica that serves

	claims, classes Entries
	// refused are the conditions of claims.when that the API server did not take, by claim
	// kind. Only rounds for claims use them. A new leader tries again.
	refused map[string]string
	trust   trust
	serving atomic.Pointer[time.Time]
}

// errNotRegisteredYet means that the claim kind is about to be registered on this replica.
var errNotRegisteredYet = errors.New("it is not registered on this replica yet")

// retryLater means that a round is tried again after a while, though nothing failed. oneEntry reports whether this concerns single entries
// alone. passes reports whether it is not worth logging unless it lasts.
type retryLater struct {
	why              string
	after            time.Duration
	oneEntry, passes bool
}

func (w *retryLater) Error() string { return w.why }

// SetupWithManager adds the controllers of the configurations of claims and of classes.
func (w *Configurator) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(
		w.setUp(mgr, "webhook-configuration-of-claims", &w.claims, w.writeClaims, watches{
			&admissionregistrationv1.MutatingWebhookConfiguration{}: nil, &v1beta1.ClaimKind{}: {builder.WithPredicates(readyChanged)},
		}),
		w.setUp(mgr, "webhook-configuration-of-classes", &w.classes, w.writeClasses, watches{
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: nil,
			// Claims are checked by the rule of the entry that binds them.
			&admissionregistrationv1.MutatingWebhookConfiguration{}: nil,
			&v1beta1.ClassKind{}: {builder.WithPredicates(readyChanged)}, &v1beta1.ClaimKind{}: {loop.RevisionChanged},
		}))
}

// ClaimEntries are those of claim kinds, in the MutatingWebhookConfigurations.
func (w *Configurator) ClaimEntries() *Entries { return &w.claims }

// ClassEntries are those of class kinds, in the ValidatingWebhookConfiguration.
func (w *Configurator) ClassEntries() *Entries { return &w.classes }

func (w *Configurator) setUp(
	mgr ctrl.Manager, name string, e *Entries, write func(context.Context, *round) error, on watches,
) error {
	on[&corev1.Secret{}], on[cluster.CRD()] = []builder.WatchesOption{builder.OnlyMetadata}, []builder.WatchesOption{builder.OnlyMetadata}
	listen := func(ctx context.Context, request func(time.Duration)) {
		w.Registration.OnRegistered(ctx, func(string) { request(registeredDelay) })
		go recovered.Rounds(ctx, func(ctx context.Context) {
			if w.outdated(ctx) {
				request(0)
			}
		}, outdatedEvery)
	}
	return setUpRounds(mgr, name, on, listen, func(ctx context.Context) (ctrl.Result, error) { return w.reconcile(ctx, e, write) })
}

// watches are the objects on which what a controller writes depends, and which of their changes matter.
type watches map[client.Object][]builder.WatchesOption

// setUpRounds adds a controller that writes all that it writes in one round, after a change of an object, or a request by what listens.
func setUpRounds(
	mgr ctrl.Manager, name string, on watches, listen func(ctx context.Context, request func(after time.Duration)),
	round func(context.Context) (ctrl.Result, error),
) error {
	toRound := loop.ForNames(func(context.Context, client.Object) []string { return []string{name} })
	b := ctrl.NewControllerManagedBy(mgr).Named(name).
		WatchesRawSource(loop.Requests(func(ctx context.Context, request func(string, time.Duration)) {
			listen(ctx, func(after time.Duration) { request(name, after) })
		}))
	for object, options := range on {
		b = b.Watches(object, toRound, options...)
	}
	err := b.Complete(loop.ByName(func(ctx context.Context, _ string) (ctrl.Result, error) { return round(ctx) }))
	if err != nil {
		return fmt.Errorf("cannot set up the %s: %w", name, err)
	}
	return nil
}

func (w *Configurator) reconcile(ctx context.Context, e *Entries, write func(context.Context, *round) error) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	r, err := w.round(ctx)
	if err == nil {
		err = write(ctx, r)
	}
	err = truncate.Error(err) // It goes into conditions, and an API server may write a lot.
	problem, shared := "", ""
	if err != nil {
		problem, shared = err.Error(), err.Error()
	}
	if problem != e.problem {
		e.problem, e.since = problem, time.Now()
	}
	result := ctrl.Result{}
	if wait := (*retryLater)(nil); errors.As(err, &wait) {
		logf.FromContext(ctx).V(1).Info("The webhook configuration is not complete", "because", wait.why)
		if wait.oneEntry || wait.passes && time.Since(e.since) < registry.RefusalGrace {
			shared = ""
		}
		result.RequeueAfter, err = wait.after, nil
		if time.Since(e.since) > registry.RefusalGrace { // A long problem is not worth a round a second.
			result.RequeueAfter = registry.RetryAfter
		}
	}
	e.shared.Store(&shared)
	if err == nil && e.again > 0 && (result.RequeueAfter == 0 || e.again < result.RequeueAfter) {
		result.RequeueAfter = e.again
	}
	return result, err
}

// round is what the entries depend on.
type round struct {
	current    Configurations
	ca         []byte
	claimKinds []v1beta1.ClaimKind
	classKinds []v1beta1.ClassKind
}

func (w *Configurator) round(ctx context.Context) (*round, error) {
	current, err := ReadConfigurations(ctx, w.Client, allConfigurations...)
	if err != nil {
		return nil, err
	}
	ca, err := w.dueCA(ctx, current)
	if err != nil {
		return nil, err
	}
	claimKinds, classKinds, err := registry.List(ctx, w.Client)
	return &round{current, ca, claimKinds, classKinds}, err
}

// dueCA returns the CAs for the entries, once calls of them can be answered.
func (w *Configurator) dueCA(ctx context.Context, current Configurations) ([]byte, error) {
	ca, carried, err := w.bundles(ctx, current)
	if err != nil {
		return nil, err
	}
	if err := w.Serving(ctx, ca); err != nil {
		// This replica may serve a certificate of a CA whose overlap has ended until
		// all entries trust the next CA, too. Until then, they trust the old one.
		ca = parse(append(carried, ca)).encode(time.Now())
		if w.Serving(ctx, ca) != nil {
			return nil, &retryLater{fmt.Sprintf("this replica does not serve yet: %v", err), 200 * time.Millisecond, false, false}
		}
	}
	if len(carried) == 0 {
		// These are the first entries: calls begin as soon as they are written.
		w.serving.CompareAndSwap(nil, new(time.Now()))
		if left := w.ServiceDelay - time.Since(*w.serving.Load()); left > 0 {
			return nil, &retryLater{"the Service does not lead to this replica yet", left, false, false}
		}
	}
	return ca, nil
}

// Entries says what became of the entries of one webhook configuration in the last round.
type Entries struct {
	// problem of the last round, and since when. shared is what of it concerns all entries.
	problem string
	since   time.Time
	shared  atomic.Pointer[string]
	leftOut loop.Published[string] // the kinds for whose entry there is no room, with the reason
	others  loop.Published[string] // what other clients do to the entries of a kind
	// written is what was last due, and disputes, both by configuration. again is when the first pause of a dispute ends.
	written  map[string][]Entry
	disputes disputes
	again    time.Duration
}

// Problem says why the configuration as a whole is not as it should be, empty if it is.
func (e *Entries) Problem() string {
	if p := e.shared.Load(); p != nil {
		return *p
	}
	return ""
}

// TooLarge says why there is no room for a kind's entry, empty if there is.
func (e *Entries) TooLarge(kind string) string {
	why, _ := e.leftOut.Get(kind)
	return why
}

// Others says what other clients do to the entries of a kind, empty if they do nothing.
func (e *Entries) Others(kind string) string {
	what, _ := e.others.Get(kind)
	return what
}

// OnChange calls a function with the name of each kind for which TooLarge or Others changed, until the context ends.
func (e *Entries) OnChange(ctx context.Context, call func(kind string)) {
	e.leftOut.Add(ctx, call)
	e.others.Add(ctx, call)
}
