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

	"github.com/classbind/classbind/api/v1beta1"
)

// mounted writes a Secret with a certificate into a folder.
func mounted(t *testing.T, c *tls.Certificate) (dir string) {
	t.Helper()
	dir = t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	var chain []byte
	for _, der := range c.Certificate {
		chain = append(chain, encoded(der)...)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), chain, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return dir
}

// TestCertManager reads what is mounted. What changes there is for controller-runtime to see.
func TestCertManager(t *testing.T) {
	first := newIssuer(t).intermediate(t).issue(t, service, time.Hour)
	source, err := NewCertManager(mounted(t, first))
	require.NoError(t, err)
	got, err := source.GetCertificate(nil)
	require.NoError(t, err)
	assert.Equal(t, first.Certificate, got.Certificate, "We should have it before we begin, with its intermediate.")
	require.NotNil(t, got.Leaf, "We should know until when it is valid.")
	assert.False(t, source.NeedLeaderElection(), "We should read it on every replica.")

	_, err = NewCertManager(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, fs.ErrNotExist, "We should not start without a certificate.")
	require.ErrorContains(t, err, "cannot read the certificate of cert-manager: ")
	require.ErrorContains(t, err, filepath.Join("absent", "tls.crt"), "We should name the file that is not there.")
	require.ErrorContains(t, err, `mount the Secret "classbind-tls" there`, "We should say how to fix it.")
}

// newSecrets starts an API server that serves only the Secrets of a namespace. It has none at first. The channel delivers the Secret that
// is created.
func newSecrets(t *testing.T, namespace string) (*rest.Config, <-chan *corev1.Secret) {
	t.Helper()
	created, handed := make(chan *corev1.Secret, 1), make(chan *corev1.Secret, 1)
	collection := "/api/v1/namespaces/" + namespace + "/secrets"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+collection, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := json.NewEncoder(w)
		switch {
		case r.URL.Query().Get("fieldSelector") != "metadata.name="+v1beta1.CASecret:
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
	mux.HandleFunc("GET "+collection+"/"+v1beta1.CASecret, func(w http.ResponseWriter, _ *http.Request) {
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
	assert.Equal(t, v1beta1.CASecret, secret.Name, "We should use the name that we have rights to.")
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
