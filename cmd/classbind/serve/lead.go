package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/status"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/webhook"
)

const (
	// termInterval is the pause before a replica that lost the leadership runs for it again.
	termInterval = time.Second

	// serviceDelay gives the kubelet time to see that a replica is ready (deploy/ has
	// it look every 2 s) and the Service time to route there.
	serviceDelay = 5 * time.Second
)

// leadership runs everything that writes to the cluster while this replica leads, term after term. Each term has its own manager: a manager
// ends when it loses its Lease, but this replica must keep answering.
type leadership struct {
	server *server
	guard  *webhook.Guard
	// opened is closed once this replica knows all classes.
	opened <-chan struct{}
}

// NeedLeaderElection is false: every replica runs for the leadership.
func (l *leadership) NeedLeaderElection() bool { return false }

// Start runs for the leadership until the context ends. A replica first waits until
// it knows all classes: before that, it could not serve the entries that it writes.
func (l *leadership) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.opened:
	}
	recovered.Rounds(ctx, func(ctx context.Context) {
		if err := l.term(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Info("Not the leader, trying again", "because", err.Error())
		}
	}, termInterval)
	return nil
}

// term waits until this replica leads, and returns when it no longer leads.
func (l *leadership) term(ctx context.Context) error {
	s := l.server
	mgr, err := ctrl.NewManager(s.cluster, ctrl.Options{
		Scheme:                        s.scheme,
		MapperProvider:                func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return s.mgr.GetRESTMapper(), nil },
		Logger:                        logf.FromContext(ctx),
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // The replica's own manager serves all metrics.
		LeaderElection:                s.options.leaderElect,
		LeaderElectionID:              v1beta1.LeaderLease,
		LeaderElectionNamespace:       s.options.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(stopTimeout / 2), // So that the Lease is released in time.
		Cache:                         leaderCacheOptions(s.options.namespace, s.options.caSecret()),
		NewCache:                      newCache,
		Controller:                    config.Controller{SkipNameValidation: new(true)}, // The next term uses the same names.
	})
	if err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	configurator := &webhookconfig.Configurator{
		Registration: s.registration, Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Serving:  func(ctx context.Context, ca []byte) error { return s.gate.Verify(ctx, s.options.webhookAddress, ca) },
		Servable: s.registration.Servable, Guarded: s.registration.Guarded,
		Address: webhookconfig.Address{Namespace: s.options.namespace, URL: s.options.webhookURL, Service: s.options.service},
	}
	if s.options.webhookURL == "" {
		configurator.ServiceDelay = serviceDelay
	}
	policies := func(kind webhookconfig.PolicyKind) *webhookconfig.Policies {
		return &webhookconfig.Policies{Kind: kind, Registration: s.registration, Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	}
	defaults, uses := policies(webhookconfig.DefaultPolicies), policies(webhookconfig.UsePolicies)
	memory := &webhookconfig.Memory{Registration: s.registration, Client: mgr.GetClient()}
	events, err := corev1client.NewForConfig(s.cluster)
	if err != nil {
		return fmt.Errorf("cannot make a client for events: %w", err)
	}
	instance, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot determine the name of this host: %w", err)
	}
	decider := *s.decider
	decider.Costly = webhook.CostlyDecisions(false)
	binder := &latebinding.Binder{
		Claims: s.claims, Events: events, Instance: instance, Namespaces: mgr.GetClient(),
		Rate: s.options.lateRate, Decider: &decider,
	}
	writer := &status.Writer{
		Snapshot: s.registration.Inventory.Snapshot, Registration: s.registration, ClassKinds: s.registration.ClassKinds,
		RelatedKinds: s.registration.RelatedKinds, Resources: s.registration.Resources, Claims: s.claims,
		ClaimEntries: configurator.ClaimEntries(), ClassEntries: configurator.ClassEntries(), Defaults: defaults, Uses: uses,
		Choosers: s.choosers,
		Client:   mgr.GetClient(), Live: mgr.GetAPIReader(),
	}
	err = errors.Join(configurator.SetupWithManager(mgr), defaults.SetupWithManager(mgr), uses.SetupWithManager(mgr),
		memory.SetupWithManager(mgr), writer.SetupWithManager(mgr))
	if err != nil {
		return err
	}
	if err := addAll(mgr, map[string]manager.Runnable{
		"late binding": binder, "collection of Leases": manager.RunnableFunc(l.guard.CollectLeases),
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
