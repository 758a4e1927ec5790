// Package connect finds the cluster that kubectl would use, for the commands that people run.
package connect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// requestTimeout is for each request: an API server that accepts it may never answer. No command watches, which takes longer.
const requestTimeout = 30 * time.Second

// Flags name the cluster, and namespaces in it.
type Flags struct {
	// Namespace is that of claims, and Own that of classbind. A command need not have the flags.
	Namespace, Own string
	// OfContext is the namespace of the kubeconfig's context, once there is a Config.
	OfContext string

	kubeconfig, context string
}

// Add the flags to those of a command.
func (f *Flags) Add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster; without it $KUBECONFIG, then ~/.kube/config")
	CompleteFiles(c, "kubeconfig")
	fs.StringVar(&f.context, "context", "", "`context` of the kubeconfig; without it the current one")
}

// AddNamespace adds the flag of Namespace.
func (f *Flags) AddNamespace(c *cobra.Command, usage string) {
	c.Flags().StringVarP(&f.Namespace, "namespace", "n", "", usage)
}

// AddOwn adds the flag of Own.
func (f *Flags) AddOwn(c *cobra.Command, usage string) {
	c.Flags().StringVar(&f.Own, "classbind-namespace", "classbind-system", usage)
}

// Validate the namespaces.
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
	return errors.Join(errs...)
}

// CompleteFiles as the values of flags. It panics for an unknown flag.
func CompleteFiles(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		utilruntime.Must(c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)))
	}
}

// Config returns the configuration of the cluster. Its warnings go to a writer. The
// text instead says what else an error may advise, such as ", or …".
func (f *Flags) Config(warnings io.Writer, instead string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
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
	config.Timeout = requestTimeout
	config.QPS = -1                // Requests are sequential, and some must follow each other at once.
	klog.SetLogger(logr.Discard()) // client-go logs errors that it also returns.
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}
