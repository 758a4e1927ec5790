package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
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

// TestCertificatesAreBackdated has the authority make a CA, and issue a leaf, on an API server that stores one Secret.
func TestCertificatesAreBackdated(t *testing.T) {
	var mu sync.Mutex
	var stored []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			stored, _ = io.ReadAll(r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(stored)
		case r.URL.Query().Get("watch") != "":
			http.Error(w, "", http.StatusServiceUnavailable) // It lists again.
		case r.URL.Query().Get("fieldSelector") != "":
			_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"SecretList","metadata":{"resourceVersion":"1"},"items":[%s]}`, stored)
		default:
			_, _ = w.Write(stored)
		}
	}))
	defer server.Close()
	s := NewSelfSigned(&rest.Config{Host: server.URL, QPS: -1}, "classbind-system", time.Hour, 24*time.Hour, service)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- s.Start(ctx) }()
	var leaf *tls.Certificate
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		leaf, err = s.GetCertificate(nil)
		require.NoError(c, err)
		require.NotNil(c, leaf)
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	secret := &corev1.Secret{}
	mu.Lock()
	defer mu.Unlock()
	require.NoError(t, json.Unmarshal(stored, secret))
	ca, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	require.NoError(t, err)
	assert.Equal(t, secret.Data["tls.crt"], secret.Data["ca.crt"], "We should publish the CA that signs.")
	for name, c := range map[string]*x509.Certificate{"CA": ca.Leaf, "leaf": leaf.Leaf} {
		// A certificate has whole seconds.
		assert.WithinRange(
			t, c.NotBefore, began.Add(-clockSkew-2*time.Second), time.Now().Add(-clockSkew),
			"We should backdate the %s for API servers with slow clocks.", name,
		)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: service, CurrentTime: began.Add(-20 * time.Second)})
	require.NoError(t, err, "An API server whose clock is 20 s slow should trust both.")
}
