// Package explain is the command that says which class a claim gets, and why. schema finds typing errors, before answer has the server's
// Decider decide, and has explains the class that a claim has. settings are those of --set, and access those of --requester. report is the
// result for programs, and table prints it for people. classes is the command that explains a claim which asks for any class. lint finds
// what is wrong in files, and marks with annotations. rules has what may be wrong, and check is the command that prints it.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
)

// options are the flags of explain, and of classes, which has some of them.
type options struct {
	files     []string
	claims    []connect.Name
	recursive bool
	with      []string
	set       []string
	as        identity
	output    output.Format
	unbound   bool
	cluster   connect.Flags

	settings world.Settings // settings are those of set.
	fresh    func() uint64  // fresh returns a random number.
}

// NewCommand returns the command explain.
func NewCommand() *cobra.Command { return newCommand(rand.Uint64) }

const (
	long = `Show which class a claim gets, and why: the candidates with their odds, the
classes that were dropped, and the classes that one label excluded. It changes
nothing.

A claim comes from a file, or from the cluster as KIND/NAME or KIND NAME, where KIND is
any name that kubectl takes. For a claim of the cluster that has a class, explain says
which, whether the claim would get the same class today, and why. A claim in a file that
names a class is left alone, as by the server. --unbound explains a claim without those
parts of its class reference that classbind wrote. If the managedFields of the claim do
not show who wrote them, a note says so.

Registrations and classes come from one of these:

  default          the cluster: you need the right to list them
  --offline FILES  only the files: the command needs no cluster
  --with FILES     the cluster, as if you had applied the files to it: their objects
                   are added, or replace the cluster's objects of the same name

explain refuses a claim in a file if its kind or version is not served, or if it has
a field that the CRD lacks. To check a claim against the whole schema, use
kubectl-validate.

--set PATH=VALUE sets a field that an expression sees: a label or an annotation
of the claim's namespace, a field of a related object, or who creates the claim.
After labels, annotations or extra, the rest of the path is the whole key.
Elsewhere, write a dot in a name as \. A value of a related object may be JSON, but
no object. To set several groups, repeat the flag.

If the right of the creator to use a class counts (classes.use), that is your right, or
that of --requester with the groups of --requester-group and system:authenticated.
To ask about anyone but yourself, you need the right to create subjectaccessreviews.

The exit status is 0 if every claim is bound or left alone. It is 1 if a claim gets no
class, or if a claim of the cluster is stored without one. It is 1, too, if the files
do not show whether the kind of a claim is registered. It is 2 if a claim is malformed
or undecided, or if the command fails.`

	examples = `  # Which class would this claim get, and why?
  classbind explain -f claim.yaml

  # Why does this claim have that class, or none?
  classbind explain PostgreSQLInstance/gitlab-database --namespace acme-team

  # Which class would it get, if this class existed, too?
  classbind explain -f claim.yaml --with new-class.yaml

  # Without a cluster, before anything is applied:
  classbind explain -f claim.yaml -R --offline deploy/samples/crossplane

  # Which class would it get in a namespace of another tenant, or if another user created it?
  classbind explain -f claim.yaml --set namespace.labels.tenant=b
  classbind explain -f claim.yaml --requester jane --requester-group developers`
)

func newCommand(fresh func() uint64) *cobra.Command {
	o := &options{fresh: fresh}
	c := &cobra.Command{
		Use:   "explain (KIND/NAME... | KIND NAME... | -f FILES)",
		Short: "Show which class a claim gets, and why", Long: long, Example: examples,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.validate(c.Flags(), args); err != nil {
			return err
		}
		return o.run(c.Context(), world.Files{In: c.InOrStdin(), Progress: c.ErrOrStderr(), Recursive: o.recursive}, c.OutOrStdout())
	}
	fs := c.Flags()
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or folder of claims; - is standard input; may be repeated")
	world.AddRecursive(c, &o.recursive)
	o.cluster.AddOffline(c, "registrations and classes")
	fs.StringArrayVar(&o.with, "with", nil, "`file` or folder of registrations and classes; - is standard input; may be repeated. "+
		"They count as applied to the cluster: added, or instead of objects of the same name")
	fs.StringArrayVar(&o.set, "set", nil, "`path=value` that expressions see, in addition to existing fields. Examples: "+
		"namespace.labels.tenant=a, request.userInfo.groups=a, related.plan.spec.tier=gold. May be repeated")
	o.as.add(fs)
	fs.BoolVar(&o.unbound, "unbound", false, "explain a claim as if its class reference had only what its author wrote")
	o.output.Add(c)
	o.cluster.Add(c)
	o.cluster.AddNamespace(c,
		"`namespace` of claims that name none, and of those in the cluster; without it the kubeconfig's, or with --offline default")
	o.cluster.AddOwn(c, "`namespace` of classbind itself, whose claims are never bound")
	for _, flag := range []string{"filename", "offline", "with"} {
		_ = c.MarkFlagFilename(flag, world.Extensions...) // It fails only for an unknown flag.
	}
	return c
}

// validate returns all errors in the flags and arguments at once, flag by flag.
func (o *options) validate(fs *pflag.FlagSet, args []string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(args) > 0 && len(o.files)+len(o.cluster.Offline) > 0:
		fail("%q: with --filename or --offline there is no claim of the cluster", args)
	case len(args)+len(o.files) == 0:
		fail("name a claim of the cluster, KIND/NAME, or with --filename the file of a claim, such as -f claim.yaml, " +
			"or -f - for standard input")
	}
	var err error
	o.claims, err = connect.Names(args)
	errs = append(errs, err, world.CheckStdin(o.files, o.cluster.Offline, o.with))
	o.settings, err = newSettings(o.set)
	errs = append(errs, err, o.as.addTo(&o.settings), o.output.Validate(), connect.Validate(fs))
	if len(o.cluster.Offline)*len(o.with) > 0 {
		fail("--with: with --offline no cluster is asked: leave out one or the other")
	}
	return errors.Join(errs...)
}

func (o *options) run(ctx context.Context, files world.Files, out io.Writer) error {
	claims, err := files.Objects(ctx, o.files)
	if err != nil {
		return err
	}
	if len(o.claims)+len(claims) == 0 {
		return fmt.Errorf("--filename: there is no object in %s", strings.Join(o.files, ", "))
	}
	w, err := o.world(ctx, claims, files)
	if err != nil {
		return err
	}
	for _, name := range o.claims {
		d, err := w.Stored(ctx, name.Kind, w.ClaimNamespace, name.Name)
		if err != nil {
			return err
		}
		claims = append(claims, d)
	}
	w.Settings = o.settings
	if err := undeclared(&o.settings, w); err != nil {
		return err
	}
	report := &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}, Items: []Item{}}
	for _, c := range claims {
		items, err := o.answers(ctx, w, c, w.ClaimNamespace)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Where, err)
		}
		for _, item := range items {
			report.Items = append(report.Items, *item)
		}
	}
	if err := o.output.Print(out, report, report.table); err != nil {
		return err
	}
	return report.exit()
}

// world of the flags. The claims of files count as objects that expressions see, unless the cluster has these.
func (o *options) world(ctx context.Context, claims world.Manifests, files world.Files) (w *world.World, err error) {
	objects, err := files.Manifests(ctx, slices.Concat(o.cluster.Offline, o.with))
	if err != nil {
		return nil, err
	}
	if len(o.cluster.Offline) > 0 {
		w, err = world.OfFiles(ctx, objects, o.cluster.Own, "")
		if err == nil && len(w.ClaimKinds) == 0 {
			err = errors.New("--offline: no ClaimKind is among the objects: name the file that registers the kind of the claim")
		}
	} else {
		config, missing := o.cluster.Config(files.Progress, ", or files of classes with --offline")
		if missing != nil {
			return nil, missing
		}
		if w, err = world.OfCluster(ctx, config, o.cluster.Own, o.cluster.OfContext); err == nil {
			w, err = w.After(ctx, world.Change{Manifests: objects})
		}
	}
	if err != nil {
		return nil, err
	}
	if len(o.with)+len(o.cluster.Offline) > 0 {
		w.Claims = claims
	}
	w.ClaimNamespace = cmp.Or(o.cluster.Namespace, w.ClaimNamespace)
	return w, nil
}
