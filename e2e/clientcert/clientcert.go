// Package clientcert makes the certificate with which an API server calls webhooks,
// and the files that make it use that. docs/install.md has the same by hand.
package clientcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Name that the certificate is for.
const Name = "kube-apiserver"

// Files of a folder that Write has filled.
type Files string

// CA is the path of the CA of clients, for --client-ca-file.
func (f Files) CA() string { return filepath.Join(string(f), "ca.crt") }

// AdmissionConfig is the path of what kube-apiserver takes as --admission-control-config-file.
func (f Files) AdmissionConfig() string { return filepath.Join(string(f), "admission.yaml") }

// Flags of classbind that have it answer the API server alone.
func (f Files) Flags() []string {
	return []string{"--client-ca-file=" + f.CA(), "--client-name=" + Name}
}

// Certificate is the API server's.
func (f Files) Certificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(string(f), "client.crt"), filepath.Join(string(f), "client.key"))
}

// Issue a certificate of the CA for another name.
func (f Files) Issue(name string) (tls.Certificate, error) {
	ca, err := tls.LoadX509KeyPair(f.CA(), filepath.Join(string(f), "ca.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read the CA of clients: %w", err)
	}
	return issue(ca.Leaf, ca.PrivateKey, name)
}

// Write a new CA and a certificate into a folder, which an API server finds at the path seen, and presents to a webhook as the kubeconfig's
// users are named: a Service's <name>.<namespace>.svc, the host:port of a URL, or * for all.
func Write(dir, seen, webhook string) (Files, error) {
	files := Files(dir)
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("cannot make a key: %w", err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "classbind-clients", NotBefore: time.Now().Add(-time.Hour)}, caKey)
	if err != nil {
		return "", fmt.Errorf("cannot make a CA: %w", err)
	}
	client, err := issue(ca, caKey, Name)
	if err != nil {
		return "", err
	}
	calls := fmt.Sprintf(kubeconfig, webhook, filepath.Join(seen, "client.crt"), filepath.Join(seen, "client.key"))
	return files, errors.Join(
		os.MkdirAll(dir, 0o700),
		files.write("ca", ca, caKey),
		files.write("client", client.Leaf, client.PrivateKey),
		os.WriteFile(files.AdmissionConfig(), fmt.Appendf(nil, admission, filepath.Join(seen, "webhooks.kubeconfig")), 0o600),
		os.WriteFile(filepath.Join(dir, "webhooks.kubeconfig"), []byte(calls), 0o600),
	)
}

const admission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: &webhooks
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %q
- name: ValidatingAdmissionWebhook
  configuration: *webhooks
`

const kubeconfig = `apiVersion: v1
kind: Config
users:
- name: %q
  user: {client-certificate: %q, client-key: %q}
`

// issue a certificate with a new key.
func issue(ca *x509.Certificate, caKey crypto.PrivateKey, name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot make a key: %w", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}, ca, key.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot sign a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

func (f Files) write(name string, certificate *x509.Certificate, key crypto.PrivateKey) error {
	encoded, err := certutil.EncodeCertificates(certificate)
	if err != nil {
		return err
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	path := filepath.Join(string(f), name)
	return errors.Join(os.WriteFile(path+".crt", encoded, 0o600), os.WriteFile(path+".key", encodedKey, 0o600))
}
