package status

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// checkCertificates reports whether the API server can verify what replicas serve. A
// self-signed certificate is in the memory of its replica alone, so only its CA is seen.
func checkCertificates(ctx context.Context, i *installation, s *Section) {
	authorities, read := i.checkSecrets(ctx, s)
	wrong := len(s.Findings) > 0     // Then entries have what follows from it.
	bundles := map[string][]string{} // the names of the entries, by the bundle that they carry
	for _, e := range i.claimEntries.Entries() {
		bundles[string(e.ClientConfig.CABundle)] = append(bundles[string(e.ClientConfig.CABundle)], e.Name)
	}
	for _, e := range i.classEntries.Webhooks {
		bundles[string(e.ClientConfig.CABundle)] = append(bundles[string(e.ClientConfig.CABundle)], e.Name)
	}
	const do = "the leader mends it within seconds: see the section replicas why it does not"
	for _, bundle := range slices.Sorted(maps.Keys(bundles)) {
		where := "webhook entries " + selector.List(bundles[bundle])
		trusted, err := cert.ParseCertsPEM([]byte(bundle))
		valid := slices.DeleteFunc(slices.Clone(trusted), i.expired)
		switch {
		case err != nil:
			s.found(where, do, "they carry no CA that can be read: %v", err)
		case wrong:
		case len(valid) == 0:
			s.found(where, do, "the CA that they carry expired at %s", lastOf(trusted).Format(time.RFC3339))
		case read && len(authorities) > 0 && !slices.ContainsFunc(valid, func(c *x509.Certificate) bool {
			return slices.ContainsFunc(authorities, c.Equal)
		}):
			s.found(where, do, "the CA that they carry is none of those in the Secrets of %s", i.own)
		}
	}
	switch {
	case s.Summary == "" && read:
		s.Summary = "no certificate"
	case s.Summary == "":
		s.Summary = notRead
	case !read:
		s.Summary += "; not all read"
	}
}

// Who issues the certificates, as --certs has it.
const (
	selfSigned  = "self-signed"
	certManager = "cert-manager"
)

// certificateKeys are where the Secrets have certificates. The tls.crt of our own CA is
// the CA again.
var certificateKeys = []struct {
	issuer, secret string
	keys           []string
}{
	{selfSigned, v1alpha1.CASecret, []string{corev1.ServiceAccountRootCAKey}},
	{certManager, v1alpha1.TLSSecret, []string{corev1.ServiceAccountRootCAKey, corev1.TLSCertKey}},
}

// checkSecrets returns the CAs of the Secrets, and whether all of them were read.
func (i *installation) checkSecrets(ctx context.Context, s *Section) (authorities []*x509.Certificate, read bool) {
	issuer, there, read := i.issuer(), 0, true
	var summary []string
	for _, from := range certificateKeys {
		name, where := from.secret, "secrets/"+i.own+"/"+from.secret
		used := issuer == "" || issuer == from.issuer
		secret := &corev1.Secret{}
		err := i.api.Get(ctx, client.ObjectKey{Namespace: i.own, Name: name}, secret)
		if apierrors.IsNotFound(err) {
			if issuer == from.issuer {
				s.found("namespaces/"+i.own, i.obtain(issuer), "there is no Secret %s", name)
			}
			continue
		}
		there++
		if err != nil {
			s.unread("the Secret "+where, err)
			read = false
			continue
		}
		if !used {
			s.note("the Secret %s is left of other certificates, and its CA is still trusted: delete it once no replica uses it", name)
		}
		for _, key := range from.keys {
			certificates, err := cert.ParseCertsPEM(secret.Data[key])
			switch {
			case err == nil && key == corev1.ServiceAccountRootCAKey:
				authorities = append(authorities, certificates...)
			case err != nil && used:
				s.found(where, renew(i.own, name), "its %s cannot be read: %v", key, err)
			}
			if err != nil || !used {
				continue
			}
			expiry := certificates[0].NotAfter.Format(time.RFC3339)
			summary = append(summary, fmt.Sprintf("%s of %s expires at %s", key, name, expiry))
			if i.expired(certificates[0]) {
				s.found(where, renew(i.own, name), "its %s expired at %s", key, expiry)
			}
		}
	}
	if there == 0 && issuer == "" {
		s.found("namespaces/"+i.own, "start a replica, which makes its CA, or "+askCertManager+i.own,
			"there is neither the Secret %s nor %s", v1alpha1.CASecret, v1alpha1.TLSSecret)
	}
	s.Summary = strings.Join(summary, ", ")
	if issuer == selfSigned && s.Summary != "" {
		s.Summary += "; replicas keep theirs in memory"
	}
	return authorities, read
}

// obtain is how there comes to be a Secret.
func (i *installation) obtain(issuer string) string {
	if issuer == certManager {
		return askCertManager + i.own
	}
	return "start a replica, which makes its CA: see the section replicas"
}

const askCertManager = "see what cert-manager says: kubectl describe certificates --namespace "

// renew is how a new certificate comes into a Secret.
func renew(namespace, name string) string {
	if name == v1alpha1.TLSSecret {
		return askCertManager + namespace
	}
	return "have the replicas make another: kubectl delete secret --namespace " + namespace + " " + name
}

func (i *installation) expired(c *x509.Certificate) bool { return !i.now.Before(c.NotAfter) }

func lastOf(certificates []*x509.Certificate) time.Time {
	return slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}
