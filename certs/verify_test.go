package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestVerify(t *testing.T) {
	const name = "example.com" // in the certificate of httptest, which signs itself
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // Handshakes fail on purpose.
	server.StartTLS()
	defer server.Close()
	serving, ca := server.Listener.Addr().String(), encoded(server.Certificate().Raw)
	stopped := httptest.NewUnstartedServer(http.NotFoundHandler())
	silent := stopped.Listener.Addr().String()
	stopped.Close()

	const noCA = "the CA has not been made yet"
	for testName, tc := range map[string]struct {
		reason        string
		address, name string
		ca            []byte
		want          string // in the error
	}{
		"Good":          {reason: "We should trust a server as the API server would.", address: serving, name: name, ca: ca},
		"OneOfTwoCAs":   {reason: "We should trust either CA while one replaces the other.", address: serving, name: name, ca: append(newIssuer(t).PEM(), ca...)},
		"WrongName":     {"We should refuse a certificate for another name, as the API server would.", serving, service, ca, "example.com, not " + service},
		"WrongCA":       {"We should refuse a certificate that another CA has signed.", serving, name, newIssuer(t).PEM(), x509.UnknownAuthorityError{}.Error()},
		"NoCA":          {"We should trust nobody without a CA, not even a CA of the system.", serving, name, nil, noCA},
		"NotPEM":        {"We should not accept garbage as a CA.", serving, name, []byte("PEM"), noCA},
		"NobodyListens": {"We should say that nobody listens.", silent, name, ca, syscall.ECONNREFUSED.Error()},
	} {
		t.Run(testName, func(t *testing.T) {
			gate := NewGate(nil, tc.name, nil)
			gate.served.Store(newIssuer(t).issue(t, tc.name, time.Hour))
			err := gate.Verify(t.Context(), tc.address, tc.ca)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}

// TestCheckServing uses a server that lets in only clients with its own certificate.
func TestCheckServing(t *testing.T) {
	own := newIssuer(t).issue(t, service, time.Hour)
	complaints := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(writerFunc(func(p []byte) (int, error) {
		complaints <- string(p)
		return len(p), nil
	}), "", 0)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{*own}, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, own.Leaf.Raw) {
				return errors.New("a stranger")
			}
			return nil
		},
	}
	server.StartTLS()
	address := server.Listener.Addr().String()

	gate := NewGate(nil, service, nil)
	require.ErrorIs(t, gate.CheckServing(t.Context(), address), errNoCertificate, "We should not be served before there is a certificate.")
	gate.served.Store(own)
	require.NoError(t, gate.CheckServing(t.Context(), address), "We should not care who signed it.")
	server.Close()
	require.ErrorIs(t, gate.CheckServing(t.Context(), address), syscall.ECONNREFUSED, "We should say that nobody listens.")
	close(complaints)
	for c := range complaints {
		assert.NotContains(t, c, "client didn't provide a certificate", "We should present a certificate, or each check would be logged.")
		assert.NotContains(t, c, "a stranger", "We should present the one that is served.")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
