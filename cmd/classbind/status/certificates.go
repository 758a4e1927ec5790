package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// Who issues the certificates, as --certs has it.
const (
	selfSigned  = "self-signed"
	certManager = "cert-manager"
)

// certificateKeys are where the Secrets have certificates. The tls.crt of our own CA is the CA again.
var certificateKeys = []struct {
	issuer, secret string
	keys           []string
}{
	{selfSigned, v1beta1.CASecret, []string{corev1.ServiceAccountRootCAKey}},
	{certManager, v1beta1.TLSSecret, []string{corev1.ServiceAccountRootCAKey, corev1.TLSCertKey}},
}

// checkCertificates reports whether the Secrets have certificates that are valid. A self-signed certificate is in the memory
// of its replica alone, so only its CA is seen. The leader keeps the CA of webhook entries.
func checkCertificates(ctx context.Context, i *installation, s *Section) {
	issuer, there, read := i.issuer(), 0, true
	var summary []string
	for _, from := range certificateKeys {
		if issuer != "" && issuer != from.issuer {
			continue
		}
		name, where := from.secret, "secrets/"+i.Own+"/"+from.secret
		secret := &corev1.Secret{}
		err := i.api.Get(ctx, client.ObjectKey{Namespace: i.Own, Name: name}, secret)
		if apierrors.IsNotFound(err) {
			if issuer != "" {
				s.found("namespaces/"+i.Own, renew(i.Own, name, true), "there is no Secret %s", name)
			}
			continue
		}
		there++
		if err != nil {
			s.unread("the Secret "+where, err)
			read = false
			continue
		}
		for _, key := range from.keys {
			certificates, err := cert.ParseCertsPEM(secret.Data[key])
			if err != nil {
				s.found(where, renew(i.Own, name, false), "its %s cannot be read: %v", key, err)
				continue
			}
			expiry := certificates[0].NotAfter.Format(time.RFC3339)
			summary = append(summary, fmt.Sprintf("%s of %s expires at %s", key, name, expiry))
			if !i.now.Before(certificates[0].NotAfter) {
				s.found(where, renew(i.Own, name, false), "its %s expired at %s", key, expiry)
			}
		}
	}
	if there == 0 && issuer == "" {
		s.found("namespaces/"+i.Own, "start a replica, which makes its CA, or "+askCertManager+i.Own,
			"there is neither the Secret %s nor %s", v1beta1.CASecret, v1beta1.TLSSecret)
	}
	s.Summary = strings.Join(summary, ", ")
	switch {
	case s.Summary == "" && read:
		s.Summary = "no certificate"
	case s.Summary == "":
		s.Summary = notRead
	case !read:
		s.Summary += "; not all read"
	case issuer == selfSigned:
		s.Summary += "; replicas keep theirs in memory"
	}
}

const askCertManager = "see what cert-manager says: kubectl describe certificates --namespace "

// renew is how a certificate comes into a Secret: another one, or the first.
func renew(namespace, name string, first bool) string {
	switch {
	case name == v1beta1.TLSSecret:
		return askCertManager + namespace
	case first:
		return "start a replica, which makes its CA: see the section replicas"
	}
	return "have the replicas make another: kubectl delete secret --namespace " + namespace + " " + name
}
