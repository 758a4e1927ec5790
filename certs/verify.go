package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// dialTimeout limits a connection to our own server.
const dialTimeout = 10 * time.Second

// Verify connects to this replica at address and returns an error unless the API server would trust it: by our name, with only the given
// CA, in PEM.
func (g *Gate) Verify(ctx context.Context, address string, ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the CA has not been made yet")
	}
	return g.dial(ctx, address, &tls.Config{RootCAs: roots})
}

// CheckServing returns an error unless some server speaks TLS at address.
func (g *Gate) CheckServing(ctx context.Context, address string) error {
	return g.dial(ctx, address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Verify checks who it is.
}

// dial presents the served certificate. With --client-ca-file, the server recognises its own replica by it, and would log each dial without
// it as an attack.
func (g *Gate) dial(ctx context.Context, address string, config *tls.Config) error {
	config.ServerName, config.MinVersion = g.Name, tls.VersionTLS13
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return g.GetCertificate(nil) }
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot connect to %s as %q: %w", address, g.Name, err)
	}
	return connection.Close()
}
