package controller

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// overlap is for how long the entries go on trusting a CA after another took its
// place. Most replicas serve a certificate of the new CA within seconds, but one
// that is mounted from a Secret has to wait for the kubelet, which may take two
// minutes.
const overlap = 15 * time.Minute

// Bundles are the CA bundles of all our entries, each once.
func Bundles(ctx context.Context, reader client.Reader) ([][]byte, error) {
	key := client.ObjectKey{Name: v1alpha1.WebhookConfiguration}
	claims, classes := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := errors.Join(client.IgnoreNotFound(reader.Get(ctx, key, claims)), client.IgnoreNotFound(reader.Get(ctx, key, classes))); err != nil {
		return nil, fmt.Errorf("cannot get the webhook configurations: %w", err)
	}
	bundles := map[string][]byte{}
	for i := range claims.Webhooks {
		if e := &claims.Webhooks[i]; strings.HasSuffix(e.Name, v1alpha1.BindSuffix) {
			bundles[string(e.ClientConfig.CABundle)] = e.ClientConfig.CABundle
		}
	}
	for i := range classes.Webhooks {
		if e := &classes.Webhooks[i]; strings.HasSuffix(e.Name, v1alpha1.GuardSuffix) {
			bundles[string(e.ClientConfig.CABundle)] = e.ClientConfig.CABundle
		}
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

// bundles are the one that all entries are to carry, and those that they do.
func (w *WebhookConfigurator) bundles(ctx context.Context) (due []byte, carried [][]byte, err error) {
	current, err := w.authorities(ctx)
	if err != nil {
		return nil, nil, err
	}
	if carried, err = Bundles(ctx, w.Client); err != nil {
		return nil, nil, err
	}
	return w.trust.bundle(time.Now(), current, carried), carried, nil
}

// outdated says whether an entry is to carry another bundle, where no event
// tells: a CA is trusted no more, or the Secret that has it is not watched.
func (w *WebhookConfigurator) outdated(ctx context.Context) bool {
	due, carried, err := w.bundles(ctx)
	return err == nil && slices.ContainsFunc(carried, func(b []byte) bool { return !bytes.Equal(b, due) })
}

// certificates by their DER.
type certificates map[string]*x509.Certificate

// parse PEM. What is no certificate is left out, as it is by those who verify.
func parse(bundles [][]byte) certificates {
	all := certificates{}
	for _, rest := range bundles {
		for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				all[string(c.Raw)] = c
			}
		}
	}
	return all
}

// encode those that have not expired, in an order: every new one would be a change.
func (all certificates) encode(now time.Time) (bundle []byte) {
	for _, der := range slices.Sorted(maps.Keys(all)) {
		if now.Before(all[der].NotAfter) {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: []byte(der)})...)
		}
	}
	return bundle
}

// trust remembers which CAs the entries are to carry: those of now, and those of
// a moment ago, of which some replica may still serve a certificate.
type trust struct {
	mu    sync.Mutex
	known map[string]authority // by DER
}

// authority is a CA, and since when it is not one of now; zero, it is.
type authority struct {
	certificate *x509.Certificate
	superseded  time.Time
}

// bundle is PEM for all entries, made of the CAs of now and of those that the
// entries carry; empty if there is none.
func (t *trust) bundle(now time.Time, current, carried [][]byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, carries := map[string]authority{}, parse(carried)
	for der, c := range parse(current) {
		known[der] = authority{certificate: c}
	}
	for der, a := range t.known {
		if a.superseded.IsZero() {
			a.superseded = now
		}
		// What entries still carry would be new again in the next round.
		if known[der].certificate == nil && (now.Sub(a.superseded) < overlap || carries[der] != nil) {
			known[der] = a
		}
	}
	for der, c := range carries {
		if known[der].certificate == nil {
			known[der] = authority{c, now}
		}
	}
	t.known = known
	trusted := certificates{}
	for der, a := range known {
		if a.superseded.IsZero() || now.Sub(a.superseded) < overlap {
			trusted[der] = a.certificate
		}
	}
	return trusted.encode(now)
}
