// Package connect finds the cluster that kubectl would use, and reads what is registered there, for the commands that people run.
package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// requestTimeout is for each request: an API server that accepts it may never answer. No command watches, which takes longer.
const requestTimeout = 30 * time.Second

// Flags name the cluster, and namespaces in it.
type Flags struct {
	// Namespace is that of claims, and Own that of classbind. A command need not have the flags.
	Namespace, Own string

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
	config, err := f.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("cannot find a cluster: no kubeconfig ($KUBECONFIG is %q): name a file with --kubeconfig or $KUBECONFIG%s",
			os.Getenv("KUBECONFIG"), instead)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find a cluster: %w; name a file with --kubeconfig or $KUBECONFIG, "+
			"and one of its contexts with --context%s", err, instead)
	}
	config.Timeout = requestTimeout
	config.QPS = -1                // Requests are sequential, and some must follow each other at once.
	klog.SetLogger(logr.Discard()) // client-go logs errors that it also returns.
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// OfContext is the namespace of the kubeconfig's context.
func (f *Flags) OfContext() (string, error) {
	namespace, _, err := f.loader().Namespace()
	if err != nil {
		return "", fmt.Errorf("cannot read the namespace of the kubeconfig's context: %w; name one with --namespace", err)
	}
	return namespace, nil
}

func (f *Flags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// Cluster is what commands read. API has registrations and the kinds that are added, without a cache.
type Cluster struct {
	API client.Client
	*registry.Reader
}

// Reader of kinds and classes: a *registry.Reader.
type Reader interface {
	Resolve(ctx context.Context, name, version string, verbs ...string) (cluster.Resource, error)
	Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error)
}

// New returns a reader of a cluster.
func New(config *rest.Config, add ...func(*runtime.Scheme) error) (*Cluster, error) {
	scheme, adders := runtime.NewScheme(), runtime.SchemeBuilder(append(add, v1beta1.AddToScheme))
	if err := adders.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot make the scheme: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	reader, err := registry.NewReader(config)
	return &Cluster{api, reader}, err
}

// Registrations lists what is registered.
func Registrations(ctx context.Context, api client.Reader) ([]v1beta1.ClaimKind, []v1beta1.ClassKind, error) {
	claimKinds, classKinds := &v1beta1.ClaimKindList{}, &v1beta1.ClassKindList{}
	err := api.List(ctx, claimKinds)
	if meta.IsNoMatchError(err) {
		return nil, nil, fmt.Errorf("the cluster does not know ClaimKinds: kubectl apply -k deploy: %w", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list ClaimKinds: %w", err)
	}
	if err := api.List(ctx, classKinds); err != nil {
		return nil, nil, fmt.Errorf("cannot list ClassKinds: %w", err)
	}
	return claimKinds.Items, classKinds.Items, nil
}

// Memory is what classbind served. A status may say something else: others may have the right to write it. It is empty where nothing was
// served, and where the configuration that has it may not be read.
func Memory(ctx context.Context, api client.Reader) (*registry.Memory, error) {
	c := &metav1.PartialObjectMetadata{}
	c.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	err := api.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, c)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return registry.MemoryOf(c), nil
	}
	return nil, fmt.Errorf("cannot read what was served: %w", truncate.Error(err))
}

// Names returns the names of objects of a kind, of the first page of a list. They are for an error about a name, so
// there are none if they cannot be listed.
func Names(ctx context.Context, api client.Reader, kind schema.GroupVersionKind, namespace string) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if api.List(ctx, list, client.InNamespace(namespace), client.Limit(v1beta1.LiveReadPage)) != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
