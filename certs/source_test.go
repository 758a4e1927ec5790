package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
