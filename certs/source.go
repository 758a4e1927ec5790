// Package certs provides the webhook server's certificates. cert-manager or its
// libraries make and rotate all of them.
package certs

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cert-manager/cert-manager/pkg/server/tls"
	"github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
)

// SelfSigned issues this replica's certificates from our own CA. The first replica
// makes the CA, and all share it through a Secret. The private key of a
// certificate never leaves memory. SelfSigned runs on every replica.
type SelfSigned struct{ *tls.DynamicSource }

// NewSelfSigned keeps the CA in a namespace and issues certificates for dnsNames.
// Certificates and CA are renewed after two thirds of their durations.
func NewSelfSigned(config *rest.Config, namespace string, duration, caDuration time.Duration, dnsNames ...string) SelfSigned {
	return SelfSigned{&tls.DynamicSource{
		DNSNames: dnsNames,
		Authority: &authority.DynamicAuthority{
			RESTConfig:      config,
			SecretNamespace: namespace,
			SecretName:      v1alpha1.CASecret,
			CommonName:      v1alpha1.CASecret,
			LeafDuration:    duration,
			CADuration:      caDuration,
		},
	}}
}

// Start issues certificates until the context ends.
func (s SelfSigned) Start(ctx context.Context) error {
	// cert-manager would log to klog without a logger in the context.
	return s.DynamicSource.Start(logf.IntoContext(ctx, logf.Log.WithName("certificates")))
}

// NewCertManager reads cert-manager's certificates from the folder where their
// Secret is mounted, and again when they change. It runs on every replica.
func NewCertManager(dir string) (*certwatcher.CertWatcher, error) {
	w, err := certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of cert-manager: %w; mount the Secret %q there, as deploy/cert-manager does",
			err, v1alpha1.TLSSecret)
	}
	return w, nil
}
