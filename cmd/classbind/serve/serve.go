// Package serve is the command that serves the webhooks, and has the wiring of all their parts.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/access"
	"github.com/classbind/classbind/controller/chooser"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/status"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/webhook"
	"github.com/classbind/classbind/webhook/onedefault"
)

// Name of the command, the only one that logs: it sets its own logger.
const Name = "serve"

// NewCommand returns the command serve of a build.
func NewCommand(own Build) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   Name,
		Short: "Serve the webhooks that bind claims and keep one default class",
		Long: `Serve the webhooks that bind claims to classes, refuse a second default class,
check claims that name a class, and guard deletions of classes in use.
Another webhook reports at once what is wrong with a registration.

ClaimKind and ClassKind objects register the kinds of claims and classes, at
any time; no flag names them. The cluster must have classbind's CRDs and its
webhook configurations, all from deploy/.`,
		Example: `  # In a pod, behind the Service classbind:
  classbind serve

  # Beside a control plane on this machine, the one that kubectl uses:
  classbind serve --webhook-url=https://localhost:9443 --log-format=text`,
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return serve(c.Context(), o, own)
		},
	}
	o.addFlags(c.Flags())
	connect.CompleteFiles(c, "kubeconfig", "cert-dir", "client-ca-file")
	return c
}

// stopTimeout is how long a replica takes to stop, after --shutdown-delay-duration. Both are less than the pod has: TestStopsInTime.
const stopTimeout = 15 * time.Second

// serve wires all parts, each after those that it needs, and runs them until the context ends.
func serve(ctx context.Context, o *options, own Build) error {
	// Claims leave many times as much garbage as the heap holds: to collect it less
	// often saves a tenth of the CPU under full load. GOMEMLIMIT bounds scarce memory.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
	log := o.logger(os.Stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	slog.SetDefault(slog.New(logr.ToSlogHandler(log))) // For net/http's own messages.
	log.Info("Starting classbind", "version", own.Version, "commit", own.Commit, "go", goruntime.Version())

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("cannot make the scheme: %w", err)
	}
	cluster, err := clusterConfig()
	if err != nil {
		return err
	}
	source, err := o.certificates(cluster)
	if err != nil {
		return err
	}
	gate := certs.NewGate(source, o.certificateNames()[0])
	clients, err := o.newClients(gate.GetCertificate)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		WebhookServer: webhook.NewServer(webhook.ServerOptions{
			Address: o.webhookAddress, HTTP2: o.http2, Log: log,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = gate.GetCertificate }, clients.configure},
		}),
		Metrics:                o.metricsServer(gate.GetCertificate),
		HealthProbeBindAddress: o.probeAddress,
		PprofBindAddress:       o.pprofAddress,
		// Watches of an API server that does not answer would take as long as their requests.
		GracefulShutdownTimeout: new(stopTimeout),
		Cache:                   cacheOptions(),
		NewCache:                newCache,
	})
	if err != nil {
		return stopped("cannot connect to the cluster", err)
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(v1beta1.GroupVersion.WithKind("ClaimKind").GroupKind()); meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster does not know ClaimKinds: %w; install classbind: %s", err, lookup.InstallPage)
	}
	gate.Bundles = func(ctx context.Context) ([][]byte, time.Time, error) {
		return webhookconfig.Bundles(ctx, mgr.GetClient())
	}

	registration, err := registry.NewRegistration(mgr.GetConfig(), mgr.GetClient(), mgr.GetAPIReader())
	if err != nil {
		return err
	}
	authorization, err := authorizationclient.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("cannot make a client for access reviews: %w", err)
	}
	roles, err := access.NewRoles(cluster, registration)
	if err != nil {
		return err
	}
	reviews := access.NewReviews(authorization.SubjectAccessReviews())
	reviews.Grants = roles.Grants
	claims, err := latebinding.NewClaims(registration, mgr.GetClient(), cluster, o.namespace)
	if err != nil {
		return err
	}
	choosers := chooser.New()
	choosers.Snapshot, choosers.Certificate = registration.Inventory.Snapshot, gate.GetCertificate
	choosers.Secrets, choosers.Namespace = mgr.GetAPIReader(), o.namespace
	choosers.OnRegistered = registration.OnRegistered
	s := &server{
		options: o, log: log, scheme: scheme, cluster: cluster, mgr: mgr,
		drain: newDrain(ctx, o.shutdownDelay), clients: clients, history: &history{reader: mgr.GetAPIReader()}, gate: gate,
		registration: registration, claims: claims, choosers: choosers, metrics: webhook.NewMetrics(registration.Inventory.Snapshot),
		decider: &selector.Decider{
			Gates: []selector.Test{reviews.Gate()}, Grants: roles.Grants,
			Waits: registration.Inventory.Waits, Broken: registration.ClassKinds.Broken,
			Class: registration.LiveReads.NamedClass, Related: registration.LiveReads.RelatedObject,
			Choose:   choosers.Choose,
			Deadline: webhook.Deadline, Fresh: rand.Uint64, Now: time.Now, Costly: webhook.CostlyDecisions(true),
		},
	}
	guard, err := s.addWebhooks()
	if err != nil {
		return err
	}
	err = errors.Join(registration.RegisterMetrics(), reviews.RegisterMetrics(), choosers.RegisterMetrics(), gate.RegisterMetrics(),
		s.metrics.Register(), claims.Metrics.Register(), own.RegisterMetrics(), loop.RegisterMetrics())
	if err != nil {
		return fmt.Errorf("cannot register the metrics: %w", err)
	}
	sightings := manager.RunnableFunc(func(ctx context.Context) error {
		guard.Sightings.Watch(ctx, guard.Leases)
		return nil
	})
	err = errors.Join(registration.SetupWithManager(mgr), claims.SetupWithManager(mgr), s.addChecks())
	if err != nil {
		return err
	}
	err = addAll(mgr, map[string]manager.Runnable{
		"certificates":     source,
		"choosers":         choosers,
		"certificate gate": gate,
		"clients":          clients,
		"leadership":       &leadership{server: s, guard: guard, opened: registration.Opening.Opened()},
		"sightings":        sightings,
		"history":          s.history,
		"roles":            roles,
	})
	if err != nil {
		return err
	}
	if err := mgr.Start(s.drain.finished); err != nil { //nolint:contextcheck // It outlives the context until the drain is over.
		return stopped("cannot go on", err)
	}
	return nil
}

func clusterConfig() (*rest.Config, error) {
	cluster, err := config.GetConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("cannot find a cluster: no ServiceAccount of a pod, and no kubeconfig ($KUBECONFIG is %q): "+
			"name a file with --kubeconfig or $KUBECONFIG", os.Getenv("KUBECONFIG"))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find a cluster: %w; name a file with --kubeconfig or $KUBECONFIG", err)
	}
	// No client-side rate limit: claims wait for these requests. The API server protects itself better, by priority and fairness.
	cluster.QPS = -1
	return cluster, nil
}

// stopped says what a manager could not do: listen on an address, or else what it was doing.
func stopped(doing string, err error) error {
	if listen := (*net.OpError)(nil); errors.As(err, &listen) && listen.Op == "listen" {
		return fmt.Errorf("cannot listen: %w: choose another address with --webhook-bind-address, --health-probe-bind-address, "+
			"--metrics-bind-address or --pprof-bind-address", listen)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// server has the parts that the webhooks, the checks and the leadership of a replica share.
type server struct {
	options *options
	log     logr.Logger
	scheme  *runtime.Scheme
	cluster *rest.Config
	mgr     ctrl.Manager

	drain        *drain
	clients      *clients
	history      *history
	gate         *certs.Gate
	registration *registry.Registration
	claims       *latebinding.Claims
	choosers     *chooser.Choosers
	decider      *selector.Decider // of claims, when they are created and later
	metrics      *webhook.Metrics
}

func (s *server) addWebhooks() (*webhook.Guard, error) {
	r := s.registration
	binder := &webhook.Binder{Snapshot: r.Inventory.Snapshot, ClaimKind: r.LiveReads.ClaimKind, Metrics: s.metrics, Decider: s.decider}
	leases, err := coordinationclient.NewForConfig(s.cluster)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for Leases: %w", err)
	}
	guard := &webhook.Guard{
		Snapshot: r.Inventory.Snapshot, ClassKind: r.LiveReads.ClassKind, ClaimKind: r.LiveReads.ClaimKind,
		Class: r.LiveReads.Class, Namespace: r.LiveReads.Namespace,
		Leases: leases.Leases(s.options.namespace), Sightings: onedefault.NewSightings(), Window: s.options.inFlightWindow,
		Metrics: s.metrics,
	}
	r.ClassKinds.OnStored(guard.Stored)
	budget := semaphore.NewWeighted(v1beta1.MaxReviewBytesInFlight)
	deletion := &webhook.Deletion{ClassKind: r.LiveReads.ClassKind, Claims: s.claims.OfClass}
	preview := &status.Preview{Registration: r, Cache: s.mgr.GetClient(), Live: s.mgr.GetAPIReader()}
	registration := webhook.NewRegistration(preview.ClaimKind, preview.ClassKind)
	for path, review := range map[string]webhook.Reviewer{
		webhook.BindPattern: binder.Review, webhook.CheckPattern: binder.Check,
		v1beta1.GuardPath: guard.Review, v1beta1.DeletionPath: deletion.Review, v1beta1.RegistrationPath: registration.Review,
	} {
		handler := &webhook.Handler{Review: review, BodyBudget: budget, Answered: s.metrics.Answers(path), Log: s.log}
		s.mgr.GetWebhookServer().Register(path, s.drain.handler(s.clients.handler(s.history.handler(handler))))
	}
	return guard, nil
}

func addAll(mgr ctrl.Manager, runnables map[string]manager.Runnable) error {
	for name, runnable := range runnables {
		if err := mgr.Add(loop.Again(runnable)); err != nil {
			return fmt.Errorf("cannot add the %s: %w", name, err)
		}
	}
	return nil
}

func (s *server) addChecks() error {
	for name, ready := range map[string]healthz.Checker{
		"webhook-server": func(r *http.Request) error { return s.gate.CheckServing(r.Context(), s.options.webhookAddress) },
		"certificate":    s.gate.Ready,
		"classes":        func(r *http.Request) error { return s.registration.Opening.Ready(r.Context()) },
		"claims":         func(*http.Request) error { return s.claims.Ready(time.Now()) },
		"choosers":       func(*http.Request) error { return s.choosers.Ready() },
		"history":        s.history.ready,
		"shutdown":       s.drain.ready,
	} {
		if err := s.mgr.AddReadyzCheck(name, ready); err != nil {
			return fmt.Errorf("cannot add the readiness check %q: %w", name, err)
		}
	}
	if err := s.mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("cannot add the health check: %w", err)
	}
	return nil
}

func (o *options) certificates(cluster *rest.Config) (certs.Source, error) {
	if o.certs == certManager {
		return certs.NewCertManager(o.certDir)
	}
	return certs.NewSelfSigned(cluster, o.namespace, o.certDuration, o.caDuration, o.certificateNames()...), nil
}

// drain lets a replica end without losing a request. When the replica gets a signal to end, it is no longer ready but keeps answering for a
// while, because the API servers notice later. Each answer then closes its connection, so in the end no connection is left that could carry
// another request.
type drain struct {
	// started is cancelled when the drain starts, and finished when it is over.
	started, finished context.Context
}

// newDrain returns a drain that starts when the context ends, and takes a duration.
func newDrain(ctx context.Context, duration time.Duration) *drain {
	finished, finish := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { defer recovered.Here(); time.AfterFunc(duration, finish) })
	return &drain{started: ctx, finished: finished}
}

func (d *drain) ready(*http.Request) error {
	if d.started.Err() != nil {
		return errors.New("this replica is about to end")
	}
	return nil
}

func (d *drain) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.started.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
