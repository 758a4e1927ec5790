// Package explain is the command that says which class a claim gets, and why.
// files reads manifests. cluster and offline are the two sources of registrations
// and classes, and registrations combine them as the server does. overlay puts
// files on top of a cluster. seen has what expressions see besides, and set what --set says
// of that. strict checks a claim against its schema, which schema and openapi
// read, before and after answer has the server's Decider decide on it. report prints the result for programs, and table for
// people.
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
	strict    bool
	classes   []string
	with      []string
	set       []string
	output    output.Format
	unbound   bool
	namespace string
	own       string
	cluster   connect.Flags

	// settings are those of set.
	settings settings
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
allowed to list; or, with --classes, those of files, and no cluster is asked; or,
with --with, those of the cluster as if files were applied to it. Such files have
ClaimKinds, ClassKinds and classes; other objects in them are passed over. With a note
are a file in a folder that is no manifest, an object whose kind resembles a registered
kind of classes, and a class of a version that is not served. A CRD among them says what
the API server would say of a kind: its plural, its scope, its versions, and the
schema that the paths of its ClaimKind and its claims must fit. Without it, a kind is
told by its plural, and classes are namespaced if one has a namespace.

A claim with several ClaimKinds is explained by each of them. A claim of another version
than the one for which the paths of its ClaimKind are written cannot be decided, unless
its CRD says that versions differ in nothing but their name.

A claim is that of a file, or KIND/NAME for one that the cluster has, as kubectl
takes it; you need to be allowed to get that.

Where a claim can get the classes of one ClassKind alone, these are those of the oldest.
The ClassKinds of files count as registered in the same second, as kubectl apply does
it, so the first by name is taken; with --with, they are newer than the cluster's.

With --strict, a claim is malformed if the API server would refuse it, or would not
store it as it is: its kind resembles one that is registered, and is not served; its
version is not served; or its schema refuses it. The schema is that of a CRD among the
files, or else the cluster's: of the CRD if you may get it, or as published for every
user. A claim is checked as at creation: unknown fields first; then, with the defaults
and with the reference to its class, its metadata, types, required fields, values, and
the rules (CEL), within the API server's limits of cost. Rules that compare it with an
older one do not apply. Not checked are other admission webhooks and policies, and of
a kind without a CRD, such as PersistentVolumeClaim, anything but its fields. Where no
schema is at hand, a field is wrong whose name resembles that of the selector or of the
reference, which the claim does not have. Claims of files are explained so unless --strict=false,
which takes them as they are written, without defaults; those of the cluster, which
were stored, only with --strict.

Of the expressions of ClaimKinds and ClassKinds it says what they said, and what they
saw: for each class that one dropped the term that is not true of it, the score of each
candidate, the partition of the claim, its selector, and the related objects. One that does
not compile is shown with a caret under the mistake. Namespaces and related objects are
those of the files or the cluster; in a cluster, you need to be allowed to get them. With
--set, an expression sees a field as you say, on top of what is there, or instead of what
you may not read: a label or an annotation of the claim's namespace, a field of a related
object that the claim names, or who asks, whom nothing else says. What follows labels,
annotations or extra is the whole key; elsewhere, a dot in a name is \. A value of a
related object is a number, true, false, null, a quoted text or a list {a,b}, if it looks
like one, and else a text.

It tells what the author of the claim would be told: of the classes of namespaces
whose classes the claim is not offered, nothing.

A claim that has its class is left alone, as the server would; --unbound explains
it as if it had none.

The exit status is 0 if every claim is bound or left alone; 1 if there is no class
for one, or the files do not say whether its kind is registered; and 2 if one is
malformed or cannot be decided, or the command fails.`

	examples = `  # Which class would this claim get, and why?
  classbind explain -f claim.yaml

  # Why has this claim that class, or none? Explain it as if it was created now:
  classbind explain PostgreSQLInstance/my-database --namespace my-team --unbound

  # Which class would it get, if this class was there, too?
  classbind explain -f claim.yaml --with new-class.yaml

  # Without a cluster, before anything is applied:
  classbind explain -f claim.yaml --classes deploy/samples/crossplane

  # Which class would it get in a namespace of another tenant?
  classbind explain -f claim.yaml --set namespace.labels.tenant=b

  # The odds of every candidate, for a program:
  classbind explain -f claim.yaml -o json | jq '.items[].candidates'`
)

func newCommand(fresh func() uint64) *cobra.Command {
	o := &options{fresh: fresh}
	c := &cobra.Command{
		Use:               "explain (-f CLAIM | KIND/NAME)",
		Short:             "Say which class a claim gets, and why",
		Long:              long,
		Example:           examples,
		ValidArgsFunction: o.completeClaim,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.validate(c.Flags(), args); err != nil {
				return failed(err)
			}
			if !c.Flags().Changed("strict") {
				o.strict = len(args) == 0
			}
			return o.run(c.Context(), args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.addFlags(c.Flags())
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return failed(err) })
	o.cluster.Complete(c, map[string]cobra.CompletionFunc{
		"output":    output.Complete,
		"filename":  cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt),
		"classes":   cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt),
		"with":      cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt),
		"set":       cobra.FixedCompletions(settable, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp),
		"namespace": cobra.NoFileCompletions,

		"classbind-namespace": cobra.NoFileCompletions,
	})
	return c
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&o.claims, "filename", "f", nil, "`file` or folder of claims; - is standard input; may be repeated")
	fs.BoolVarP(&o.recursive, "recursive", "R", false, "take the folders in the folders of --filename, too")
	fs.StringArrayVar(&o.classes, "classes", nil,
		"`file` of registrations and classes, or folder, with the folders in it; - is standard input; "+
			"may be repeated. No cluster is asked then")
	fs.StringArrayVar(&o.with, "with", nil,
		"the same, to put on top of what the cluster has")
	fs.StringArrayVar(&o.set, "set", nil,
		"`path=value` that expressions see, on top of what is there: a label of the claim's namespace, such as "+
			"namespace.labels.tenant=a; who asks, such as request.userInfo.groups={a,b}; or a field of a related object, such as "+
			"related.plan.spec.tier=gold. May be repeated")
	fs.BoolVar(&o.strict, "strict", true,
		"refuse claims that the API server would refuse or not store as they are; false for claims of the cluster, unless it is set")
	o.output.Add(fs)
	fs.BoolVar(&o.unbound, "unbound", false, "explain a claim as if its class reference was not set")
	fs.StringVarP(&o.namespace, "namespace", "n", "",
		"`namespace` of claims that name none, and of KIND/NAME; without it the kubeconfig's, or with --classes default")
	fs.StringVar(&o.own, "classbind-namespace", "classbind-system", "`namespace` of classbind itself, whose claims are never bound")
	o.cluster.Add(fs)
}

// validate returns all errors in the flags and arguments at once, flag by flag.
func (o *options) validate(fs *pflag.FlagSet, args []string) error {
	var err error
	o.settings, err = newSettings(o.set)
	errs := []error{o.validateClaims(args), o.validateFiles(), err, o.output.Validate()}
	if e := validation.IsDNS1123Label(o.namespace); len(e) > 0 && fs.Changed("namespace") {
		errs = append(errs, fmt.Errorf("--namespace=%q: %s", o.namespace, strings.Join(e, "; ")))
	}
	if e := validation.IsDNS1123Label(o.own); len(e) > 0 {
		errs = append(errs, fmt.Errorf("--classbind-namespace=%q: %s", o.own, strings.Join(e, "; ")))
	}
	for _, flag := range []string{"kubeconfig", "context", "with"} {
		if len(o.classes) > 0 && fs.Changed(flag) {
			errs = append(errs, fmt.Errorf("--%s: with --classes no cluster is asked: leave out one or the other", flag))
		}
	}
	return errors.Join(errs...)
}

func (o *options) validateClaims(args []string) error {
	var errs []error
	switch {
	case len(args) > 0 && len(o.claims) > 0:
		errs = append(errs, fmt.Errorf("--filename: there are arguments, too, %q: name claims in one way or the other", args))
	case len(args) > 0 && len(o.classes) > 0:
		errs = append(errs, fmt.Errorf("--classes: no cluster is asked then, which has %q: name files of claims with -f, "+
			"or put classes on top of the cluster's with --with", args))
	case len(args)+len(o.claims) == 0:
		errs = append(errs, errors.New("--filename: name the file of a claim, such as -f claim.yaml, or -f - for standard input, "+
			"or a claim of the cluster, KIND/NAME"))
	}
	for _, arg := range args {
		if kind, name, _ := strings.Cut(arg, "/"); kind == "" || name == "" || strings.Contains(name, "/") {
			errs = append(errs, fmt.Errorf("%q: must be KIND/NAME for a claim of the cluster, or -f with a file", arg))
		}
	}
	return errors.Join(errs...)
}

func (o *options) validateFiles() error {
	var errs []error
	stdins := 0
	for _, f := range []struct {
		flag  string
		paths []string
	}{{"filename", o.claims}, {"classes", o.classes}, {"with", o.with}} {
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
		errs = append(errs, errors.New("-: standard input can be read once: put the claims or the classes into a file"))
	}
	return errors.Join(errs...)
}

func (o *options) run(ctx context.Context, args []string, in io.Reader, out, progress io.Writer) error {
	claims, err := (&fileReader{in: in, recursive: o.recursive}).readAll(o.claims)
	if err != nil {
		return failed(err)
	}
	if len(args)+len(claims) == 0 {
		return failed(fmt.Errorf("--filename: there is no object in %s", strings.Join(o.claims, ", ")))
	}
	w, err := o.world(ctx, args, claims, in, progress)
	if err != nil {
		return failed(err)
	}
	r, err := newRegistrations(ctx, w.source, o.own)
	if err != nil {
		return failed(err)
	}
	r.settings = o.settings
	if err := o.settings.undeclared(r); err != nil {
		return failed(err)
	}
	if err := r.leaveOut(ctx, w.files, func(d *document, why string) {
		_, _ = fmt.Fprintf(progress, "note: %s: %s %q is left out: %s\n", d.where, d.GetKind(), d.GetName(), why)
	}); err != nil {
		return failed(err)
	}
	report := newReport()
	for _, c := range w.claims {
		items, err := o.answers(ctx, r, c, w.namespace)
		if err != nil {
			return failed(fmt.Errorf("%s: %w", c.where, err))
		}
		for _, item := range items {
			report.Items = append(report.Items, *item)
		}
	}
	if err := o.output.Print(out, report, report.table); err != nil {
		return failed(err)
	}
	return report.exit()
}
