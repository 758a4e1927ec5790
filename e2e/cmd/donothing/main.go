// Command donothing is the webhook server that classbind is measured against: as controller-runtime has one write it, with a handler that
// looks at nothing and answers the same to all.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/classbind/classbind/e2e/command"
)

func main() {
	port := flag.Int("port", 0, "`port` of localhost on which the webhook server listens")
	certs := flag.String("cert-dir", "", "`folder` of tls.crt and tls.key")
	answer := flag.String("answer", "{}", "the AdmissionResponse whose patch and audit annotations are answered, in JSON")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil)))
	command.Main(func(ctx context.Context) error {
		handler, err := constant([]byte(*answer))
		if err != nil {
			return fmt.Errorf("cannot read the answer: %w", err)
		}
		server := webhook.NewServer(webhook.Options{
			Host: "localhost", Port: *port, CertDir: *certs,
			// Of webhooks at a URL, kube-apiserver would speak HTTP/2 to one that offers it. To a Service, it never does.
			TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
		})
		server.Register("/", &admission.Webhook{Handler: handler})
		return server.Start(ctx)
	})
}

// constant answers the same to all.
func constant(answer []byte) (admission.Handler, error) {
	var (
		same       admissionv1.AdmissionResponse
		operations []jsonpatch.Operation
	)
	if err := json.Unmarshal(answer, &same); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(same.Patch, &operations); err != nil {
		return nil, err
	}
	return admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		response := admission.Patched("", operations...)
		response.AuditAnnotations = same.AuditAnnotations
		return response
	}), nil
}
