// Package chooser is the command that checks a chooser of classes: command connects to it as classbind does, and check asks it and judges
// the answers.
package chooser

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/controller/chooser"
	"github.com/classbind/classbind/selector/truncate"
)

// connectTimeout is for the connection, until its first answer, and minTimeout the shortest choice.external.timeout of a ClaimKind.
const connectTimeout, minTimeout = 5 * time.Second, 10 * time.Millisecond

type options struct {
	ca, certificate, key, serverName string
	claim                            string
	classes                          []string
	timeout                          time.Duration
	output                           output.Format
}

// NewCommand returns the command chooser, with its command check.
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "chooser",
		Short: "Check a program that ranks classes for classbind",
		Args:  cobra.NoArgs, // Without RunE, cobra would print help for a misspelt command, and succeed.
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCheckCommand())
	return c
}

func newCheckCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "check ADDRESS",
		Short: "Check whether a chooser keeps the contract",
		Long: `Check whether a chooser keeps the contract of choice.external of a ClaimKind.

The command connects to ADDRESS, HOST:PORT, as classbind does: with mutual TLS. It asks
real questions and strange ones, all of them as dry runs, and prints what holds, line by
line. Give it a claim and classes that your chooser understands, as JSON objects with the
fields that choice.external.fields names.

The exit status is 1 if something does not hold, and 2 if the command could not connect.`,
		Example: `  # As classbind calls it from inside the cluster:
  classbind chooser check chooser.prices.svc:8443 --ca-file ca.crt --cert-file tls.crt --key-file tls.key \
    --claim '{"spec":{"cpus":4}}' --class '{"spec":{"instanceType":"m5.large","cpus":2}}'

  # Through a forwarded port:
  classbind chooser check localhost:8443 --server-name chooser.prices.svc \
    --ca-file ca.crt --cert-file tls.crt --key-file tls.key -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	fs := c.Flags()
	fs.StringVar(&o.ca, "ca-file", "", "`file` with the CAs of the chooser's certificate, in PEM; without it those of this machine")
	fs.StringVar(&o.certificate, "cert-file", "", "`file` with the client certificate, in PEM")
	fs.StringVar(&o.key, "key-file", "", "`file` with its key, in PEM")
	connect.CompleteFiles(c, "ca-file", "cert-file", "key-file")
	fs.StringVar(&o.serverName, "server-name", "", "`name` in the chooser's certificate; without it the host of the address")
	fs.StringVar(&o.claim, "claim", "{}", "the claim of the questions, as `JSON`")
	fs.StringArrayVar(&o.classes, "class", []string{"{}"}, "a class of the questions, as `JSON`; repeat it for several")
	fs.DurationVar(&o.timeout, "timeout", v1beta1.DefaultChooserTimeout, "`time` within which Rank must answer, as choice.external.timeout")
	o.output.Add(c)
	return c
}

func (o *options) run(c *cobra.Command, address string) error {
	if err := o.validate(); err != nil {
		return err
	}
	config, err := o.tls()
	if err != nil {
		return err
	}
	conn, err := chooser.Dial(address, func() (*tls.Config, error) { return config.Clone(), nil })
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	// It waits for the connection, as no claim does.
	ctx, cancel := context.WithTimeout(c.Context(), connectTimeout)
	defer cancel()
	client := chooserv1.NewChooserClient(conn)
	_, err = client.Status(ctx, &chooserv1.StatusRequest{}, grpc.WaitForReady(true))
	if err != nil && conn.GetState() != connectivity.Ready {
		return fmt.Errorf("cannot connect to %s: %w", address, err)
	}
	report := &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}}
	if report.Findings, err = (&check{client: client, options: o}).all(c.Context()); err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), report, report.table); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Findings, func(f finding) bool { return !f.Holds }) {
		return exit.Finding(errors.New("the chooser does not keep the contract"))
	}
	return nil
}

// validate returns all errors in the flags at once.
func (o *options) validate() error {
	errs := []error{o.output.Validate()}
	for i, text := range append([]string{o.claim}, o.classes...) {
		if object := map[string]any(nil); json.Unmarshal([]byte(text), &object) != nil || object == nil {
			flag := []string{"--claim", "--class"}[min(i, 1)]
			errs = append(errs, fmt.Errorf("%s=%q: must be a JSON object", flag, truncate.String(text, v1beta1.MaxShownBytes)))
		}
	}
	if o.timeout < minTimeout || o.timeout > v1beta1.MaxChooserTimeout {
		errs = append(errs, fmt.Errorf("--timeout=%q: must be from %s to %s", o.timeout, minTimeout, v1beta1.MaxChooserTimeout))
	}
	return errors.Join(errs...)
}

func (o *options) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the client certificate: %w; name it with --cert-file and --key-file", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ServerName: o.serverName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}
	if o.ca == "" {
		return config, nil
	}
	bundle, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, fmt.Errorf("cannot read --ca-file: %w", err)
	}
	if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--ca-file=%s has no certificate", o.ca)
	}
	return config, nil
}
