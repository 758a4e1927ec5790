// Package explain is the command that says which class a claim gets, and why.
// files reads manifests. cluster and offline are the two sources of registrations
// and classes, and registrations combine them as the server does. answer has the
// server's Decider decide on a claim. report prints the result for programs, and table
// for people.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
)

// The exit statuses of explain besides 0, which means that every claim is bound or
// left alone.
const (
	exitUnmatched = 1
	exitFailed    = exit.Failed
)

func failed(err error) error { return exit.AsFailed(err) }

// options are the flags of explain.
type options struct {
	claims    []string
	recursive bool
	classes   []string
	output    output.Format
	unbound   bool
	namespace string
	own       string
	cluster   connect.Flags

	// fresh returns a random number.
	fresh func() uint64
}

// NewCommand returns the command explain.
func NewCommand() *cobra.Command { return newCommand(rand.Uint64) }

const (
	long = `Say which class a claim gets, and why: the candidates with their odds, the
classes that it asked for and may not get, and those that one label kept out.
Nothing is created or changed.

The registrations and classes are those of the cluster, which you need to be
allowed to list; or, with --classes, those of files, and no cluster is asked. Such
files have ClaimKinds, ClassKinds and classes, as they would be applied; other
objects in them are passed over. Of a CRD among them is learnt what the
API server would say of a kind: its plural, its scope and its preferred version,
and the schema that the paths of its ClaimKind must fit. Without, the plural is
guessed from the kind, and classes are namespaced if one has a namespace.

It tells what the author of the claim would be told: of the classes of namespaces
whose classes the claim is not offered, nothing.

A claim that has its class is left alone, as the server would; --unbound explains
it as if it had none.

The exit status is 0 if every claim is bound or left alone, 1 if there is no class
for one, and 2 if one is malformed or cannot be decided, or the command fails.`

	examples = `  # Which class would this claim get, and why?
  classbind explain -f claim.yaml

  # Why has this claim no class, or this one? Explain it as if it was created now:
  kubectl get postgresqlinstance my-database -o yaml | classbind explain --unbound -f -

  # Without a cluster, before anything is applied:
  classbind explain -f claim.yaml --classes deploy/samples/crossplane

  # The odds of every candidate, for a program:
  classbind explain -f claim.yaml -o json | jq '.items[].candidates'`
)

func newCommand(fresh func() uint64) *cobra.Command {
	o := &options{fresh: fresh}
	c := &cobra.Command{
		Use:     "explain -f CLAIM",
		Short:   "Say which class a claim gets, and why",
		Long:    long,
		Example: examples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return failed(fmt.Errorf("name claims by their files, as in: classbind explain -f CLAIM; there are arguments: %q", args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(c.Flags()); err != nil {
				return failed(err)
			}
			return o.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.addFlags(c.Flags())
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return failed(err) })
	for flag, complete := range map[string]cobra.CompletionFunc{
		"output":    output.Complete,
		"filename":  cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt),
		"classes":   cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt),
		"namespace": cobra.NoFileCompletions,
		"context":   cobra.NoFileCompletions,

		"classbind-namespace": cobra.NoFileCompletions,
	} {
		_ = c.RegisterFlagCompletionFunc(flag, complete) // It fails only for an unknown flag, which a test would notice.
	}
	return c
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&o.claims, "filename", "f", nil, "`file` or folder of claims; - is standard input; may be repeated")
	fs.BoolVarP(&o.recursive, "recursive", "R", false, "take the folders in the folders of --filename, too")
	fs.StringArrayVar(&o.classes, "classes", nil,
		"`file` of registrations and classes, or folder, with the folders in it; - is standard input; "+
			"may be repeated. No cluster is asked then")
	o.output.Add(fs)
	fs.BoolVar(&o.unbound, "unbound", false, "explain a claim as if its class reference was not set")
	fs.StringVarP(&o.namespace, "namespace", "n", "",
		"`namespace` of claims that name none; without it the kubeconfig's, or with --classes default")
	fs.StringVar(&o.own, "classbind-namespace", "classbind-system", "`namespace` of classbind itself, whose claims are never bound")
	o.cluster.Add(fs)
}

// validate returns all errors in the flags at once, flag by flag.
func (o *options) validate(fs *pflag.FlagSet) error {
	var errs []error
	if len(o.claims) == 0 {
		errs = append(errs, errors.New("--filename: name the file of a claim, such as -f claim.yaml, or -f - for standard input"))
	}
	stdins := 0
	for _, f := range []struct {
		flag  string
		paths []string
	}{{"filename", o.claims}, {"classes", o.classes}} {
		for _, p := range f.paths {
			if p == "" {
				errs = append(errs, fmt.Errorf("--%s=%q: must be a file, a folder, or - for standard input", f.flag, p))
			}
			if p == stdin {
				stdins++
			}
		}
	}
	if stdins > 1 {
		errs = append(errs, errors.New("-f -, --classes -: standard input can be read once: put the claims or the classes into a file"))
	}
	errs = append(errs, o.output.Validate())
	if e := validation.IsDNS1123Label(o.namespace); len(e) > 0 && fs.Changed("namespace") {
		errs = append(errs, fmt.Errorf("--namespace=%q: %s", o.namespace, strings.Join(e, "; ")))
	}
	if e := validation.IsDNS1123Label(o.own); len(e) > 0 {
		errs = append(errs, fmt.Errorf("--classbind-namespace=%q: %s", o.own, strings.Join(e, "; ")))
	}
	for _, flag := range []string{"kubeconfig", "context"} {
		if len(o.classes) > 0 && fs.Changed(flag) {
			errs = append(errs, fmt.Errorf("--%s: with --classes no cluster is asked: leave out one or the other", flag))
		}
	}
	return errors.Join(errs...)
}

func (o *options) run(ctx context.Context, in io.Reader, out, progress io.Writer) error {
	claims, err := readAll(o.claims, in, o.recursive)
	if err != nil {
		return failed(err)
	}
	if len(claims) == 0 {
		return failed(fmt.Errorf("--filename: there is no object in %s", strings.Join(o.claims, ", ")))
	}
	source, namespace, err := o.source(claims, in, progress)
	if err != nil {
		return failed(err)
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	r, err := newRegistrations(ctx, source, o.own)
	if err != nil {
		return failed(err)
	}
	report := newReport()
	for _, c := range claims {
		item, err := o.answer(ctx, r, c, namespace)
		if err != nil {
			return failed(fmt.Errorf("%s: %w", c.where, err))
		}
		report.Items = append(report.Items, *item)
	}
	if err := o.output.Print(out, report, report.table); err != nil {
		return failed(err)
	}
	return report.exit()
}

// source returns the source of registrations and classes, and the namespace of claims
// that name none.
func (o *options) source(claims []document, in io.Reader, progress io.Writer) (source, string, error) {
	if len(o.classes) > 0 {
		objects, err := readAll(o.classes, in, true)
		if err != nil {
			return nil, "", err
		}
		files, err := newFiles(objects, claims)
		return files, "default", err
	}
	config, err := o.cluster.Config(progress, ", or files of classes with --classes")
	if err != nil {
		return nil, "", err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := newCluster(config)
	return c, namespace, err
}
