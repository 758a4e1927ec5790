package status

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/certs/certtest"
)

func TestCertificates(t *testing.T) {
	ca := certtest.NewCA(t)
	expired := (&certtest.Pair{}).Sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}).PEM()
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   []string
	}{
		"CAExpired": {
			reason: "We should find an expired CA where it is kept, and not each entry that trusts it.",
			change: func(w *world) {
				w.secret.Data["ca.crt"], w.secret.Data["tls.crt"] = expired, expired
				w.writeEntries(expired)
			},
			want: []string{"secrets/classbind-system/classbind-ca: its ca.crt expired at "},
		},
		"OfAnotherIssuer": {
			reason: "We should not look at certificates that nobody uses any more.",
			change: func(w *world) {
				left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.TLSSecret}, Data: map[string][]byte{"ca.crt": expired}}
				w.more = append(w.more, left)
			},
		},
		"CertManagersExpired": {
			reason: "We should find the expired certificate that replicas serve.",
			change: func(w *world) {
				w.certManager()
				w.secret.Data["ca.crt"] = ca.PEM()
				w.secret.Data["tls.crt"] = ca.Sign(t, &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}).PEM()
				w.writeEntries(ca.PEM())
			},
			want: []string{"certificates: secrets/classbind-system/classbind-tls: its tls.crt expired at "},
		},
		"NoSecret": {
			reason: "We should say that there is no certificate at all.",
			change: func(w *world) { w.secret.Name = "others" },
			want:   []string{"certificates: namespaces/classbind-system: there is no Secret classbind-ca"},
		},
		"SecretMalformed": {
			reason: "We should say that a Secret holds no certificate.",
			change: func(w *world) { w.secret.Data = nil; w.writeEntries(ca.PEM()) },
			want:   []string{"its ca.crt cannot be read"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assertFindings(t, report, tc.reason, tc.want)
		})
	}
}
