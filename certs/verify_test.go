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

	is := func(target error) func(*testing.T, error, string) {
		return func(t *testing.T, err error, reason string) {
			t.Helper()
			require.ErrorIs(t, err, target, reason)
		}
	}
	for testName, tc := range map[string]struct {
		reason        string
		address, name string
		ca            []byte
		want          func(t *testing.T, err error, reason string)
	}{
		"Good": {
			reason:  "We should trust a server as the API server would.",
			address: serving, name: name, ca: ca,
			want: is(nil),
		},
		"OneOfTwoCAs": {
			reason:  "We should trust either CA while one replaces the other.",
			address: serving, name: name, ca: append(newIssuer(t).PEM(), ca...),
			want: is(nil),
		},
		"WrongName": {
			reason:  "We should refuse a certificate for another name, as the API server would.",
			address: serving, name: "classbind.classbind-system.svc", ca: ca,
			want: func(t *testing.T, err error, reason string) {
				t.Helper()
				target := x509.HostnameError{}
				require.ErrorAs(t, err, &target, reason)
				assert.Equal(t, "classbind.classbind-system.svc", target.Host, reason)
			},
		},
		"WrongCA": {
			reason:  "We should refuse a certificate that another CA has signed.",
			address: serving, name: name, ca: newIssuer(t).PEM(),
			want: func(t *testing.T, err error, reason string) {
				t.Helper()
				require.ErrorAs(t, err, &x509.UnknownAuthorityError{}, reason)
			},
		},
		"NoCA": {
			reason:  "We should trust nobody without a CA, not even a CA of the system.",
			address: serving, name: name,
			want: func(t *testing.T, err error, reason string) {
				t.Helper()
				require.ErrorContains(t, err, "the CA has not been made yet", reason)
			},
		},
		"NotPEM": {
			reason:  "We should not accept garbage as a CA.",
			address: serving, name: name, ca: []byte("PEM"),
			want: func(t *testing.T, err error, reason string) {
				t.Helper()
				require.ErrorContains(t, err, "the CA has not been made yet", reason)
			},
		},
		"NobodyListens": {
			reason:  "We should say that nobody listens.",
			address: silent, name: name, ca: ca,
			want: is(syscall.ECONNREFUSED),
		},
	} {
		t.Run(testName, func(t *testing.T) {
			gate := NewGate(nil, tc.name, nil)
			gate.served.Store(newIssuer(t).issue(t, tc.name, time.Hour))
			tc.want(t, gate.Verify(t.Context(), tc.address, tc.ca), tc.reason)
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
