// Package connect finds the cluster that kubectl would use, for the commands that people run, and reads the names of objects as kubectl
// does.
package connect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout is for each request: an API server that accepts it may never answer. No command watches, which takes longer.
const requestTimeout = "30s"

// ClusterFlag annotates kubectl's flags, which name the cluster and the user.
const ClusterFlag = "classbind.io/cluster"

// Flags name the cluster, and namespaces in it.
type Flags struct {
	// Namespace is that of claims, and Own that of classbind. A command need not have the flags.
	Namespace, Own string
	// OfContext is the namespace of the kubeconfig's context, once there is a Config.
	OfContext string
	// Offline are the files that take the place of a cluster.
	Offline []string

	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Add the flags to those of a command.
func (f *Flags) Add(c *cobra.Command) {
	fs, names := pflag.NewFlagSet("", pflag.ContinueOnError), clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.LongName = ""                                            // Each command says what it is for.
	names.AuthOverrideFlags.Username.LongName, names.AuthOverrideFlags.Password.LongName = "", "" // No API server takes them any more.
	names.Timeout.Default, names.Timeout.Description = requestTimeout, "`time` after which a request fails; 0 sets no limit"
	clientcmd.BindOverrideFlags(&f.overrides, fs, names)
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster; without it $KUBECONFIG, then ~/.kube/config")
	fs.VisitAll(func(flag *pflag.Flag) { _ = fs.SetAnnotation(flag.Name, ClusterFlag, nil) }) // It fails only for an unknown flag.
	c.Flags().AddFlagSet(fs)
	CompleteFiles(c, "kubeconfig", "certificate-authority", "client-certificate", "client-key")
}

// AddNamespace adds the flag of Namespace.
func (f *Flags) AddNamespace(c *cobra.Command, usage string) {
	c.Flags().StringVarP(&f.Namespace, "namespace", "n", "", usage)
}

// AddOwn adds the flag of Own.
func (f *Flags) AddOwn(c *cobra.Command, usage string) {
	c.Flags().StringVar(&f.Own, "classbind-namespace", "classbind-system", usage)
}

// AddOffline adds the flag of Offline. In its help, the files are of what, such as "CRDs and registrations".
func (f *Flags) AddOffline(c *cobra.Command, what string) {
	c.Flags().StringArrayVar(&f.Offline, "offline", nil,
		"`file` or folder of "+what+", in the place of a cluster; - is standard input; may be repeated")
}

// Validate the namespaces, and the flags of a cluster beside --offline.
func Validate(fs *pflag.FlagSet) error {
	var errs []error
	for _, name := range []string{"namespace", "classbind-namespace"} {
		if !fs.Changed(name) {
			continue
		}
		namespace := fs.Lookup(name).Value.String()
		if e := validation.IsDNS1123Label(namespace); len(e) > 0 {
			errs = append(errs, fmt.Errorf("--%s=%q: %s", name, namespace, strings.Join(e, "; ")))
		}
	}
	fs.Visit(func(flag *pflag.Flag) {
		if _, of := flag.Annotations[ClusterFlag]; of && fs.Changed("offline") {
			errs = append(errs, fmt.Errorf("--%s: with --offline no cluster is asked: leave out one or the other", flag.Name))
		}
	})
	return errors.Join(errs...)
}

// CompleteFiles as the values of flags. It panics for an unknown flag.
func CompleteFiles(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		utilruntime.Must(c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)))
	}
}

// Config returns the configuration of the cluster. Warnings of the API server go to a writer. The string instead ends the advice of an
// error, such as ", or …".
func (f *Flags) Config(warnings io.Writer, instead string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("cannot find a cluster: no kubeconfig ($KUBECONFIG is %q): name a file with --kubeconfig or $KUBECONFIG%s",
			os.Getenv("KUBECONFIG"), instead)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find a cluster: %w; name a file with --kubeconfig or $KUBECONFIG, "+
			"and one of its contexts with --context%s", err, instead)
	}
	if f.OfContext, _, err = loader.Namespace(); err != nil {
		return nil, fmt.Errorf("cannot read the namespace of the kubeconfig's context: %w; name one with --namespace", err)
	}
	if err := f.override(config); err != nil {
		return nil, err
	}
	config.QPS = -1 // Requests are sequential, and some must follow each other at once.
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// override sets what client-go does not take from the flags in a pod, where no kubeconfig is.
func (f *Flags) override(config *rest.Config) (err error) {
	if config.Timeout, err = clientcmd.ParseTimeout(f.overrides.Timeout); err != nil {
		return fmt.Errorf("--request-timeout: %w", err)
	}
	switch as := &f.overrides.AuthInfo; {
	case config.Impersonate.UserName != "":
	case as.Impersonate != "":
		config.Impersonate = rest.ImpersonationConfig{
			UserName: as.Impersonate, UID: as.ImpersonateUID, Groups: as.ImpersonateGroups, Extra: as.ImpersonateUserExtra,
		}
	case as.ImpersonateUID != "" || len(as.ImpersonateGroups) > 0:
		return errors.New("--as-uid and --as-group need --as")
	}
	return nil
}

// DryRun is the value of --dry-run, which is kubectl's.
type DryRun string

const (
	// NoDryRun writes.
	NoDryRun DryRun = "none"
	// ClientDryRun writes nothing.
	ClientDryRun DryRun = "client"
	// ServerDryRun has the API server try each write without storing it.
	ServerDryRun DryRun = "server"
)

// Add the flag to a command. In its help, client prints what, such as "the classes".
func (d *DryRun) Add(c *cobra.Command, what string) {
	*d = NoDryRun
	c.Flags().Var(d, "dry-run", "client prints "+what+", and writes nothing; server also has the API server try each write. "+
		"Without a value, client")
	c.Flags().Lookup("dry-run").NoOptDefVal = string(ClientDryRun)
	values := []string{string(NoDryRun), string(ClientDryRun), string(ServerDryRun)}
	_ = c.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // It knows the flag.
}

// String is the value, as a flag has it.
func (d *DryRun) String() string { return string(*d) }

// Type is what the help calls a value.
func (d *DryRun) Type() string { return "none|client|server" }

// Set the value.
func (d *DryRun) Set(text string) error {
	*d = DryRun(text)
	if !slices.Contains([]DryRun{NoDryRun, ClientDryRun, ServerDryRun}, *d) {
		return errors.New("must be none, client or server")
	}
	return nil
}
