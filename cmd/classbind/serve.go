package main

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
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/certs"
	"github.com/classbind/classbind/controller"
	"github.com/classbind/classbind/webhook"
	"github.com/classbind/classbind/webhook/onedefault"
)

func newServeCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the webhooks that bind claims and keep one default class",
		Long: `Serve the webhook that binds claims to classes, and the one that refuses a
second default class.

The kinds of claim and class to look after are registered at any time by
ClaimKind and ClassKind objects; no flag names them. The cluster must have
classbind's CRDs and its two webhook configurations, all from deploy/.`,
		Example: `  # In a pod, behind the Service classbind:
  classbind serve

  # Beside a control plane on this machine, the one that kubectl uses:
  classbind serve --webhook-url=https://localhost:9443 --log-format=text`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return serve(c.Context(), o)
		},
	}
	o.addFlags(c.Flags())
	return c
}

// serve runs the server until the context ends.
func serve(ctx context.Context, o *options) error {
	// Claims leave many times as much garbage as the heap holds: to collect it less
	// often saves a tenth of the CPU under full load. GOMEMLIMIT bounds scarce memory.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
	lines := newLogWriter(os.Stderr)
	log, err := o.logger(lines)
	if err != nil {
		return err
	}
	go lines.run(log)
	defer lines.close()
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	slog.SetDefault(slog.New(logr.ToSlogHandler(log))) // For net/http's own messages.

	if o.contention {
		profileContention()
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("cannot make the scheme: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("cannot make the scheme: %w", err)
	}

	cluster, err := config.GetConfig()
	if clientcmd.IsEmptyConfig(err) {
		return fmt.Errorf("cannot find a cluster: no ServiceAccount of a pod, and no kubeconfig ($KUBECONFIG is %q): "+
			"name a file with --kubeconfig or $KUBECONFIG", os.Getenv("KUBECONFIG"))
	}
	if err != nil {
		return fmt.Errorf("cannot find a cluster: %w; name a file with --kubeconfig or $KUBECONFIG", err)
	}
	// No client-side rate limit: claims wait for these requests. The API server
	// protects itself better, by priority and fairness.
	cluster.QPS = -1
	host, port, err := splitAddress(o.webhookAddress)
	if err != nil {
		return err
	}
	var gate *certs.Gate // Set below, before the servers start.
	ownCertificate := func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return gate.GetCertificate(h) }
	clients, err := o.newClients(ownCertificate)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		WebhookServer: webhook.NewServer(webhook.ServerOptions{
			Address: o.webhookAddress, HTTP2: o.http2, Log: log,
			TLSOpts: []func(*tls.Config){
				func(c *tls.Config) { c.GetCertificate = ownCertificate },
				clients.configure,
			},
		}),
		Metrics:                o.metricsServer(ownCertificate),
		HealthProbeBindAddress: o.probeAddress,
		PprofBindAddress:       o.pprofAddress,
		Cache:                  cacheOptions(),
	})
	if err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("ClaimKind").GroupKind()); meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster does not know ClaimKinds: kubectl apply -k deploy: %w", err)
	}

	source, err := o.certificates(cluster)
	if err != nil {
		return err
	}
	bundles := func(ctx context.Context) ([][]byte, error) { return controller.Bundles(ctx, mgr.GetClient()) }
	gate = certs.NewGate(source, o.certificateNames()[0], bundles)
	registration, err := controller.NewRegistration(mgr)
	if err != nil {
		return err
	}
	if err := registration.SetupWithManager(mgr); err != nil {
		return err
	}
	claims, err := controller.NewClaims(registration, cluster, o.namespace, o.lateMemory.Value())
	if err != nil {
		return err
	}
	if err := claims.SetupWithManager(mgr); err != nil {
		return err
	}
	metrics := webhook.NewMetrics(registration.Inventory.Snapshot)
	err = errors.Join(registration.RegisterMetrics(), gate.RegisterMetrics(), metrics.Register(),
		claims.Metrics.Register(), lines.RegisterMetrics())
	if err != nil {
		return fmt.Errorf("cannot register the metrics: %w", err)
	}

	budget := webhook.NewBodyBudget(v1alpha1.MaxReviewBytesInFlight)
	drain := newDrain(ctx, o.shutdownDelay)
	answer := func(path string, review webhook.Reviewer) {
		handler := &webhook.Handler{Review: review, BodyBudget: budget, Log: log}
		mgr.GetWebhookServer().Register(path, drain.handler(clients.handler(handler)))
	}
	binder := &webhook.Binder{
		Snapshot: registration.Inventory.Snapshot, Live: registration.Live, Registered: registration.Registered,
		Fresh: rand.Uint64, Now: time.Now, Metrics: metrics,
	}
	answer(v1alpha1.BindPath, binder.Review)
	leases, err := coordinationclient.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("cannot make a client for Leases: %w", err)
	}
	guard := &webhook.Guard{
		Snapshot: registration.Inventory.Snapshot, ClassKind: registration.ClassKind, Registered: registration.Registered,
		Class: registration.Class, Namespace: registration.Namespace,
		Leases: leases.Leases(o.namespace), Sightings: onedefault.NewSightings(), Window: o.inFlightWindow, Metrics: metrics,
	}
	answer(v1alpha1.GuardPath, guard.Review)
	registration.OnStored(guard.Stored)
	sightings := manager.RunnableFunc(func(ctx context.Context) error {
		guard.Sightings.Watch(ctx, guard.Leases)
		return nil
	})

	address := net.JoinHostPort(host, strconv.Itoa(port))
	leader := &leadership{
		cluster: cluster, scheme: scheme, mapper: mgr.GetRESTMapper(), options: o,
		registration: registration, claims: claims, opened: registration.Opened(),
		verifyServing: func(ctx context.Context, ca []byte) error {
			return gate.Verify(ctx, address, ca)
		},
	}
	for name, runnable := range map[string]manager.Runnable{
		"certificates":     source,
		"certificate gate": gate,
		"clients":          clients,
		"leadership":       leader,
		"sightings":        sightings,
	} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("cannot add the %s: %w", name, err)
		}
	}
	for name, ready := range map[string]healthz.Checker{
		"webhook-server": func(r *http.Request) error { return gate.CheckServing(r.Context(), address) },
		"certificate":    gate.Ready,
		"classes":        func(r *http.Request) error { return registration.Ready(r.Context()) },
		"claims":         func(*http.Request) error { return claims.Ready(time.Now()) },
		"shutdown":       drain.ready,
	} {
		if err := mgr.AddReadyzCheck(name, ready); err != nil {
			return fmt.Errorf("cannot add the readiness check %q: %w", name, err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("cannot add the health check: %w", err)
	}
	if err := mgr.Start(drain.finished); err != nil { //nolint:contextcheck // It outlives the context until the drain is over.
		return fmt.Errorf("cannot go on: %w", err)
	}
	return nil
}

// certificates returns the source of certificates that --certs selects.
func (o *options) certificates(cluster *rest.Config) (certs.Source, error) {
	if o.certs == certManager {
		return certs.NewCertManager(o.certDir)
	}
	return certs.NewSelfSigned(cluster, o.namespace, o.certDuration, o.caDuration, o.certificateNames()...), nil
}
