package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1alpha1"
)

// mounted writes a Secret with a certificate into a folder as the kubelet does: the
// files are links through one link to a folder, which the next version replaces.
func mounted(t *testing.T, dir, version string, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	var chain []byte
	for _, der := range c.Certificate {
		chain = append(chain, encoded(der)...)
	}
	written(t, dir, version, chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

func written(t *testing.T, dir, version string, certificate, key []byte) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version, "tls.crt"), certificate, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version, "tls.key"), key, 0o600))
	before, err := os.Readlink(filepath.Join(dir, "..data"))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	if err == nil {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, before)))
		return
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
}

func TestCertManager(t *testing.T) {
	ca, dir := newIssuer(t), t.TempDir()
	first, second := ca.intermediate(t).issue(t, service, time.Hour), ca.issue(t, service, time.Hour)
	mounted(t, dir, "..1", first)
	source, err := NewCertManager(dir)
	require.NoError(t, err, "We should read what is mounted.")
	got, err := source.GetCertificate(nil)
	require.NoError(t, err)
	assert.Equal(t, first.Certificate, got.Certificate, "We should have it before we begin, with its intermediate.")
	require.NotNil(t, got.Leaf, "We should know until when it is valid.")
	assert.False(t, source.NeedLeaderElection(), "We should read it on every replica.")

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	source.WithWatchInterval(100 * time.Millisecond) // It may not watch the files yet when they change.
	running.Go(func() { assert.NoError(t, source.Start(ctx)) })
	defer running.Wait()
	defer cancel()
	mounted(t, dir, "..2", second)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := source.GetCertificate(nil)
		require.NoError(c, err)
		assert.Equal(c, second.Certificate, got.Certificate, "We should read what is mounted later.")
	}, 3*time.Minute, 20*time.Millisecond)
}

func TestNewCertManagerRefuses(t *testing.T) {
	one, other := newIssuer(t).issue(t, service, time.Hour), newIssuer(t).issue(t, service, time.Hour)
	for name, tc := range map[string]struct {
		reason string
		mount  func(t *testing.T, dir string) string
		want   string
		is     error
	}{
		"NoFolder": {
			reason: "We should not start without a certificate, but say what to mount and where.",
			mount:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "absent") },
			want:   filepath.Join("absent", "tls.crt"), is: fs.ErrNotExist,
		},
		"NoKey": {
			reason: "We should name the file that is not there.",
			mount: func(t *testing.T, dir string) string {
				t.Helper()
				mounted(t, dir, "..1", one)
				require.NoError(t, os.Remove(filepath.Join(dir, "tls.key")))
				return dir
			},
			want: "tls.key", is: fs.ErrNotExist,
		},
		"Malformed": {
			reason: "We should say that it is no certificate.",
			mount: func(t *testing.T, dir string) string {
				t.Helper()
				written(t, dir, "..1", []byte("PEM"), []byte("PEM"))
				return dir
			},
			want: "failed to find any PEM data",
		},
		"KeyOfAnother": {
			reason: "We should say that the key is not that of the certificate.",
			mount: func(t *testing.T, dir string) string {
				t.Helper()
				mounted(t, dir, "..1", &tls.Certificate{Certificate: one.Certificate, PrivateKey: other.PrivateKey})
				return dir
			},
			want: "private key does not match public key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewCertManager(tc.mount(t, t.TempDir()))
			require.ErrorContains(t, err, "cannot read the certificate of cert-manager: ", tc.reason)
			require.ErrorContains(t, err, tc.want, tc.reason)
			require.ErrorContains(t, err, `mount the Secret "classbind-tls" there`, "We should say how to mend it.")
			if tc.is != nil {
				assert.ErrorIs(t, err, tc.is, tc.reason)
			}
		})
	}
}

// newSecrets starts an API server that serves only the Secrets of a namespace. It
// has none at first. The channel delivers the Secret that is created.
func newSecrets(t *testing.T, namespace string) (*rest.Config, <-chan *corev1.Secret) {
	t.Helper()
	created, handed := make(chan *corev1.Secret, 1), make(chan *corev1.Secret, 1)
	collection := "/api/v1/namespaces/" + namespace + "/secrets"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := json.NewEncoder(w)
		switch {
		case r.URL.Query().Get("fieldSelector") != "metadata.name="+v1alpha1.CASecret:
			http.Error(w, "no right to see other Secrets", http.StatusForbidden)
		case r.URL.Query().Get("sendInitialEvents") != "": // Like an API server that cannot stream a list.
			w.WriteHeader(http.StatusUnprocessableEntity)
			assert.NoError(t, answer.Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: "Invalid", Code: http.StatusUnprocessableEntity}))
		case r.URL.Query().Get("watch") == "":
			assert.NoError(t, answer.Encode(corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}))
		default:
			assert.NoError(t, http.NewResponseController(w).Flush())
			select {
			case secret := <-created:
				handed <- secret
				assert.NoError(t, answer.Encode(map[string]any{"type": "ADDED", "object": secret}))
				assert.NoError(t, http.NewResponseController(w).Flush())
			case <-r.Context().Done():
			}
			<-r.Context().Done()
		}
	})
	var stored atomic.Pointer[corev1.Secret]
	mux.HandleFunc("GET "+collection+"/"+v1alpha1.CASecret, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(stored.Load()))
	})
	mux.HandleFunc("POST "+collection, func(w http.ResponseWriter, r *http.Request) {
		secret := &corev1.Secret{}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(secret))
		secret.TypeMeta, secret.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, "2"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		assert.NoError(t, json.NewEncoder(w).Encode(secret))
		stored.Store(secret)
		created <- secret
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, handed
}

func TestSelfSigned(t *testing.T) {
	cluster, created := newSecrets(t, "own")
	source := NewSelfSigned(cluster, "own", 40*time.Hour, 100*time.Hour, service, service+".cluster.local")
	c, err := source.GetCertificate(nil)
	require.Error(t, err, "We should have no certificate before there is a CA.")
	require.Nil(t, c)
	assert.False(t, source.NeedLeaderElection(), "We should issue a certificate on every replica.")

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, source.Start(ctx), "We should end with the context, and not fail.") })
	defer running.Wait()
	defer cancel()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		c, err = source.GetCertificate(nil)
		require.NoError(collect, err)
	}, 3*time.Minute, 20*time.Millisecond)

	var secret *corev1.Secret
	select {
	case secret = <-created:
	default:
		require.NoError(t, errors.New("no Secret"), "We should keep the CA in a Secret.")
	}
	assert.Equal(t, v1alpha1.CASecret, secret.Name, "We should use the name that we have rights to.")
	block, _ := pem.Decode(secret.Data["ca.crt"])
	require.NotNil(t, block)
	ca, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.Equal(t, 100*time.Hour, ca.NotAfter.Sub(ca.NotBefore), "We should have a CA for as long as we were told.")
	assert.Equal(t, "classbind-ca", ca.Subject.CommonName, "We should say whose CA it is.")

	assert.Equal(t, 40*time.Hour+clockSkew, c.Leaf.NotAfter.Sub(c.Leaf.NotBefore),
		"We should have a certificate for as long as we were told, which API servers with slow clocks take for valid at once.")
	assert.Equal(t, []string{service, service + ".cluster.local"}, c.Leaf.DNSNames, "We should have it for all names.")
	g := NewGate(source, service, func(context.Context) ([][]byte, time.Time, error) {
		return [][]byte{secret.Data["ca.crt"]}, time.Now().Add(-time.Hour), nil
	})
	assert.NoError(t, g.advance(t.Context()), "We should issue what the API servers trust at once.")
}
