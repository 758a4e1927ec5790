package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// Verify connects to a server as the API server would: by a name, trusting a CA
// in PEM alone.
func Verify(ctx context.Context, address, name string, ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the CA has not been made yet")
	}
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot connect to %s as %q: %w", address, name, err)
	}
	return connection.Close()
}
