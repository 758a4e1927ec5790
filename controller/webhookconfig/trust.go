package webhookconfig

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// overlap is how long the entries still trust a CA after another replaced it. Most replicas serve a certificate of the new CA within
// seconds, but one that is mounted from a Secret waits for the kubelet, which may take two minutes.
const overlap = 15 * time.Minute

// Bundles returns the CA bundles of all our entries, each once, and when one of the configurations was last written, by the clock of an API
// server; zero means that this is not known. A client that changes a caBundle owns the field from then on, so the API server writes the
// time into the managed fields.
func Bundles(ctx context.Context, reader client.Reader) (all [][]byte, written time.Time, err error) {
	configurations, err := ReadConfigurations(ctx, reader, allConfigurations...)
	if err != nil {
		return nil, time.Time{}, err
	}
	return configurations.bundles(), configurations.written(), nil
}

// ourSuffixes have the names of our entries.
var ourSuffixes = []string{v1beta1.BindSuffix, v1beta1.CheckSuffix, v1beta1.GuardSuffix, v1beta1.DeletionSuffix, v1beta1.RegistrationEntry}

func (all Configurations) bundles() [][]byte {
	bundles := map[string][]byte{}
	for _, e := range all.Entries() {
		if slices.ContainsFunc(ourSuffixes, func(suffix string) bool { return strings.HasSuffix(e.Name, suffix) }) {
			bundles[string(e.ClientConfig.CABundle)] = e.ClientConfig.CABundle
		}
	}
	return slices.Collect(maps.Values(bundles))
}

// written is when any manager last wrote a configuration that has entries.
func (all Configurations) written() (last time.Time) {
	for _, c := range all {
		if len(c.Webhooks) == 0 {
			continue
		}
		if len(c.ManagedFields) == 0 {
			return time.Time{}
		}
		for _, f := range c.ManagedFields {
			if f.Time.IsZero() {
				return time.Time{}
			}
			last = slices.MaxFunc([]time.Time{last, f.Time.Time}, time.Time.Compare)
		}
	}
	return last
}

// bundles returns the bundle that all entries should carry, and those that they carry now. There is a current CA for each Secret that may
// have one: while the mode of certificates changes, replicas of both modes are called.
func (w *Configurator) bundles(ctx context.Context, current Configurations) (due []byte, carried [][]byte, err error) {
	var cas [][]byte
	for _, name := range []string{v1beta1.CASecret, v1beta1.TLSSecret} {
		secret := &corev1.Secret{}
		if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, secret); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("cannot get the CA: %w", err)
		}
		cas = append(cas, secret.Data[corev1.ServiceAccountRootCAKey])
	}
	carried = current.bundles()
	return w.trust.bundle(time.Now(), cas, carried), carried, nil
}

// outdated reports whether an entry should carry another bundle. No event reports when an
// overlap ends, or when a Secret that is not watched changes.
func (w *Configurator) outdated(ctx context.Context) bool {
	current, err := ReadConfigurations(ctx, w.Client, allConfigurations...)
	if err != nil {
		return false
	}
	due, carried, err := w.bundles(ctx, current)
	return err == nil && slices.ContainsFunc(carried, func(b []byte) bool { return !bytes.Equal(b, due) })
}

// certificates by their DER encoding.
type certificates map[string]*x509.Certificate

// parse reads PEM. It skips what is not a certificate, as verifiers do.
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

// encode returns those that have not expired, sorted, because a new order would be a change.
func (all certificates) encode(now time.Time) (bundle []byte) {
	for _, der := range slices.Sorted(maps.Keys(all)) {
		if now.Before(all[der].NotAfter) {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: []byte(der)})...)
		}
	}
	return bundle
}

// trust remembers which CAs the entries should carry: the current ones, and replaced ones whose certificates some replica may still serve.
type trust struct {
	mu    sync.Mutex
	known map[string]authority // by DER
}

// authority is a CA. superseded is when another replaced it; zero means that it is current.
type authority struct {
	certificate *x509.Certificate
	superseded  time.Time
}

// bundle returns PEM for all entries, made of the current CAs and those that the entries carry. It is empty if there is none.
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
		// Forgotten, it would count as new in the next round, because entries carry it.
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
