// Command chooser serves node groups by price, as the package says: the cheapest first. It reads the prices again each second.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/e2e/chooser"
	"github.com/classbind/classbind/e2e/command"
)

func main() {
	s := &chooser.Server{}
	address := pflag.String("listen", "localhost:8443", "`address` to listen on, HOST:PORT")
	prices := pflag.String("prices", "prices.yaml", "`file` with the price of an hour for each instance type, in YAML")
	certificate := pflag.String("tls-cert-file", "tls.crt", "`file` with the certificate")
	key := pflag.String("tls-private-key-file", "tls.key", "`file` with its key")
	clients := pflag.String("client-ca-file", "ca.crt", "`file` with the CAs of those who may call")
	rank := pflag.String("rank", "Good", "`behaviour` of Rank, as the package chooser names it")
	status := pflag.String("status", "Good", "`behaviour` of Status")
	pflag.DurationVar(&s.ValidFor, "valid-for", time.Minute, "`time` for which answers are valid; 0, they are not cached")
	pflag.Parse()
	command.Main(func(ctx context.Context) (err error) {
		if s.Certificate, err = tls.LoadX509KeyPair(*certificate, *key); err != nil {
			return fmt.Errorf("cannot read the certificate: %w", err)
		}
		bundle, err := os.ReadFile(*clients)
		if err != nil {
			return fmt.Errorf("cannot read the CAs of clients: %w", err)
		}
		if s.Clients = x509.NewCertPool(); !s.Clients.AppendCertsFromPEM(bundle) {
			return fmt.Errorf("%s has no certificate", *clients)
		}
		if err := errors.Join(s.Behave(*rank, *status), refresh(s, *prices)); err != nil {
			return err
		}
		if err := s.Start(*address); err != nil {
			return err
		}
		turn := time.NewTicker(time.Second)
		defer turn.Stop()
		for {
			select {
			case <-ctx.Done():
				return s.Stop()
			case <-turn.C:
			}
			if err := refresh(s, *prices); err != nil { // The old prices stay.
				fmt.Fprintln(os.Stderr, "error:", err)
			}
		}
	})
}

func refresh(s *chooser.Server, file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // The user names it.
	if err != nil {
		return fmt.Errorf("cannot read the prices: %w", err)
	}
	prices := chooser.Prices{}
	if err := yaml.UnmarshalStrict(text, &prices); err != nil {
		return fmt.Errorf("cannot read the prices: %w", err)
	}
	return s.Refresh(prices)
}
