package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// lag of an API server that is slow to learn of a new caBundle.
const lag = 3 * time.Second

func rotations() (leaves, cas int) {
	if testing.Short() {
		return 3, 1
	}
	return 20, 5
}

// rotateCertificates and their CA.
func (d *deployment) rotateCertificates(t *testing.T) {
	if podCerts == certsSelfSigned {
		d.applyDeploy(t, podImage, "--certificate-duration=30s")
	} else {
		d.applyDeploy(t, podImage)
	}
	d.settled(t, 2)
	pods := must(d.pods(t.Context()))(t)
	seen := d.connectAlways(t, pods)
	rotateLeaf, rotateCA := d.rotateSelfSigned, d.rotateSelfSignedCA
	if podCerts == certsCertManager {
		rotateLeaf, rotateCA = d.renewLeaf, d.renewCA
	}
	leaves, cas := rotations()
	d.lossless(t, fmt.Sprint(leaves, " rotations of leaves"), func() { rotateLeaf(t, seen, leaves) })
	d.lossless(t, fmt.Sprint(cas, " rotations of the CA"), func() {
		for range cas {
			rotateCA(t, seen)
		}
	})
	count, problems := seen.end()
	t.Logf("%d TLS connections, %d of them refused", count, len(problems))
	assert.Empty(t, problems, "We should serve only what every API server trusts.")
}

// changeCertificates from cert-manager's to classbind's own, and back.
func (d *deployment) changeCertificates(t *testing.T) {
	if podCerts != certsCertManager {
		t.Skip("It needs cert-manager: CERTS=cert-manager.")
	}
	for _, certs := range []string{certsSelfSigned, certsCertManager} {
		folder := must(overlayOf(certs, podImage))(t)
		d.lossless(t, "change to "+certs, func() {
			d.kubectl(t, "apply", "-k", folder)
			d.settled(t, 2)
		})
	}
}

// rotateSelfSigned waits until the replicas have renewed their certificates so often between them.
func (d *deployment) rotateSelfSigned(t *testing.T, seen *connections, times int) {
	before := seen.rotations()
	for n := range times {
		require.Eventually(t, func() bool { return seen.rotations() > before+n }, patience, time.Second)
		t.Logf("rotation %d of %d", n+1, times)
	}
}

// rotateSelfSignedCA by deleting it, as an admin would whose key leaked.
func (d *deployment) rotateSelfSignedCA(t *testing.T, seen *connections) {
	seen.await(t, issuer, func() {
		require.NoError(t, d.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: classbind.Namespace, Name: v1beta1.CASecret}}))
	})
}

func (d *deployment) renewLeaf(t *testing.T, seen *connections, times int) {
	for n := range times {
		seen.await(t, serial, func() { d.renew(t, "classbind") })
		t.Logf("rotation %d of %d", n+1, times)
	}
}

func (d *deployment) renewCA(t *testing.T, seen *connections) {
	seen.await(t, issuer, func() {
		d.renew(t, "classbind-root")
		d.renew(t, "classbind")
	})
}

// renew a Certificate of cert-manager's, as cmctl renew does, and wait until its Secret is written.
func (d *deployment) renew(t *testing.T, name string) {
	revision := func() string {
		return d.kubectl(t, "get", "certificate", name, "--namespace="+classbind.Namespace, "-o",
			`jsonpath={.status.revision} {.status.conditions[?(@.type=="Issuing")].status}`)
	}
	before := revision()
	issuing := fmt.Sprintf(`[{"op":"add","path":"/status/conditions/-","value":{"type":"Issuing","status":"True","reason":"ManuallyTriggered",`+
		`"message":"by a test","lastTransitionTime":%q}}]`,
		time.Now().UTC().Format(time.RFC3339))
	d.kubectl(t, "patch", "certificate", name, "--namespace="+classbind.Namespace, "--subresource=status", "--type=json", "-p", issuing)
	require.EventuallyWithT(t, func(c *attempt) {
		after := revision()
		require.NotEqual(c, before, after)
		require.NotContains(c, after, "True")
	}, patience, 100*time.Millisecond, "We should see cert-manager issue %s.", name)
	// A change of the pod has its kubelet look at the Secret now, and not in a minute.
	d.kubectl(t, "annotate", "pods", "--namespace="+classbind.Namespace, "--selector=app.kubernetes.io/name=classbind", "--overwrite", fmt.Sprint(
		"renewed=", time.Now().UnixNano(),
	))
}

type certificate struct{ serial, issuer string }

// connections are made all the time, to each replica in turn, as an API server would that has none yet. The API server itself makes few,
// since it keeps those that it has. They trust the entries' caBundles as they are and as they were, since an API server may be a little
// behind.
type connections struct {
	d    *deployment
	pods []corev1.Pod
	end  func() (count int, problems []string)

	mu             sync.Mutex
	bundles        []bundles
	served         map[string]certificate // by pod, the last
	renewed, count int
	problems       []string
}

type bundles struct {
	at  time.Time
	all [][]byte
}

func (d *deployment) connectAlways(t *testing.T, pods []corev1.Pod) *connections {
	s := &connections{d: d, pods: pods, served: map[string]certificate{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			s.round(ctx)
			pause(ctx, 50*time.Millisecond)
		}
	}()
	s.end = sync.OnceValues(func() (int, []string) {
		cancel()
		<-ended
		return s.count, s.problems
	})
	t.Cleanup(func() { s.end() })
	s.await(t, serial, func() {})
	return s
}

func (s *connections) round(ctx context.Context) {
	now, err := s.d.bundles(ctx)
	if err != nil {
		s.problem(ctx, err)
		return
	}
	s.bundles = append(s.bundles, now)
	trusted := [][]byte{}
	for len(s.bundles) > 1 && now.at.Sub(s.bundles[1].at) >= lag {
		s.bundles = s.bundles[1:]
	}
	for _, b := range []bundles{now, s.bundles[0]} {
		for _, bundle := range b.all {
			if slices.ContainsFunc(trusted, func(other []byte) bool { return bytes.Equal(other, bundle) }) {
				continue
			}
			trusted = append(trusted, bundle)
			for i := range s.pods {
				s.connect(ctx, &s.pods[i], bundle, b.at)
			}
		}
	}
}

func (s *connections) connect(ctx context.Context, pod *corev1.Pod, bundle []byte, at time.Time) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	var leaf *x509.Certificate
	config, err := s.d.caller() // The server is verified below, after it is noted.
	if err != nil {
		s.problem(ctx, err)
		return
	}
	config.ServerName = "classbind." + classbind.Namespace + ".svc"
	config.VerifyConnection = func(state tls.ConnectionState) error {
		leaf = state.PeerCertificates[0]
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: config.ServerName})
		if time.Since(at) > lag+time.Second {
			return nil // The machine is slow: a replica relies on a newer bundle after 5 s.
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "9443"))
	if err == nil {
		err = connection.Close()
	}
	if err != nil {
		s.problem(ctx, fmt.Errorf("%s at %s: %w", pod.Name, time.Now().Format(time.TimeOnly), err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if leaf == nil {
		return
	}
	now := certificate{serial: leaf.SerialNumber.String(), issuer: hex.EncodeToString(leaf.AuthorityKeyId)}
	if last, ok := s.served[pod.Name]; ok && last != now {
		s.renewed++
	}
	s.served[pod.Name] = now
}

func (s *connections) problem(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, err.Error())
}

func (d *deployment) bundles(ctx context.Context) (bundles, error) {
	now := bundles{at: time.Now()}
	for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
		claims := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := d.Get(ctx, client.ObjectKey{Name: name}, claims); err != nil {
			return now, err
		}
		for i := range claims.Webhooks {
			now.all = append(now.all, claims.Webhooks[i].ClientConfig.CABundle)
		}
	}
	classes := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := d.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, classes); err != nil {
		return now, err
	}
	for i := range classes.Webhooks {
		now.all = append(now.all, classes.Webhooks[i].ClientConfig.CABundle)
	}
	return now, nil
}

func (s *connections) rotations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

func issuer(c certificate) string { return c.issuer }

func serial(c certificate) string { return c.serial }

// await until every replica serves a certificate with another field than any had before something is done.
func (s *connections) await(t *testing.T, field func(certificate) string, do func()) {
	var before []string
	s.mu.Lock()
	for _, c := range s.served {
		before = append(before, field(c))
	}
	s.mu.Unlock()
	do()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !slices.ContainsFunc(s.pods, func(p corev1.Pod) bool {
			c, served := s.served[p.Name]
			return !served || slices.Contains(before, field(c))
		})
	}, patience, 50*time.Millisecond, "We should see every replica serve a new certificate.")
}
