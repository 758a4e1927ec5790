// Package register is the command that prints the registrations of a kind of claims and its kinds of classes, from their schemas. command
// finds the kinds, in a cluster or in files. place finds where a claim has its reference. print writes the registrations.
package register

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/openapi"
)

// maxClassKinds is how many a ClaimKind may name, by its schema.
const maxClassKinds = 64

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
	w, err := o.catalog(c)
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

type kind struct {
	cluster.Resource
	name string // <plural>.<group>
}

func (k kind) String() string { return k.name }

// catalog has kinds, and their schemas.
type catalog struct {
	kinds  []kind
	schema func(context.Context, kind) (*openapi.Schema, error)
	// registered are the names of ClassKinds that the cluster has.
	registered map[string]bool
	// absent says what helps if a kind is not there.
	absent string
}

func (o *options) catalog(command *cobra.Command) (catalog, error) {
	if len(o.files) > 0 {
		return o.filesCatalog(command)
	}
	config, err := o.cluster.Config(command.ErrOrStderr(), ", or files of CRDs with --filename")
	if err != nil {
		return catalog{}, err
	}
	c, err := world.Connect(config)
	if err != nil {
		return catalog{}, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return catalog{}, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	lists, err := client.ServerPreferredResources()
	if len(lists) == 0 { // One that is incomplete may have what is asked for.
		return catalog{}, fmt.Errorf("cannot list the kinds of the cluster: %w", err)
	}
	_, classKinds, err := c.Registrations(command.Context())
	switch {
	case apierrors.IsForbidden(err):
		_, _ = fmt.Fprintln(command.ErrOrStderr(), "note: ClassKinds that the cluster has are printed, too, because", err)
	case err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err): // Without classbind, there are none.
		return catalog{}, err
	}
	w := catalog{absent: "install its CRD", registered: map[string]bool{}}
	for _, k := range classKinds {
		w.registered[k.Name] = true
	}
	for _, list := range lists {
		version, _ := schema.ParseGroupVersion(list.GroupVersion) // It was served under it.
		for _, r := range list.APIResources {
			name := schema.GroupResource{Group: version.Group, Resource: r.Name}.String()
			aliases := strings.Join(append(r.ShortNames, r.SingularName), ",")
			w.kinds = append(w.kinds, kind{name: name, Resource: cluster.Resource{
				GroupVersionKind: version.WithKind(r.Kind), Namespaced: r.Namespaced, Aliases: aliases,
			}})
		}
	}
	w.schema = func(ctx context.Context, k kind) (*openapi.Schema, error) {
		if crd, err := c.Kinds.CRD(ctx, k.name); err == nil {
			return openapi.OfCRD(crd, k.Version)
		}
		document, err := c.Kinds.OpenAPI(ctx, k.GroupVersion())
		if err != nil {
			return nil, err
		}
		return openapi.OfDocument(document, k.GroupVersionKind)
	}
	return w, nil
}

func (o *options) filesCatalog(c *cobra.Command) (catalog, error) {
	crds, err := world.ReadCRDs(c.Context(), c.InOrStdin(), c.ErrOrStderr(), o.files)
	if err != nil {
		return catalog{}, err
	}
	w := catalog{absent: "name the file of its CRD with --filename, or leave out --filename for a kind of Kubernetes itself"}
	text := map[string][]byte{}
	for _, crd := range crds {
		w.kinds = append(w.kinds, kind{crd.Resource, crd.Name})
		text[crd.Name] = crd.JSON
	}
	w.schema = func(_ context.Context, k kind) (*openapi.Schema, error) {
		return openapi.OfCRD(text[k.name], k.Version)
	}
	return w, nil
}

func find(w catalog, arg string) (kind, error) {
	found, known := cluster.Find(arg, w.kinds, kind.String, func(k kind) (string, cluster.Resource) { return k.name, k.Resource })
	switch {
	case len(found) > 1:
		names := make([]string, len(found))
		for i, k := range found {
			names[i] = k.name
		}
		return kind{}, fmt.Errorf("%q: may be any of %s: name one in full", arg, strings.Join(slices.Sorted(slices.Values(names)), ", "))
	case len(found) == 1:
		return found[0], nil
	}
	return kind{}, fmt.Errorf("%q: there is no such kind%s", arg, cmp.Or(near.Meant(arg, known), ": "+w.absent))
}
