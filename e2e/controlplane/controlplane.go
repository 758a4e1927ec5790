// Package controlplane runs a real Kubernetes control plane, etcd and one or more kube-apiservers, on loopback, for tests and
// demonstrations. Of the controllers there is only the one that aggregates ClusterRoles, and there are no nodes and no scheduler: a
// Deployment stays an object, and classbind runs beside it as a process of the host. Nothing is fsynced: its latencies are not those of a
// disk.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/clientcert"
)

// patience is for each process to start and to stop. It needs 2 s on an idle machine; others may be starting beside it.
const patience = 5 * time.Minute

const (
	etcdLog      = "etcd.log"
	apiServerLog = "kube-apiserver.log" // of the first
)

// auditPolicy has what webhooks annotate (Metadata), once per request.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// Options of a control plane. The zero value is a good one.
type Options struct {
	// Progress is called about the building of the binaries, when they have to be.
	Progress io.Writer
	// APIServers on the one etcd; 0 means 1.
	APIServers int
	// APIServerFlags are added to kube-apiserver's, names without dashes. They replace those set here.
	APIServerFlags map[string]string
	// ConnectionPerWebhookCall has concurrent calls of a webhook use as many connections, as they do in a cluster, so
	// that they can be spread over replicas: of its webhooks, kube-apiserver speaks HTTP/2 to those on localhost alone.
	ConnectionPerWebhookCall bool
	// Audit writes the metadata of every request to the first API server, webhooks' annotations included, to ControlPlane.AuditLog.
	Audit bool
}

// ControlPlane is a running one. RBAC is enforced, the ServiceAccount admission plugin is off (nothing would
// create the default service accounts that it wants), no CRDs are installed.
type ControlPlane struct {
	// Config is the admin's for the first API server, without client-side rate limit.
	Config *rest.Config
	// Configs are the admin's for each API server.
	Configs []*rest.Config
	// Kubeconfig is the path of the admin's kubeconfig file for the first API server, in Dir.
	Kubeconfig string
	// Assets is the folder of etcd, kube-apiserver and kubectl.
	Assets string
	// Dir has all state and the logs etcd.log, kube-apiserver.log, kube-apiserver-2.log and so on. Stop removes it.
	Dir string
	// AuditLog is the path of the audit log, one JSON event a line; empty without Options.Audit.
	AuditLog string
	// Clients are the certificate that the API servers present to every webhook that asks for one, and its CA.
	Clients clientcert.Files

	etcd *envtest.Etcd
	// servers are the API servers, each as a control plane of the same etcd, since that is what makes users.
	servers []*envtest.ControlPlane
	stop    func() error
}

// Start returns once the API server is ready and the default namespace exists. Interrupts do not reach the processes: who starts a control
// plane stops it. Those that the package assets built end by themselves soon after a caller that is killed.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	binaries, err := assets.Dir(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "classbind-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("cannot create a folder for the control plane: %w", err)
	}
	c := &ControlPlane{Dir: dir, Assets: binaries}
	clients := filepath.Join(dir, "clients")
	if c.Clients, err = clientcert.Write(clients, clients, "*"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	controllers, stopControllers := context.WithCancel(context.Background())
	c.stop = sync.OnceValue(func() error {
		stopControllers()
		return errors.Join(c.stopProcesses(), os.RemoveAll(dir))
	})
	err = c.run(o)
	if err == nil {
		err = c.connect(ctx, controllers)
	}
	if err != nil {
		_ = c.Stop()
		return nil, fmt.Errorf("cannot start a control plane: %w", err)
	}
	return c, nil
}

// Stop stops all processes and removes Dir. Calls after the first do nothing and return the same.
func (c *ControlPlane) Stop() error { return c.stop() }

// Backup copies what etcd has stored. It stops all for that.
func (c *ControlPlane) Backup() error {
	return c.restart(func() error { return os.CopyFS(c.backup(), os.DirFS(c.etcd.DataDir)) })
}

// Restore puts the backup in the place of what etcd has stored since, as an admin would:
// the API servers are stopped before, and started again.
func (c *ControlPlane) Restore() error {
	return c.restart(func() error {
		return errors.Join(os.RemoveAll(c.etcd.DataDir), os.CopyFS(c.etcd.DataDir, os.DirFS(c.backup())))
	})
}

func (c *ControlPlane) backup() string { return filepath.Join(c.Dir, "etcd-backup") }

// restart all processes, and do something while none runs. Not for concurrent use.
func (c *ControlPlane) restart(do func() error) error {
	if err := c.stopProcesses(); err != nil {
		return fmt.Errorf("cannot stop the control plane: %w", err)
	}
	if err := do(); err != nil {
		return err
	}
	if err := logged(c.Dir, etcdLog, &c.etcd.Err, c.etcd.Start); err != nil {
		return fmt.Errorf("cannot start etcd again: %w%s", err, c.lastWords(etcdLog))
	}
	for _, server := range c.servers {
		name := filepath.Base(server.APIServer.CertDir) + ".log"
		if err := logged(c.Dir, name, &server.APIServer.Err, server.APIServer.Start); err != nil {
			return fmt.Errorf("cannot start an API server again: %w%s", err, c.lastWords(name))
		}
	}
	return nil
}

// Client of the admin's for the kinds of a group and version, as raw JSON.
func (c *ControlPlane) Client(group, version string) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.Config)
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: group, Version: version}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	return client, nil
}

// Kubectl runs kubectl as the admin, or with the --kubeconfig in args. The error has standard error in it.
func (c *ControlPlane) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.Assets, "kubectl"), args...) //nolint:gosec // The callers choose the arguments.
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig,
		// Its usual cache is per address, and another control plane may have had this port a minute ago.
		"KUBECACHEDIR="+filepath.Join(c.Dir, "kubectl"),
		"KUBERC=off") // the user's own defaults and aliases
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), errOut.String(), err
}

// UserKubeconfig writes a kubeconfig file for any user that RBAC may name, and returns its path in Dir. A service
// account is one too: "system:serviceaccount:<namespace>:<name>", whose groups are then the caller's to give. It is
// for the first API server. Not for concurrent use.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	_, path, err := addUser(c.servers[0], c.Dir, name, groups...)
	return path, err
}

// UserKubeconfigs does the same for each API server.
func (c *ControlPlane) UserKubeconfigs(name string, groups ...string) ([]string, error) {
	var paths []string
	for _, server := range c.servers {
		_, path, err := addUser(server, c.Dir, name, groups...)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// run starts the processes.
func (c *ControlPlane) run(o Options) error {
	data := filepath.Join(c.Dir, "etcd")
	c.etcd = &envtest.Etcd{Path: filepath.Join(c.Assets, "etcd"), DataDir: data, StartTimeout: patience, StopTimeout: patience}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	// Not envtest's Environment: it makes four more attempts with a flag that is wrong, and
	// takes its binaries, or a whole other cluster, from variables that it finds.
	if err := logged(c.Dir, etcdLog, &c.etcd.Err, c.etcd.Start); err != nil {
		return fmt.Errorf("%w%s", err, c.lastWords(etcdLog))
	}
	for i := range max(1, o.APIServers) {
		name := "kube-apiserver"
		if i > 0 {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}
		if err := c.runAPIServer(name, o); err != nil {
			return fmt.Errorf("%w%s", err, c.lastWords(name+".log"))
		}
	}
	return nil
}

// runAPIServer starts one, which has its log and its folder in Dir by its name.
func (c *ControlPlane) runAPIServer(name string, o Options) error {
	api := &envtest.APIServer{
		Path: filepath.Join(c.Assets, "kube-apiserver"), CertDir: filepath.Join(c.Dir, name),
		EtcdURL: c.etcd.URL, StartTimeout: patience, StopTimeout: patience,
	}
	first := len(c.servers) == 0
	if !first { // The same CA of client certificates: a user of one is a user of all.
		api.Authn = c.servers[0].APIServer.Authn
	}
	if err := os.Mkdir(api.CertDir, 0o700); err != nil {
		return err
	}
	if o.ConnectionPerWebhookCall {
		var err error
		if api.Path, err = withoutHTTP2(api.CertDir, api.Path); err != nil {
			return err
		}
	}

	// envtest adds the rest, --authorization-mode=RBAC among it.
	flags := api.Configure().
		// A host without a route out has no other address, and nothing here looks for endpoints.
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none").
		Set("admission-control-config-file", c.Clients.AdmissionConfig()).
		// Else it waits a minute for clients to close their watches, and a test's are still there when it stops this.
		Set("shutdown-watch-termination-grace-period", "1s")
	if o.Audit && first {
		policy := filepath.Join(c.Dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return err
		}
		c.AuditLog = filepath.Join(c.Dir, "audit.log")
		flags.Set("audit-policy-file", policy).Set("audit-log-path", c.AuditLog)
	}
	for name, value := range o.APIServerFlags {
		flags.Set(name, value)
	}
	c.servers = append(c.servers, &envtest.ControlPlane{Etcd: c.etcd, APIServer: api})
	return logged(c.Dir, name+".log", &api.Err, api.Start)
}

// withoutHTTP2 makes a command that is kube-apiserver with HTTP/2 turned off for
// all that it calls, since envtest has no place for a variable.
func withoutHTTP2(dir, path string) (string, error) {
	command := filepath.Join(dir, "without-http2")
	script := fmt.Sprintf("#!/bin/sh\nDISABLE_HTTP2=1 exec '%s' \"$@\"\n", path)
	return command, os.WriteFile(command, []byte(script), 0o700) //nolint:gosec // It is to be executed.
}

// logged starts a process that writes its log to a file in dir.
func logged(dir, name string, to *io.Writer, start func() error) error {
	f, err := os.Create(filepath.Join(dir, name)) //nolint:gosec // The folder is the caller's.
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the process has its own
	*to = f
	return start()
}

// EtcdURL is where it answers, for what should not pass through an API server.
func (c *ControlPlane) EtcdURL() string { return c.etcd.URL.String() }

// stopProcesses stops the API servers before their etcd.
func (c *ControlPlane) stopProcesses() error {
	errs := make([]error, len(c.servers))
	var all sync.WaitGroup
	for i, server := range c.servers {
		all.Go(func() { errs[i] = server.APIServer.Stop() })
	}
	all.Wait()
	if c.etcd != nil {
		errs = append(errs, c.etcd.Stop())
	}
	return errors.Join(errs...)
}

// connect makes the admin, waits for what every client expects, and starts the controllers, which run until their context ends.
func (c *ControlPlane) connect(ctx, controllers context.Context) error {
	for i, server := range c.servers {
		config, path, err := addUser(server, c.Dir, "admin", "system:masters")
		if err != nil {
			return err
		}
		c.Configs = append(c.Configs, config)
		if i == 0 {
			c.Config, c.Kubeconfig = config, path
		}
	}
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	// The API server is ready a little before it has made its own namespaces; this is the last.
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	informer := informers.NewSharedInformerFactory(clientset, 0)
	aggregation := clusterroleaggregation.NewClusterRoleAggregation(informer.Rbac().V1().ClusterRoles(), clientset.RbacV1())
	controllers = klog.NewContext(controllers, logr.Discard())
	informer.StartWithContext(controllers)
	go aggregation.Run(controllers, 1)
	return nil
}

// addUser makes a user of the API server, with a kubeconfig file in dir.
func addUser(server *envtest.ControlPlane, dir, name string, groups ...string) (*rest.Config, string, error) {
	user, err := server.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, "", err
	}
	// A colon would make it two files in $KUBECONFIG.
	f, err := os.CreateTemp(dir, strings.NewReplacer(":", "-", "/", "-").Replace(name)+"-*.kubeconfig")
	if err != nil {
		return nil, "", err
	}
	_, err = f.Write(kubeconfig)
	return user.Config(), f.Name(), errors.Join(err, f.Close())
}

// lastWords is the end of a log. All that envtest says of a process that ended is that it did.
func (c *ControlPlane) lastWords(name string) string {
	log, err := os.ReadFile(filepath.Join(c.Dir, name)) //nolint:gosec // The folder is the caller's.
	if err != nil || len(log) == 0 {
		return ""
	}
	return fmt.Sprintf("; the end of %s:\n%s", name, log[max(0, len(log)-2000):])
}
