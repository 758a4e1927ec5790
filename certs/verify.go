package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// dialTimeout of a look at our own server.
const dialTimeout = 10 * time.Second

// Verify that a server, which is this replica, is one that the API server would
// trust: by our name, with a CA in PEM alone.
func (g *Gate) Verify(ctx context.Context, address string, ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the CA has not been made yet")
	}
	return g.dial(ctx, address, &tls.Config{RootCAs: roots})
}

// Served is an error as long as nobody speaks TLS there, whoever that is.
func (g *Gate) Served(ctx context.Context, address string) error {
	return g.dial(ctx, address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Verify tells who it is.
}

// dial presents the certificate that is served, by which a server that answers
// known clients alone knows this replica: else it would log each dial as an attack.
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
