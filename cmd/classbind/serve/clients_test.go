package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/certs/certtest"
)

// signer is a CA of clients.
type signer struct{ *certtest.Pair }

func newSigner(t *testing.T) *signer {
	t.Helper()
	return &signer{certtest.NewCA(t)}
}

// issue signs a template as a client's certificate, unless it says another usage.
func (s *signer) issue(t *testing.T, template x509.Certificate) *tls.Certificate {
	t.Helper()
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return s.Sign(t, &template).TLS()
}

// write replaces the file with the CA, as a mounted ConfigMap does.
func (s *signer) write(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", s.PEM(), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// forName returns a template with a common name.
func forName(name string) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{CommonName: name}}
}

// serveClients starts a server for clients of a CA with the name kube-apiserver or api.example.org.
func serveClients(t *testing.T, file string, own *tls.Certificate) (*clients, *httptest.Server) {
	t.Helper()
	c, err := parse(t, "--client-ca-file="+file, "--client-name=kube-apiserver,api.example.org").newClients(
		func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil })
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(c.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // Handshakes fail on purpose.
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*own}, MinVersion: tls.VersionTLS13}
	c.configure(server.TLS)
	server.StartTLS()
	t.Cleanup(server.Close)
	return c, server
}

// ask sends a request with a certificate or, if nil, without. It resumes sessions from the cache, if there is one.
func ask(t *testing.T, server *httptest.Server, with *tls.Certificate, sessions tls.ClientSessionCache, body io.Reader) (int, string, error) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: sessions} //nolint:gosec // The test is about the client's certificate.
	if with != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return with, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text), nil
}

func TestClients(t *testing.T) {
	ca, other := newSigner(t), newSigner(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca.write(t, file)
	own := other.issue(t, x509.Certificate{DNSNames: []string{"classbind.classbind-system.svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	_, server := serveClients(t, file, own)

	for name, tc := range map[string]struct {
		reason string
		with   *tls.Certificate
		want   int // 0 for no answer
	}{
		"CommonName": {reason: "We should answer a client with an allowed name.", with: ca.issue(t, forName("kube-apiserver")), want: http.StatusOK},
		"DNSName": {
			reason: "We should answer a client with an allowed DNS name.",
			with:   ca.issue(t, x509.Certificate{DNSNames: []string{"x", "api.example.org"}}),
			want:   http.StatusOK,
		},
		"OtherName": {
			reason: "We should refuse another name from the same CA, such as a kubelet.",
			with:   ca.issue(t, forName("system:node:a")),
			want:   http.StatusForbidden,
		},
		"NoName":  {reason: "We should refuse a certificate without a name.", with: ca.issue(t, x509.Certificate{}), want: http.StatusForbidden},
		"Nobody":  {reason: "We should not answer a client without a certificate."},
		"OtherCA": {reason: "We should not answer an allowed name from another CA.", with: other.issue(t, forName("kube-apiserver"))},
		"Server": {
			reason: "We should not answer a client with a server's certificate.",
			with: ca.issue(t, x509.Certificate{
				Subject: forName("kube-apiserver").Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}),
		},
		"Expired": {
			reason: "We should not answer a client with an expired certificate.",
			with:   ca.issue(t, x509.Certificate{Subject: forName("kube-apiserver").Subject, NotAfter: time.Now().Add(-time.Minute)}),
		},
		"Own": {reason: "We should let a replica check that it serves, and refuse its requests.", with: own, want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			status, text, err := ask(t, server, tc.with, nil, strings.NewReader("a review"))
			if tc.want == 0 {
				require.Error(t, err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, status, tc.reason)
			if tc.want == http.StatusOK {
				assert.Equal(t, "a review", text)
			} else {
				assert.Contains(t, text, "--client-name", "We should say what mends it.")
			}
		})
	}
}

func TestClientsRefuseBeforeTheBody(t *testing.T) {
	ca := newSigner(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca.write(t, file)
	own := ca.issue(t, forName("classbind"))
	_, server := serveClients(t, file, own)
	body, sender := io.Pipe() // It never ends.
	defer func() { _ = sender.Close() }()
	status, _, err := ask(t, server, ca.issue(t, forName("somebody")), nil, body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusForbidden, status, "We should not wait for the body of a stranger.")
}

func TestClientsCAIsReplaced(t *testing.T) {
	before, after := newSigner(t), newSigner(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	before.write(t, file)
	c, server := serveClients(t, file, before.issue(t, forName("classbind")))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	defer func() { stop(); assert.NoError(t, <-ended) }() // It logs, and other tests replace the logger.
	old, renewed := before.issue(t, forName("kube-apiserver")), after.issue(t, forName("kube-apiserver"))

	sessions := tls.NewLRUClientSessionCache(1)
	status, _, err := ask(t, server, old, sessions, http.NoBody)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	_, _, err = ask(t, server, renewed, nil, http.NoBody)
	require.Error(t, err, "We should not answer a client of a CA that is not there yet.")

	after.write(t, file)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		status, _, err := ask(t, server, renewed, nil, http.NoBody)
		require.NoError(collect, err)
		require.Equal(collect, http.StatusOK, status)
	}, 3*time.Minute, 20*time.Millisecond, "We should read the CA again without a restart.")
	_, _, err = ask(t, server, old, nil, http.NoBody)
	require.Error(t, err, "We should not answer a client of a CA that is gone.")
	_, _, err = ask(t, server, old, sessions, http.NoBody)
	require.Error(t, err, "We should not answer a client of a CA that is gone even if it resumes a session.")

	require.NoError(t, os.WriteFile(file, []byte("no CA"), 0o600))
	require.NoError(t, os.Remove(file))
	status, _, err = ask(t, server, renewed, nil, http.NoBody)
	require.NoError(t, err, "We should keep the last CA if there is none.")
	assert.Equal(t, http.StatusOK, status)
}

func TestNewClients(t *testing.T) {
	c, err := parse(t).newClients(nil)
	require.NoError(t, err)
	config := &tls.Config{}
	c.configure(config)
	assert.Equal(t, tls.NoClientCert, config.ClientAuth, "We should ask nobody for a certificate without the flag.")
	next := http.NotFoundHandler()
	assert.NotNil(t, c.handler(next))

	file := filepath.Join(t.TempDir(), "ca.crt")
	_, err = parse(t, "--client-ca-file="+file, "--client-name=a").newClients(nil)
	require.ErrorIs(t, err, os.ErrNotExist, "We should not start without the CA.")
	require.NoError(t, os.WriteFile(file, []byte("no CA"), 0o600))
	_, err = parse(t, "--client-ca-file="+file, "--client-name=a").newClients(nil)
	require.ErrorContains(t, err, "--client-ca-file", "We should not start with a file that is no CA.")
}
