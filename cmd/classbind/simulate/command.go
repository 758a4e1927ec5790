package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
)

// maxClaims limits how many are made up of each kind: more say nothing new.
const maxClaims = 1_000_000

type options struct {
	changes, remove []string
	recursive       bool
	claims          int
	strict, all     bool
	output          output.Format
	cluster         connect.Flags
}

// NewCommand returns the command simulate.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "simulate (-f CHANGES | --remove KIND/NAME) [CLAIMKIND...]",
		Short: "Predict which claims a change moves to another class",
		Long: `Predict which claims get another class after a change to registrations or classes.
The command reads all claims of the cluster, page by page. It decides on each claim as if
it were created now, without its class, before and after the change. It
changes nothing.

CLAIMKIND is the name of a ClaimKind, or any name that kubectl takes for the kind of the
claims. Without one, the command prints the kinds of claims for which something changes,
and how many others there are. --all prints these, too.

--filename has the objects that are added, or replace objects of the same name, each in
full. --remove names the objects that are removed.

Registrations, classes and claims come from one of these:

  default          the cluster: you need the rights to list them
  --offline FILES  only the files: the command needs no cluster

--claims N generates N claims of each kind instead, after the pattern of the existing
claims, in the same proportions. If there are none, the claims in turn select no class,
or the labels of one class.

The prediction is exact if the decision depends on the claim's name. If it depends on
random numbers, on earlier decisions of a replica, or on how full the classes are, the
command prints an interval. One class in two million is outside.

A claim counts as created by you, with what its author wrote of the class reference. A
note says if that is not known. With choice.annotate Decision, a claim without the
annotation keeps its reference.

The exit status is 0 if every claim that gets a class before the change gets one
after it, and 1 if one does not. With --strict, it is 1 if any claim gets another
class. It is 2 if the command fails, if it cannot decide on a claim, or if no part of
the change has an effect on any claim.`,
		Example: `  # Which claims would get another class, if these classes were applied?
  classbind simulate -f classes.yaml

  # What if this class were gone? Look only at the claims of one kind:
  classbind simulate --remove RDSInstanceClass/gitlab-experimental PostgreSQLInstance

  # What if it were cordoned?
  kubectl annotate rdsinstanceclass gitlab-experimental classbind.io/cordoned=true \
    --dry-run=client -o yaml | classbind simulate -f -

  # In a pipeline, without a cluster, for 10,000 generated claims:
  classbind simulate -R -f changed/ --offline deploy/samples/crossplane --claims 10000 --strict`,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.validate(c.Flags(), args); err != nil {
			return err
		}
		return o.run(c.Context(), args, world.Files{In: c.InOrStdin(), Progress: c.ErrOrStderr(), Recursive: o.recursive}, c.OutOrStdout())
	}
	fs := c.Flags()
	fs.StringArrayVarP(&o.changes, "filename", "f", nil,
		"`file` or folder of the objects that change; - is standard input; may be repeated")
	world.AddRecursive(c, &o.recursive)
	fs.StringArrayVar(&o.remove, "remove", nil,
		"`KIND/NAME` of a class, claimkind or classkind that the change removes; may be repeated. "+
			"A class of another namespace than --namespace is KIND/NAMESPACE/NAME, because one change may remove classes of several")
	o.cluster.AddOffline(c, "registrations, classes and claims")
	fs.IntVar(&o.claims, "claims", 0, "number of claims of each kind to generate; 0 takes the existing claims")
	fs.BoolVar(&o.strict, "strict", false, "fail if any claim gets another class")
	fs.BoolVar(&o.all, "all", false, "print the kinds of claims for which nothing changes, too")
	o.output.Add(c)
	for _, flag := range []string{"filename", "offline"} {
		_ = c.MarkFlagFilename(flag, world.Extensions...) // It fails only for an unknown flag.
	}
	o.cluster.Add(c)
	o.cluster.AddNamespace(c, "`namespace` of objects that name none; without it the kubeconfig's, or with --offline default")
	o.cluster.AddOwn(c, "`namespace` of classbind itself, whose claims are never bound")
	return c
}

// validate returns all errors in the flags at once.
func (o *options) validate(fs *pflag.FlagSet, args []string) error {
	errs := []error{connect.Validate(fs), connect.Kinds(args), world.CheckStdin(o.changes, o.cluster.Offline), o.output.Validate()}
	if len(o.changes)+len(o.remove) == 0 {
		errs = append(errs, errors.New("name what changes, with --filename or --remove"))
	}
	if o.claims < 0 || o.claims > maxClaims {
		errs = append(errs, fmt.Errorf("--claims=%d: must be from 0 to %d", o.claims, maxClaims))
	}
	return errors.Join(errs...)
}

func (o *options) run(ctx context.Context, claimKinds []string, files world.Files, out io.Writer) error {
	in := Input{ClaimKinds: claimKinds, Claims: o.claims, Change: world.Change{Remove: o.remove}}
	var err error
	if in.Change.Manifests, err = files.Manifests(ctx, o.changes); err != nil {
		return err
	}
	if len(o.cluster.Offline) > 0 {
		all, unread := files.Manifests(ctx, o.cluster.Offline)
		if unread != nil {
			return unread
		}
		in.World, err = world.OfFiles(ctx, all, o.cluster.Own, o.cluster.Namespace)
	} else {
		config, missing := o.cluster.Config(files.Progress, ", or files with --offline")
		if missing != nil {
			return missing
		}
		in.World, err = world.OfCluster(ctx, config, o.cluster.Own, cmp.Or(o.cluster.Namespace, o.cluster.OfContext))
	}
	if err != nil {
		return err
	}
	report, err := Run(ctx, in)
	if err != nil {
		return err
	}
	if err := o.output.Print(out, report, func() string { return report.table(o.all || len(claimKinds) > 0) }); err != nil {
		return err
	}
	return report.exit(o.strict)
}
