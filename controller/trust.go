package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// overlap is for how long the entries go on trusting a CA after another took its
// place. Most replicas serve a certificate of the new CA within seconds, but one
// that is mounted from a Secret has to wait for the kubelet, which may take two
// minutes.
const overlap = 15 * time.Minute

// Bundles are the CA bundles of all entries, each once.
func Bundles(ctx context.Context, reader client.Reader) ([][]byte, error) {
	key := client.ObjectKey{Name: v1alpha1.WebhookConfiguration}
	claims, classes := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := errors.Join(client.IgnoreNotFound(reader.Get(ctx, key, claims)), client.IgnoreNotFound(reader.Get(ctx, key, classes))); err != nil {
		return nil, fmt.Errorf("cannot get the webhook configurations: %w", err)
	}
	bundles := map[string][]byte{}
	for i := range claims.Webhooks {
		b := claims.Webhooks[i].ClientConfig.CABundle
		bundles[string(b)] = b
	}
	for i := range classes.Webhooks {
		b := classes.Webhooks[i].ClientConfig.CABundle
		bundles[string(b)] = b
	}
	return slices.Collect(maps.Values(bundles)), nil
}

// authorities are the CAs of now, PEM, one for each Secret that may have one:
// while the mode of certificates is changed, replicas of both modes are called.
func (w *WebhookConfigurator) authorities(ctx context.Context) ([][]byte, error) {
	var all [][]byte
	for _, name := range []string{v1alpha1.CASecret, v1alpha1.TLSSecret} {
		secret := &corev1.Secret{}
		if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, secret); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot get the CA: %w", err)
		}
		all = append(all, secret.Data[corev1.ServiceAccountRootCAKey])
	}
	return all, nil
}

// trust remembers which CAs the entries are to carry: those of now, and those of
// a moment ago, of which some replica may still serve a certificate.
type trust struct {
	mu sync.Mutex
	// current CAs in the last round, DER.
	current sets.Set[string]
	// superseded says since when others are not current.
	superseded map[string]time.Time
}

// bundle is PEM for all entries, made of the CAs of now and of those that the
// entries carry; empty if there is none.
func (t *trust) bundle(now time.Time, current, carried [][]byte) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	inUse := t.current.Union(parse(carried))
	t.current = parse(current)
	superseded := map[string]time.Time{}
	for der, since := range t.superseded {
		if now.Sub(since) < overlap || inUse.Has(der) {
			superseded[der] = since
		}
	}
	for der := range inUse {
		if _, known := superseded[der]; !known {
			superseded[der] = now
		}
	}
	for der := range t.current {
		delete(superseded, der)
	}
	t.superseded = superseded

	var certificates []*x509.Certificate
	add := func(der string) {
		if c, err := x509.ParseCertificate([]byte(der)); err == nil && now.Before(c.NotAfter) {
			certificates = append(certificates, c)
		}
	}
	for _, der := range sets.List(t.current) {
		add(der)
	}
	for _, der := range slices.Sorted(maps.Keys(superseded)) { // Every new order would be a change.
		if now.Sub(superseded[der]) < overlap {
			add(der)
		}
	}
	return cert.EncodeCertificates(certificates...)
}

// parse certificates to DER. What is none is left out: it can be trusted by nobody.
func parse(bundles [][]byte) sets.Set[string] {
	all := sets.New[string]()
	for _, b := range bundles {
		certificates, err := cert.ParseCertsPEM(b)
		if err != nil {
			continue
		}
		for _, c := range certificates {
			all.Insert(string(c.Raw))
		}
	}
	return all
}
