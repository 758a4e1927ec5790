// Package certtest signs certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pair is a certificate and its key.
type Pair struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
	// Chain is served with the certificate. It lacks the root.
	Chain [][]byte
}

// NewCA makes a root for a day. All roots have the same name, as successive CAs of classbind do.
func NewCA(t testing.TB) *Pair {
	t.Helper()
	return (&Pair{}).Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(24 * time.Hour),
	})
}

// Sign a template. A template without times is valid from an hour ago, for an hour from now. A Pair without a key signs a root.
func (p *Pair) Sign(t testing.TB, template *x509.Certificate) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, with := p.Certificate, p.Key
	if with == nil {
		parent, with = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), with)
	require.NoError(t, err)
	c, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	signed := &Pair{Certificate: c, Key: key}
	if p.Certificate != nil {
		signed.Chain = append([][]byte{der}, p.Chain...)
	}
	return signed
}

// PEM of the certificate.
func (p *Pair) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate.Raw})
}

// TLS is the pair as a server or a client presents it.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: p.Chain, PrivateKey: p.Key, Leaf: p.Certificate}
}
