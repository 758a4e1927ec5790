// Package clientcert makes the certificate with which an API server calls webhooks,
// and the files that tell it to use that. docs/install.md has the same by hand.
package clientcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
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
	pair, err := tls.LoadX509KeyPair(f.CA(), filepath.Join(string(f), "ca.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read the CA of clients: %w", err)
	}
	ca := &signed{certificate: pair.Leaf, key: pair.PrivateKey.(*ecdsa.PrivateKey)}
	leaf, err := ca.sign(clientTemplate(name))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{leaf.certificate.Raw}, PrivateKey: leaf.key, Leaf: leaf.certificate}, nil
}

// Write a new CA and a certificate into a folder, which an API server finds at the path seen, and presents to a webhook as the kubeconfig's
// users are named: a Service's <name>.<namespace>.svc, the host:port of a URL, or * for all.
func Write(dir, seen, webhook string) (Files, error) {
	files := Files(dir)
	ca, err := (*signed)(nil).sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "classbind-clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return "", err
	}
	client, err := ca.sign(clientTemplate(Name))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder of client certificates: %w", err)
	}
	calls := fmt.Sprintf(kubeconfig, webhook, filepath.Join(seen, "client.crt"), filepath.Join(seen, "client.key"))
	return files, errors.Join(
		ca.write(dir, "ca"),
		client.write(dir, "client"),
		write(files.AdmissionConfig(), fmt.Sprintf(admission, filepath.Join(seen, "webhooks.kubeconfig"))),
		write(filepath.Join(dir, "webhooks.kubeconfig"), calls),
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

func clientTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// signed is a certificate with its key.
type signed struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// sign a template with a new key; nil signs itself.
func (s *signed) sign(template *x509.Certificate) (*signed, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	now := time.Now()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.AddDate(1, 0, 0)
	if s == nil {
		s = &signed{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), s.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate that was signed: %w", err)
	}
	return &signed{certificate, key}, nil
}

func (s *signed) write(dir, name string) error {
	key, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return fmt.Errorf("cannot encode a key: %w", err)
	}
	return errors.Join(
		write(filepath.Join(dir, name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw}))),
		write(filepath.Join(dir, name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
	)
}

func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write a file of client certificates: %w", err)
	}
	return nil
}
