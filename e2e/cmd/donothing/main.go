// Command donothing is the webhook server that classbind is measured against: as controller-runtime has one write it, with a handler that
// looks at nothing and answers the same patch to all. It is a command of its own so that its memory is that of such a server.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := flag.String("webhook-bind-address", "", "`host:port` on which the webhook server listens")
	metrics := flag.String("metrics-bind-address", ":8080", "`host:port` of /metrics, over HTTP")
	certs := flag.String("cert-dir", "", "`folder` of tls.crt and tls.key")
	patch := flag.String("patch", "[]", "JSON `patch` that is answered")
	annotations := flag.String("annotations", "{}", "audit annotations that are answered, as a JSON `object`")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil)))

	host, portText, err := net.SplitHostPort(*address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	handler, err := constant([]byte(*patch), []byte(*annotations))
	if err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: port, CertDir: *certs,
		// Of webhooks at a URL, kube-apiserver would speak HTTP/2 to one that offers it. To a Service, it never does.
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	})
	server.Register("/", &admission.Webhook{Handler: handler})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- serveMetrics(ctx, *metrics)
	}()
	err = server.Start(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// serveMetrics until the context ends.
func serveMetrics(ctx context.Context, address string) error {
	server, err := metricsserver.NewServer(metricsserver.Options{BindAddress: address}, &rest.Config{}, nil)
	if err != nil {
		return err
	}
	return server.Start(ctx)
}

// constant answers the same to all.
func constant(patch, annotations []byte) (admission.Handler, error) {
	var (
		operations []jsonpatch.Operation
		audit      map[string]string
	)
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, fmt.Errorf("cannot read the patch: %w", err)
	}
	if err := json.Unmarshal(annotations, &audit); err != nil {
		return nil, fmt.Errorf("cannot read the annotations: %w", err)
	}
	return admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		response := admission.Patched("", operations...)
		response.AuditAnnotations = audit
		return response
	}), nil
}
