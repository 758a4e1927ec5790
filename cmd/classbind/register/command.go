// Package register is the command that prints the registrations of a kind of claims and its kinds of classes, from their schemas. command
// finds the kinds, in a cluster or in files, and builtin those of Kubernetes. place finds where a claim has its reference. print writes the
// registrations.
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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/kinds"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// maxClassKinds is how many a ClaimKind may name, by its schema.
const maxClassKinds = 64

type options struct {
	recursive               bool
	output                  output.Format
	path, label, annotation string
	cluster                 connect.Flags
}

// named is the place of the reference that the user names, empty if it is to be found.
func (o *options) named() (v1beta1.Place, error) {
	p := v1beta1.Place{Path: v1beta1.FieldPath(o.path), Label: v1beta1.MetadataKey(o.label), Annotation: v1beta1.MetadataKey(o.annotation)}
	if key := o.label + o.annotation; key != "" {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			shown := truncate.String(key, v1beta1.MaxShownBytes)
			return p, fmt.Errorf("%q is no key of a label or an annotation: %s", shown, strings.Join(errs, "; "))
		}
	}
	return p, nil
}

// NewCommand returns the command register.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "register CLAIM CLASS...",
		Short: "Print the registrations of kinds, from their schemas",
		Long: `Print the registrations of a kind of claims and its kinds of classes: a ClaimKind, the
ClassKinds, and the ClusterRole that lets classbind read the classes.

Name kinds as in kubectl. The command finds the field with the reference, and its form,
in the schemas of the cluster, or in the CRDs in files. The kinds of Kubernetes itself
need no CRD. Read the output before you apply it. The command changes nothing.

A field counts if it is called as the Kind of the class, or as its last words, or if its
schema names the Kind. If that is a guess, a comment says so. If no field counts, or no
form of reference can write it, the command names what stands in the way. Name the field
with --path. A schema does not list labels or annotations: name them with --label or
--annotation.

The exit status is 0 if the registrations are printed. It is 1 if the claims cannot be
registered like this, or are already. It is 2 if the command fails.

A ClassKind that is registered already, in the cluster or in the files, is left out. The
ClaimKind gets another name if its own is taken.`,
		Example: `  # From the schemas of the cluster:
  classbind register PersistentVolumeClaim StorageClass > kinds.yaml

  # Without a cluster, from the CRDs in a folder:
  classbind register PostgreSQLInstance RDSInstanceClass --offline deploy/samples/crossplane/crds

  # Name the field, the label or the annotation yourself:
  classbind register PersistentVolumeClaim StorageClass --path .spec.storageClassName
  classbind register jobs.batch PriorityClass --label example.org/class`,
		RunE: o.run,
	}
	o.cluster.AddOffline(c, "CRDs and registrations")
	_ = c.MarkFlagFilename("offline", world.Extensions...) // It fails only for an unknown flag.
	world.AddRecursive(c, &o.recursive)
	o.output.AddManifests(c)
	c.Flags().StringVar(&o.path, "path", "", "`field` that has the reference, such as .spec.classRef")
	c.Flags().StringVar(&o.label, "label", "", "`key` of the label that has the name of the class")
	c.Flags().StringVar(&o.annotation, "annotation", "", "`key` of the annotation that has the name of the class")
	c.MarkFlagsMutuallyExclusive("path", "label", "annotation")
	o.cluster.Add(c)
	return c
}

func (o *options) run(c *cobra.Command, args []string) error {
	if len(args) < 2 || len(args) > 1+maxClassKinds {
		return errors.New("name one kind of claims, and then its kinds of classes, such as classbind register Gateway GatewayClass")
	}
	named, err := o.named()
	if err := errors.Join(err, connect.Kinds(args), connect.Validate(c.Flags()), world.CheckStdin(o.cluster.Offline),
		o.output.ValidateManifests()); err != nil {
		return err
	}
	w, err := o.catalog(c)
	if err != nil {
		return err
	}
	all := make([]kind, len(args))
	var errs []error
	for i, arg := range args {
		all[i], err = find(w, arg)
		if err == nil && slices.ContainsFunc(all[:i], func(k kind) bool { return k.name == all[i].name }) {
			err = fmt.Errorf("%q: %s is named already", arg, all[i].name)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s := search{of: all[0], classes: all[1:]}
	if s.schema, err = w.schema(c.Context(), s.of); err != nil {
		return fmt.Errorf("cannot read the schema of %s: %w", s.of.name, err)
	}
	places, err := s.places(named)
	if err != nil {
		return exit.Finding(err)
	}
	k := &v1beta1.ClaimKind{}
	k.Name, k.Spec.Reference = s.of.name, places[0].reference()
	if err = cluster.CheckBindable(k); err != nil {
		return exit.Finding(fmt.Errorf("%s cannot be registered with its reference at %s: %w", s.of.name, places[0], err))
	}
	name, err := w.nameFor(s.of.name, places[0].Place)
	if err != nil {
		return err
	}
	text, err := s.manifest(name, places, w.classKinds)
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return o.output.PrintManifests(c.OutOrStdout(), text)
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
	// claimKinds and classKinds are registered already.
	claimKinds []v1beta1.ClaimKind
	classKinds []v1beta1.ClassKind
	// absent says what helps if a kind is not there.
	absent string
}

func (o *options) catalog(command *cobra.Command) (catalog, error) {
	if len(o.cluster.Offline) > 0 {
		return o.filesCatalog(command)
	}
	config, err := o.cluster.Config(command.ErrOrStderr(), ", or files of CRDs with --offline")
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
	w := catalog{absent: "install its CRD"}
	w.claimKinds, w.classKinds, err = c.Registrations(command.Context())
	switch {
	case apierrors.IsForbidden(err):
		_, _ = fmt.Fprintln(command.ErrOrStderr(), "note: the output may replace what the cluster has registered, because", err)
	case err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err): // Without classbind, there are none.
		return catalog{}, err
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
	files := world.Files{In: c.InOrStdin(), Progress: c.ErrOrStderr(), Recursive: o.recursive}
	read, err := world.ReadKinds(c.Context(), files, o.cluster.Offline)
	if err != nil {
		return catalog{}, err
	}
	w := catalog{absent: "name the file of its CRD with --offline", claimKinds: read.ClaimKinds, classKinds: read.ClassKinds}
	for _, crd := range read.CRDs {
		w.kinds = append(w.kinds, kind{crd.Resource, crd.Name})
	}
	for _, gvk := range builtIn() {
		if k := kindOf(gvk); read.CRDs[k.name].Name == "" {
			w.kinds = append(w.kinds, k)
		}
	}
	w.schema = func(_ context.Context, k kind) (*openapi.Schema, error) {
		if crd, ok := read.CRDs[k.name]; ok {
			return openapi.OfCRD(crd.JSON, k.Version)
		}
		return schemaOf(k.GroupVersionKind)
	}
	return w, nil
}

// nameFor a ClaimKind of a resource: the resource, unless a ClaimKind with another reference has this name, or a preset does. It is a
// finding that there is none.
func (w catalog) nameFor(resource string, reference v1beta1.Place) (string, error) {
	name := resource
	taken := map[string]v1beta1.Place{}
	preset, err := kinds.ClaimKind(resource)
	if err != nil {
		return "", err
	}
	if preset != nil {
		taken[resource] = preset.Spec.Reference.Main()
	}
	for _, k := range w.claimKinds {
		if k.Resource() == resource && k.Spec.Reference.Main() == reference {
			return "", exit.Finding(fmt.Errorf("the ClaimKind %q registers this reference of %s already: "+
				"add the kinds of classes to its spec.classes.kinds, or delete it first", k.Name, resource))
		}
		taken[k.Name] = k.Spec.Reference.Main()
		if k.Resource() == resource { // Two ClaimKinds of a resource need two annotations for selectors, as that of another name has.
			taken[resource] = k.Spec.Reference.Main()
		}
	}
	if at, ok := taken[name]; ok && at != reference {
		names := reference.Names()
		last := names[len(names)-1]
		last = last[strings.LastIndex(last, "/")+1:]
		name = strings.ToLower(strings.ReplaceAll(last, "_", "-")) + "." + resource
	}
	if _, ok := taken[name]; ok && name != resource {
		return "", exit.Finding(fmt.Errorf("the names %s and %s are taken by other ClaimKinds: write the ClaimKind under another name, "+
			"with spec.claims.resource: %[1]s", resource, name))
	}
	return name, nil
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
