// Package bind is the command that binds claims that were stored without a class. run goes through the claims of a kind, decides on each
// and writes it, and report prints what became of each.
package bind

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/output"
)

type options struct {
	all     bool
	dryRun  connect.DryRun
	output  output.Format
	cluster connect.Flags
}

// NewCommand returns the command bind.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "bind (KIND | KIND NAME... | KIND/NAME...)",
		Short: "Bind claims that were stored without a class",
		Long: `Bind claims that were stored without a class. They were created before their kind was
registered, while no class matched, or while classbind was down and failurePolicy was
Ignore.

KIND is the name of a ClaimKind, or any name that kubectl takes for the kind of the
claims. The command binds the claims of one namespace, of all namespaces with -A, or
the claims that you name. It decides as late binding does, with the current classes. It
adds the class reference, and with choice.annotate the annotation, to the version of the
claim that it has read, and changes nothing else. It leaves alone claims that name a
class, even through a default of their schema. It also leaves alone claims that
claims.when or skipIfSet excludes, and claims in namespaces that are not selected.

It prints a line for each claim without a class. It reads the claims page by page, and
writes one at a time. If it is interrupted, run it again: it continues with the claims
that still have no class. It may run while classbind runs.

The command does not know which classes the replicas gave last. So with RoundRobin,
it starts a new rotation with each page of 100 claims. With LeastClaims, or if classes
have a capacity, it counts the claims of all namespaces first. It cannot bind claims of a kind whose
expressions use request.userInfo, or that has a chooser.

--dry-run=client writes nothing. --dry-run=server also has the API server try each
write, so that other webhooks can refuse it.

The exit status is 0 if every claim that classbind binds has a class now. It is 1 if
a claim found no class. It is 2 if a claim is malformed or could not be
written, or if the command fails.`,
		Example: `  # Which classes would the claims of all namespaces get?
  classbind bind postgresqlinstances -A --dry-run

  # Bind those of one namespace:
  classbind bind PostgreSQLInstance --namespace acme-team

  # Bind one claim, and print JSON:
  classbind bind PostgreSQLInstance/gitlab-database --namespace acme-team -o json`,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		claims, err := o.validate(args, c.Flags())
		if err != nil {
			return err
		}
		return o.run(c.Context(), claims, c.OutOrStdout(), c.ErrOrStderr())
	}
	fs := c.Flags()
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "bind the claims of all namespaces")
	o.dryRun.Add(c, "the classes that the claims would get")
	o.output.Add(c)
	o.cluster.Add(c)
	o.cluster.AddNamespace(c, "`namespace` of the claims; without it the kubeconfig's")
	o.cluster.AddOwn(c, "`namespace` of classbind itself, whose claims are never bound")
	return c
}

// validate returns all errors in the flags and arguments at once, or else the claims that are named: one without a name is all of a kind.
func (o *options) validate(args []string, fs *pflag.FlagSet) (claims []connect.Name, err error) {
	errs := []error{o.output.Validate()}
	switch {
	case len(args) == 0:
		errs = append(errs, errors.New("name the kind of the claims, as in: classbind bind KIND"))
	case len(args) == 1 && args[0] != "" && !strings.Contains(args[0], "/"):
		claims = []connect.Name{{Kind: args[0]}}
	default:
		claims, err = connect.Names(args)
		errs = append(errs, err)
	}
	if o.all && len(claims) > 0 && claims[0].Name != "" {
		errs = append(errs, fmt.Errorf("--all-namespaces: the claims %q are of one namespace: leave out one or the other", args))
	}
	if o.all && fs.Changed("namespace") {
		errs = append(errs, errors.New("--namespace: with --all-namespaces there is no other: leave out one or the other"))
	}
	return claims, errors.Join(append(errs, connect.Validate(fs))...)
}
