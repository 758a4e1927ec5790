package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

// patience is how long anything may take beside what is measured.
const patience = 2 * time.Minute

// cluster is a control plane with deploy/ applied.
type cluster struct {
	*controlplane.ControlPlane

	progress io.Writer
	// command is the built classbind, and kubeconfig that of its ServiceAccount.
	command, kubeconfig string
	// client of all of the kinds of this package.
	client *rest.RESTClient
}

func newCluster(ctx context.Context, command string, to io.Writer) (c *cluster, err error) {
	c = &cluster{progress: to, command: command}
	err = progress.During(to, "starting etcd and an API server", func() error {
		if c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{Progress: to}); err != nil {
			return err
		}
		if err = c.setUp(ctx); err != nil {
			return errors.Join(err, c.Stop())
		}
		return nil
	})
	return c, err
}

func (c *cluster) setUp(ctx context.Context) error {
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return err
	}
	if err := c.kubectl(ctx, "", "apply", "-k", deploy); err != nil {
		return err
	}
	if err := c.kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return err
	}
	if c.kubeconfig, err = c.UserKubeconfig(classbind.User, classbind.Groups...); err != nil {
		return err
	}
	config := rest.CopyConfig(c.Config)
	config.APIPath, config.GroupVersion = "/apis", &schema.GroupVersion{Group: group, Version: version}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if c.client, err = rest.RESTClientFor(config); err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	return nil
}

// kubectl as the admin, with standard input.
func (c *cluster) kubectl(ctx context.Context, in string, args ...string) error {
	_, _, err := c.Kubectl(ctx, strings.NewReader(in), args...)
	return err
}

// install kinds, and register those that are to be.
func (c *cluster) install(ctx context.Context, k kinds) error {
	what := fmt.Sprintf("installing %d kinds of class and %d of claim", len(k.classes), len(k.claims))
	return progress.During(c.progress, what, func() error {
		if err := c.kubectl(ctx, k.definitions(), "create", "-f", "-"); err != nil {
			return err
		}
		if err := c.kubectl(ctx, "", "wait", "--for=create", "crd", k.lastDefinition()); err != nil {
			return err
		}
		if err := c.kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all"); err != nil {
			return err
		}
		return c.kubectl(ctx, k.registrations(), "create", "-f", "-")
	})
}

// replica of classbind, whose log is a file: the process writes it itself.
type replica struct {
	*classbind.Process
	process

	log *os.File
	// pprof is the URL of its profiles.
	pprof string
}

// serve starts a replica and waits until it is ready. It has taken so long.
func (c *cluster) serve(ctx context.Context, flags ...string) (r *replica, took time.Duration, err error) {
	ports, err := classbind.FreePorts(1)
	if err != nil {
		return nil, 0, err
	}
	r = &replica{pprof: "http://localhost:" + ports[0]}
	if r.log, err = os.CreateTemp(c.Dir, "classbind-*.log"); err != nil {
		return nil, 0, fmt.Errorf("cannot keep a log: %w", err)
	}
	begin := time.Now()
	flags = append(flags, "--pprof-bind-address=localhost:"+ports[0])
	r.Process, err = classbind.Start(c.command, c.kubeconfig, r.log, flags...)
	if err != nil {
		return nil, 0, errors.Join(err, r.log.Close())
	}
	r.process = process{r.PID()}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.Ready(ready); err != nil {
		return nil, 0, errors.Join(err, r.stop())
	}
	return r, time.Since(begin), nil
}

// kill the replica, as a node that dies does.
func (r *replica) kill() error {
	r.Kill()
	return r.stop()
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
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	secret, err := clientset.CoreV1().Secrets(classbind.Namespace).Get(ctx, v1beta1.CASecret, metav1.GetOptions{})
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
