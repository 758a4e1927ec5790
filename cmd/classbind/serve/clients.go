package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// clients decides which clients the webhook server answers. With --client-ca-file, these are only clients with a certificate of that CA for
// one of the names. The zero value answers everybody.
//
// A replica also connects to itself: every 2 s for its readiness, and as the leader before it writes an entry. It has no certificate of
// that CA, and presents the one that it serves. The handshake lets it in, and the handler refuses it like every other name.
type clients struct {
	names []string
	// ownCertificate returns the certificate that this replica serves.
	ownCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ca is read again when its file changes. If the file is broken or gone, the last CA stays.
	ca *dynamiccertificates.DynamicFileCAContent
}

func (o *options) newClients(ownCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*clients, error) {
	if o.clientCAFile == "" {
		return &clients{}, nil
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA of --client-ca-file: %w", err)
	}
	return &clients{names: o.clientNames, ownCertificate: ownCertificate, ca: ca}, nil
}

// NeedLeaderElection is false: every replica reads the CA.
func (c *clients) NeedLeaderElection() bool { return false }

// Start reads the CA whenever its file changes, until the context ends.
func (c *clients) Start(ctx context.Context) error {
	if c.ca != nil {
		c.ca.Run(ctx, 1)
	}
	<-ctx.Done()
	return nil
}

// configure makes the server ask for a client certificate.
func (c *clients) configure(config *tls.Config) {
	if c.ca == nil {
		return
	}
	// Not RequireAndVerifyClientCert: it uses one pool for as long as the server runs,
	// and does not verify resumed connections, such as one from before the CA changed.
	config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, c.verify
}

// verify checks every connection before a request is read.
func (c *clients) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client has no certificate")
	}
	leaf := state.PeerCertificates[0]
	if own, err := c.ownCertificate(nil); err == nil && bytes.Equal(own.Certificate[0], leaf.Raw) {
		return nil
	}
	options, ok := c.ca.VerifyOptions()
	if !ok { // Without roots, any CA of the system would do.
		return errors.New("the CA of --client-ca-file is not read yet")
	}
	options.Intermediates = x509.NewCertPool()
	for _, i := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(i)
	}
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Errorf("the client's certificate is not one of --client-ca-file: %w", err)
	}
	return nil
}

// handler refuses a client whose certificate is for none of the names, before it reads a body. The answer closes the connection; otherwise
// the server would first read the rest of the body.
func (c *clients) handler(next http.Handler) http.Handler {
	if c.ca == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named := func(name string) bool {
			leaf := r.TLS.PeerCertificates[0] // verify wants one.
			return name == leaf.Subject.CommonName || slices.Contains(leaf.DNSNames, name)
		}
		if r.TLS == nil || !slices.ContainsFunc(c.names, named) {
			w.Header().Set("Connection", "close")
			http.Error(w, "the client's certificate is for none of the names of --client-name", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
