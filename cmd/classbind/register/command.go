// Package register is the command that prints the registrations of a kind of claims and its kinds of classes, from their schemas. kind
// finds the kinds, in a cluster or in files. place finds where a claim has its reference. print writes the registrations.
package register

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/connect"
)

// maxClassKinds is how many a ClaimKind may name, by its schema.
const maxClassKinds = 64

// options are the flags.
type options struct {
	files   []string
	path    string
	cluster connect.Flags
}

// NewCommand returns the command register.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "register CLAIM CLASS...",
		Short: "Print the registrations of kinds, from their schemas",
		Long: `Print the registrations of a kind of claims and its kinds of classes: a ClaimKind, the
ClassKinds, and the ClusterRole that lets classbind read the classes. A ClassKind that
the cluster has is left out.

Name kinds as in kubectl. The command finds the field with the reference, and its form,
in the schemas of the cluster, or in the CRDs in files. If the result is a guess, a
comment says so and names the other fields. Read the output before you apply it. The
command changes nothing.

A schema does not list labels or annotations. If the reference is in one, set
spec.reference yourself.`,
		Example: `  # Bind Certificates to ClusterIssuers only:
  classbind register certificates.cert-manager.io ClusterIssuer > kinds.yaml

  # Without a cluster, from the CRDs in a folder:
  classbind register Backup BackupStorageLocation -f velero/crds

  # Name the field yourself:
  classbind register PersistentVolumeClaim StorageClass --path .spec.storageClassName`,
		RunE: o.run,
	}
	c.Flags().StringArrayVarP(&o.files, "filename", "f", nil,
		"`file` of CRDs, or folder with all folders in it; - is standard input; may be repeated. The command then needs no cluster")
	connect.CompleteFiles(c, "filename")
	c.Flags().StringVar(&o.path, "path", "", "`field` that has the reference, such as .spec.classRef")
	o.cluster.Add(c)
	return c
}

func (o *options) run(c *cobra.Command, args []string) error {
	if len(args) < 2 || len(args) > 1+maxClassKinds {
		return errors.New("name one kind of claims, and then its kinds of classes, such as classbind register Gateway GatewayClass")
	}
	w, err := o.world(c)
	if err != nil {
		return err
	}
	kinds := make([]kind, len(args))
	var errs []error
	for i, arg := range args {
		kinds[i], err = find(w, arg)
		if err == nil && slices.ContainsFunc(kinds[:i], func(k kind) bool { return k.name == kinds[i].name }) {
			err = fmt.Errorf("%q: %s is named already", arg, kinds[i].name)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s, err := w.schema(c.Context(), kinds[0])
	if err != nil {
		return fmt.Errorf("cannot read the schema of %s: %w", kinds[0].name, err)
	}
	places, err := o.places(s, kinds[0], kinds[1:])
	if err != nil {
		return err
	}
	text, err := manifest(s, kinds[0], kinds[1:], places, w.registered)
	if err == nil {
		_, err = c.OutOrStdout().Write([]byte(text))
	}
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}
