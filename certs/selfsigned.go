// Package certs provides the webhook server's certificates. All of them are
// made and rotated by cert-manager's libraries.
package certs

import (
	"context"
	"errors"
	"net/http"

	"github.com/cert-manager/cert-manager/pkg/server/tls"
	"github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
)

// SelfSigned issues this replica's certificate from a CA of our own, which all
// replicas share through a Secret and the first of them makes. The private key
// of the certificate never leaves memory. It is a Runnable of the manager's, on
// every replica.
type SelfSigned struct{ *tls.DynamicSource }

// NewSelfSigned keeps the CA in a namespace and issues certificates for the given names.
func NewSelfSigned(config *rest.Config, namespace string, dnsNames ...string) SelfSigned {
	return SelfSigned{&tls.DynamicSource{
		DNSNames: dnsNames,
		Authority: &authority.DynamicAuthority{
			RESTConfig:      config,
			SecretNamespace: namespace,
			SecretName:      v1alpha1.CASecret,
			CommonName:      v1alpha1.CASecret,
		},
	}}
}

// Start issues certificates until the context ends.
func (s SelfSigned) Start(ctx context.Context) error {
	// cert-manager would log to klog without a logger in the context.
	return s.DynamicSource.Start(logf.IntoContext(ctx, logf.Log.WithName("certificates")))
}

// Ready is an error until there is a certificate to serve.
func (s SelfSigned) Ready(*http.Request) error {
	if !s.Healthy() {
		return errors.New("no certificate has been issued yet; the CA is in the Secret " + v1alpha1.CASecret)
	}
	return nil
}
