package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

// patience is how long anything may take beside what is measured.
const patience = 2 * time.Minute

// cluster is a control plane with deploy/ applied, and kinds.
type cluster struct {
	*controlplane.ControlPlane

	settings Settings
	kinds    kinds
	// command is the built classbind, and kubeconfig that of its ServiceAccount.
	command, kubeconfig string
	clientset           *kubernetes.Clientset
	// client of all of the kinds of this package.
	client *rest.RESTClient
}

// newCluster has the kinds installed, and those registered that are to be.
func newCluster(ctx context.Context, command string, s Settings, k kinds) (*cluster, error) {
	c := &cluster{settings: s, command: command, kinds: k}
	what := fmt.Sprintf("starting etcd and an API server, with %d kinds", len(k.all()))
	err := progress.During(s.Progress, what, func() (err error) {
		if c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{Progress: s.Progress}); err != nil {
			return err
		}
		if err = c.setUp(ctx); err != nil {
			return errors.Join(err, c.Stop())
		}
		return nil
	})
	return c, err
}

func (c *cluster) setUp(ctx context.Context) (err error) {
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return err
	}
	kubeconfigs, err := classbind.Install(ctx, c.ControlPlane, deploy)
	if err != nil {
		return err
	}
	c.kubeconfig = kubeconfigs[0]
	if c.clientset, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	if c.client, err = c.Client(group, version); err != nil {
		return err
	}
	if err := c.kubectl(ctx, c.kinds.definitions(), "create", "-f", "-"); err != nil {
		return err
	}
	if err := c.kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return err
	}
	return c.kubectl(ctx, c.kinds.registrations(), "create", "-f", "-")
}

// kubectl as the admin, with standard input.
func (c *cluster) kubectl(ctx context.Context, in string, args ...string) error {
	_, _, err := c.Kubectl(ctx, strings.NewReader(in), args...)
	return err
}

// awaitRegistrations until all are served.
func (c *cluster) awaitRegistrations(ctx context.Context) error {
	return c.kubectl(ctx, "", "wait", "--for=condition=Ready", "claimkinds,classkinds", "--all", "--timeout=60s")
}

// replica of classbind, whose log is a file: the process writes it itself.
type replica struct {
	*classbind.Process
	process

	log *os.File
	// tls trusts it, as the API server does.
	tls *tls.Config
	// took is how long it took until it was ready.
	took time.Duration
}

// serve starts a replica and waits until it is ready.
func (c *cluster) serve(ctx context.Context, flags ...string) (r *replica, err error) {
	r = &replica{}
	if r.log, err = os.CreateTemp(c.Dir, "classbind-*.log"); err != nil {
		return nil, fmt.Errorf("cannot keep a log: %w", err)
	}
	begin := time.Now()
	r.Process, err = classbind.Start(c.command, c.kubeconfig, r.log, flags...)
	if err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	r.process = process{r.PID()}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err = r.Ready(ready); err == nil {
		r.took = time.Since(begin)
		r.tls, err = c.trust(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// target is the replica with reviews for it.
func (r *replica) target(s Settings, reviews []poolClaim) *target {
	return &target{url: r.URL, tls: r.tls, process: &r.process, inFlight: s.Connections, reviews: reviews}
}

// stop the replica. The end of its log is in an error.
func (r *replica) stop() error {
	err := errors.Join(r.Stop(), r.log.Close())
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(r.log.Name())
	return fmt.Errorf("%w; the end of %s:\n%s", err, filepath.Base(r.log.Name()), log[max(0, len(log)-2000):])
}

// trust the replicas, as the API server does.
func (c *cluster) trust(ctx context.Context) (*tls.Config, error) {
	secret, err := c.clientset.CoreV1().Secrets(classbind.Namespace).Get(ctx, v1beta1.CASecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot trust classbind: %w", err)
	}
	return trusting(secret.Data[corev1.ServiceAccountRootCAKey])
}

// trusting what is issued by an authority, in PEM, to localhost.
func trusting(ca []byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("there is no certificate of an authority")
	}
	return &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}, nil
}

// sleep until the time has passed or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
