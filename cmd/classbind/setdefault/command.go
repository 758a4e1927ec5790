// Package setdefault is the command that moves the default of a claim kind from one class to another: args resolves the arguments, read has
// the classes and the cluster, plan says what has to change, move changes it or puts it back, and wait waits for classbind to confirm it.
package setdefault

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/output"
)

type options struct {
	cluster    connect.Flags
	claimKinds []string
	without    []string
	timeout    time.Duration
	dryRun     connect.DryRun
	output     output.Format
}

// NewCommand returns the command set-default.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "set-default (KIND/NAME | KIND NAME) [--for CLAIMKIND]",
		Short: "Move the default of a claim kind to a class",
		Long: `Move the default of a claim kind to a class.

classbind refuses a second default. So the command removes the mark from the
current default first, then sets it on the class. It checks what it can
before it changes anything. If it still cannot mark the class, it marks the former
default again. The command waits until classbind has seen the new
default.

Where claims are offered only the classes of their own namespace, a namespaced
class is the default of its namespace. It replaces that namespace's default, and
takes precedence over the default for all. In the same way, where the ClaimKind
has a spec.classes.partition, a class is the default of its partition. classbind's status
does not show these defaults, so the command does not wait for them.

If spec.default of a ClassKind is an expression, there is no mark to move:
change the field that the expression reads.

KIND is the name of the class's ClassKind, PLURAL.GROUP, or any name that kubectl
takes: the kind, the plural, the singular or a short name. --for takes the same of a
claim kind. Omit it if the class's kind serves only one claim kind. --namespace is that
of a namespaced class.

--dry-run=client checks what it can without a write. --dry-run=server also has the API
server try each write, so that it can refuse.

If the command is killed between the two writes, there is no default. Run it again:
it continues from there.

The exit status is 0 if the class is the default. It is 1 if someone else changed the
default before classbind had seen it. It is 2 if the command fails.

A mark applies to every claim kind that the class's kind serves. If the move
would change the default of a claim kind that you did not name, the command refuses.
The error has the command that names all of them.`,
		Example: `  # Claims of PostgreSQLInstance without a selector get another class:
  classbind set-default CloudSQLInstanceClass/gitlab-experimental --for postgresqlinstances.database.crossplane.io

  # Another class, for two claim kinds; print what would change, and change nothing:
  classbind set-default RDSInstanceClass gitlab-production --for postgresqlinstances,mysqlinstances --dry-run=server`,
		RunE: func(c *cobra.Command, args []string) error {
			name, err := o.validate(args, c.Flags())
			if err != nil {
				return err
			}
			config, err := o.cluster.Config(c.ErrOrStderr(), "")
			if err != nil {
				return err
			}
			cluster, err := newCluster(config)
			if err != nil {
				return err
			}
			m := &mover{cluster: cluster, options: o, name: name, out: c.OutOrStdout(), progress: c.ErrOrStderr()}
			m.namespace = cmp.Or(o.cluster.Namespace, o.cluster.OfContext)
			err = m.run(c.Context())
			return errors.Join(err, m.end())
		},
	}
	fs := c.Flags()
	fs.StringSliceVar(&o.claimKinds, "for", nil,
		"`claim kind` that the class is to be the default of: the name of a ClaimKind, or of its resource as kubectl takes it. "+
			"Separate several by commas, or repeat the flag")
	fs.StringSliceVar(&o.without, "leave-without-default", nil,
		"`claim kind` that may lose its default: the move removes the mark from its default class, and the new class does not serve it")
	fs.DurationVar(&o.timeout, "timeout", 2*time.Minute,
		"`time` for the whole command. Another default that may yet be stored can block it for the server's --in-flight-window, "+
			"1m by default")
	o.dryRun.Add(c, "what would change")
	o.output.Add(c)
	o.cluster.Add(c)
	o.cluster.AddNamespace(c, "`namespace` of a namespaced class; without it the kubeconfig's")
	return c
}

// validate returns all errors in the flags and arguments at once, or else the class that is named.
func (o *options) validate(args []string, fs *pflag.FlagSet) (class connect.Name, err error) {
	names, err := connect.Names(args)
	errs := []error{err}
	if err == nil && len(names) != 1 {
		errs = append(errs, fmt.Errorf("name one class, as in: classbind set-default KIND/NAME --for CLAIMKIND; there are %d: %q",
			len(names), args))
	}
	if fs.Changed("for") && len(o.claimKinds) == 0 { // As by a variable that is not set.
		errs = append(errs, errors.New("--for: name the claim kind whose default the class is to be, or leave the flag out"))
	}
	for _, f := range []struct {
		flag   string
		values []string
	}{{"for", o.claimKinds}, {"leave-without-default", o.without}} {
		if slices.ContainsFunc(f.values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			errs = append(errs, fmt.Errorf("--%s=%q: must have no empty name", f.flag, strings.Join(f.values, ",")))
		}
	}
	if o.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout=%q: must be more than 0", o.timeout))
	}
	if err := errors.Join(append(errs, o.output.Validate(), connect.Validate(fs))...); err != nil {
		return class, err
	}
	return names[0], nil
}
