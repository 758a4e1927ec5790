// Package certs provides the webhook server's certificates. cert-manager or its libraries make and rotate all of them.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	dynamic "github.com/cert-manager/cert-manager/pkg/server/tls"
	"github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
)

// signInterval is how often a new replica looks whether it knows the CA yet.
const signInterval = 20 * time.Millisecond

// SelfSigned issues this replica's certificates from our own CA. The first replica makes the CA, and all share it through a Secret. The
// private key of a certificate never leaves memory. SelfSigned runs on every replica.
type SelfSigned struct{ *dynamic.DynamicSource }

// NewSelfSigned keeps the CA in a namespace. Certificates for dnsNames and CA are renewed after two thirds of their durations.
func NewSelfSigned(config *rest.Config, namespace string, duration, caDuration time.Duration, dnsNames ...string) SelfSigned {
	return SelfSigned{&dynamic.DynamicSource{
		DNSNames: dnsNames,
		Authority: Backdating{&authority.DynamicAuthority{
			RESTConfig:      backdatingCA(config),
			SecretNamespace: namespace,
			SecretName:      v1beta1.CASecret,
			CommonName:      v1beta1.CASecret,
			LeafDuration:    duration,
			CADuration:      caDuration,
		}},
	}}
}

// Backdating issues certificates that also identify classbind as a client. They have been valid for clockSkew already, so that a replica
// that starts can be called at once, by API servers with slow clocks, too. cert-manager's authority has no setting for it.
type Backdating struct{ *authority.DynamicAuthority }

// backdatingCA returns a config whose client backdates the CA, too, when it writes it: an API server whose clock is slow would take a new
// CA for one that is not valid yet. cert-manager's authority has no setting for that either.
func backdatingCA(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return caWriter{next} })
	return config
}

type caWriter struct{ next http.RoundTripper }

// RoundTrip backdates the CA in a Secret that is created or updated.
func (w caWriter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut || r.Body == nil {
		return w.next.RoundTrip(r)
	}
	secret := &corev1.Secret{}
	err := json.NewDecoder(r.Body).Decode(secret)
	_ = r.Body.Close() // It is in memory.
	if err != nil {
		return nil, fmt.Errorf("cannot read the Secret of a new CA: %w", err)
	}
	ca, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("cannot read a new CA: %w", err)
	}
	ca.Leaf.NotBefore = ca.Leaf.NotBefore.Add(-clockSkew)
	signed, _, err := pki.SignCertificate(ca.Leaf, ca.Leaf, ca.Leaf.PublicKey, ca.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("cannot backdate a new CA: %w", err)
	}
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.ServiceAccountRootCAKey] = signed, signed
	body, err := json.Marshal(secret)
	if err != nil {
		return nil, fmt.Errorf("cannot write a new CA: %w", err)
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return w.next.RoundTrip(r)
}

// Sign a template with the CA in the Secret, as soon as the authority knows that.
func (a Backdating) Sign(template *x509.Certificate) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	var err error // The authority's, which sets how long the certificate is valid.
	if waited := wait.PollUntilContextTimeout(ctx, signInterval, time.Second, true, func(context.Context) (bool, error) {
		_, err = a.DynamicAuthority.Sign(template)
		return !errors.Is(err, authority.ErrCertificateNotAvailable), nil
	}); waited != nil || err != nil {
		return nil, errors.Join(waited, err)
	}
	client, err := kubernetes.NewForConfig(a.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the CA: %w", err)
	}
	secret, err := client.CoreV1().Secrets(a.SecretNamespace).Get(ctx, a.SecretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA: %w", err)
	}
	ca, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA in the Secret %q: %w", a.SecretName, err)
	}
	template.NotBefore = template.NotBefore.Add(-clockSkew)
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth) // To choosers.
	_, signed, err := pki.SignCertificate(template, ca.Leaf, template.PublicKey, ca.PrivateKey)
	return signed, err
}

// Start issues certificates until the context ends.
func (s SelfSigned) Start(ctx context.Context) error {
	// cert-manager would log to klog without a logger in the context.
	return s.DynamicSource.Start(logf.IntoContext(ctx, logf.Log.WithName("certificates")))
}

// NewCertManager reads cert-manager's certificates from the folder where their Secret is mounted, and again when they change.
func NewCertManager(dir string) (*certwatcher.CertWatcher, error) {
	w, err := certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of cert-manager: %w; mount the Secret %q there, as deploy/cert-manager does",
			err, v1beta1.TLSSecret)
	}
	return w, nil
}
