// Package controlplane runs a real Kubernetes control plane, etcd and
// kube-apiserver, on loopback, for tests and demonstrations. Of the controllers
// there is only the one that aggregates ClusterRoles, and there are no nodes and
// no scheduler: a Deployment stays an object, and classbind runs beside it as a
// process of the host. Nothing is fsynced: its latencies are
// not those of a disk.
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/classbind/classbind/e2e/assets"
)

// startTimeout is for each of etcd and kube-apiserver. They need 3 s together
// on an idle machine; tests of other packages may be compiling beside them.
const startTimeout = 60 * time.Second

const (
	etcdLog      = "etcd.log"
	apiServerLog = "kube-apiserver.log"
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
	// Progress is told about the building of the binaries, when they have to be.
	Progress io.Writer
	// APIServerFlags are added to kube-apiserver's, names without dashes. They replace those set here.
	APIServerFlags map[string]string
	// Audit writes every request's metadata, webhooks' annotations included, to ControlPlane.AuditLog.
	Audit bool
}

// ControlPlane is a running one. RBAC is enforced, the ServiceAccount admission plugin is off (nothing would
// create the default service accounts that it wants), no CRDs are installed.
type ControlPlane struct {
	// Config is the admin's, without client-side rate limit.
	Config *rest.Config
	// Kubeconfig is the path of the admin's kubeconfig file, in Dir.
	Kubeconfig string
	// Assets is the folder of etcd, kube-apiserver and kubectl.
	Assets string
	// Dir has all state and the logs etcd.log and kube-apiserver.log. Stop removes it.
	Dir string
	// AuditLog is the path of the audit log, one JSON event a line; empty without Options.Audit.
	AuditLog string

	plane envtest.ControlPlane
	stop  func() error
}

// Start returns once the API server is ready and the default namespace exists.
// Interrupts do not reach the two processes: who starts a control plane stops it.
// Those that the package assets built end by themselves soon after a caller that is killed.
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
	controllers, stopControllers := context.WithCancel(context.Background())
	c.stop = sync.OnceValue(func() error {
		stopControllers()
		return errors.Join(c.plane.Stop(), os.RemoveAll(dir))
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

// Stop stops both processes and removes Dir. Calls after the first do nothing and return the same.
func (c *ControlPlane) Stop() error { return c.stop() }

// Kubectl runs kubectl as the admin, or with the --kubeconfig in args. The error has standard error in it.
func (c *ControlPlane) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.Assets, "kubectl"), args...)
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
// account is one too: "system:serviceaccount:<namespace>:<name>", whose groups are then the caller's to give.
// Not for concurrent use.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	_, path, err := c.addUser(name, groups...)
	return path, err
}

// run starts the two processes.
func (c *ControlPlane) run(o Options) error {
	etcd := &envtest.Etcd{Path: filepath.Join(c.Assets, "etcd"), DataDir: filepath.Join(c.Dir, "etcd"), StartTimeout: startTimeout}
	api := &envtest.APIServer{Path: filepath.Join(c.Assets, "kube-apiserver"), CertDir: filepath.Join(c.Dir, "kube-apiserver"), StartTimeout: startTimeout}
	for _, dir := range []string{etcd.DataDir, api.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	for name, out := range map[string]*io.Writer{etcdLog: &etcd.Err, apiServerLog: &api.Err} {
		f, err := os.Create(filepath.Join(c.Dir, name))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // the process has its own
		*out = f
	}

	// envtest adds the rest, etcd's --unsafe-no-fsync and --authorization-mode=RBAC among it.
	flags := api.Configure().
		// A host without a route out has no other address, and nothing here looks for endpoints.
		Set("advertise-address", "127.0.0.1").
		Set("endpoint-reconciler-type", "none").
		// Else it waits a minute for clients to close their watches, and a test's are still there when it stops this.
		Set("shutdown-watch-termination-grace-period", "1s")
	if o.Audit {
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

	// Not envtest's Environment: it makes four more attempts with a flag that is wrong, and
	// takes its binaries, or a whole other cluster, from variables that it finds.
	c.plane = envtest.ControlPlane{Etcd: etcd, APIServer: api}
	if err := c.plane.Start(); err != nil {
		return fmt.Errorf("%w%s", err, c.lastWords())
	}
	return nil
}

// connect makes the admin, waits for what every client expects, and starts the
// controllers, which run until their context ends.
func (c *ControlPlane) connect(ctx, controllers context.Context) error {
	var err error
	if c.Config, c.Kubeconfig, err = c.addUser("admin", "system:masters"); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	// The API server is ready a little before it has made its own namespaces, of which this is the last.
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
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

func (c *ControlPlane) addUser(name string, groups ...string) (*rest.Config, string, error) {
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, "", err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, "", err
	}
	// A colon would make it two files in $KUBECONFIG.
	f, err := os.CreateTemp(c.Dir, strings.NewReplacer(":", "-", "/", "-").Replace(name)+"-*.kubeconfig")
	if err != nil {
		return nil, "", err
	}
	_, err = f.Write(kubeconfig)
	return user.Config(), f.Name(), errors.Join(err, f.Close())
}

// lastWords is the end of the log of the process that was started last. All that envtest says of one that ended is
// that it did.
func (c *ControlPlane) lastWords() string {
	for _, name := range []string{apiServerLog, etcdLog} {
		if log, err := os.ReadFile(filepath.Join(c.Dir, name)); err == nil && len(log) > 0 {
			return fmt.Sprintf("; the end of %s:\n%s", name, log[max(0, len(log)-2000):])
		}
	}
	return ""
}
