package status

import (
	"cmp"
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

// certificateKeys are where the Secrets have certificates. The tls.crt of our own CA is the CA again.
var certificateKeys = []struct {
	secret string
	keys   []string
	// renew says how another certificate comes into the Secret.
	renew func(namespace string) string
	// also says which certificates are in no Secret.
	also string
}{
	{v1beta1.CASecret, []string{corev1.ServiceAccountRootCAKey}, func(namespace string) string {
		return "have the replicas make another: kubectl delete secret --namespace " + namespace + " " + v1beta1.CASecret
	}, "; replicas keep theirs in memory"},
	{v1beta1.TLSSecret, []string{corev1.ServiceAccountRootCAKey, corev1.TLSCertKey}, askCertManager, ""},
}

func askCertManager(namespace string) string {
	return "see what cert-manager says: kubectl describe certificates --namespace " + namespace
}

// checkCertificates reports whether the Secrets have certificates that are valid. A self-signed certificate is in the memory
// of its replica alone, so only its CA is seen. The leader keeps the CA of webhook entries.
func checkCertificates(ctx context.Context, i *installation, s *Section) {
	var summary []string
	for _, from := range certificateKeys {
		where := "secrets/" + i.own + "/" + from.secret
		secret := &corev1.Secret{}
		if err := i.api.Get(ctx, client.ObjectKey{Namespace: i.own, Name: from.secret}, secret); err != nil {
			if !apierrors.IsNotFound(err) {
				s.unread("the Secret "+where, err)
				summary = append(summary, from.secret+" "+notRead)
			}
			continue
		}
		for _, key := range from.keys {
			certificates, err := cert.ParseCertsPEM(secret.Data[key])
			if err != nil {
				s.found(where, from.renew(i.own), "its %s cannot be read: %v", key, err)
				continue
			}
			expiry := certificates[0].NotAfter.Format(time.RFC3339)
			summary = append(summary, fmt.Sprintf("%s of %s expires at %s%s", key, from.secret, expiry, from.also))
			if !i.now.Before(certificates[0].NotAfter) {
				s.found(where, from.renew(i.own), "its %s expired at %s", key, expiry)
			}
		}
	}
	if len(summary)+len(s.Findings) == 0 {
		s.found("namespaces/"+i.own, "start a replica, which makes its CA, or "+askCertManager(i.own),
			"there is neither the Secret %s nor %s", v1beta1.CASecret, v1beta1.TLSSecret)
	}
	s.Summary = cmp.Or(strings.Join(summary, ", "), "no certificate")
}
