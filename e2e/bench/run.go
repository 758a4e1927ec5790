package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
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

// run is a control plane with deploy/ applied and many classes of many kinds, and both webhooks serving it.
type run struct {
	Settings
	*controlplane.ControlPlane

	out io.Writer
	// measured is what bounds.yaml has bounds on, by name.
	measured map[string]measure

	clientset *kubernetes.Clientset
	// client of all of the kinds of this package.
	client *rest.RESTClient
	// processes to stop.
	processes            []*classbind.Process
	classbind, doNothing *target
	ca                   []byte // of the do-nothing webhook
}

// start all, and return once classbind knows all of the classes. The caller stops it, also after an error.
func (r *run) start(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"starting etcd and an API server, with many kinds", r.startCluster},
		{"creating classes", func(ctx context.Context) error { return r.fill(ctx, r.classes, r.classKindNames()) }},
		{"building and starting classbind", r.startClassbind},
		{"building and starting the webhook that does nothing", r.startDoNothing},
	} {
		if err := progress.During(r.Progress, step.what, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) startCluster(ctx context.Context) (err error) {
	if r.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{Progress: r.Progress}); err != nil {
		return err
	}
	if r.clientset, err = kubernetes.NewForConfig(r.Config); err != nil {
		return err
	}
	if r.client, err = r.Client(group, version); err != nil {
		return err
	}
	return errors.Join(
		r.kubectl(ctx, r.definitions(), "create", "-f", "-"),
		r.kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all"),
	)
}

// startClassbind returns once it knows all of the classes, and every claim of the reviews has as many to choose from as it should have.
func (r *run) startClassbind(ctx context.Context) error {
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return err
	}
	kubeconfigs, err := classbind.Install(ctx, r.ControlPlane, deploy, "policies")
	if err != nil {
		return err
	}
	if err := r.kubectl(ctx, r.registrations(), "create", "-f", "-"); err != nil {
		return err
	}
	command, err := classbind.Build(ctx, r.Dir)
	if err != nil {
		return err
	}
	p, err := r.logged("classbind", func(log *os.File) (*classbind.Process, error) {
		return classbind.Start(command, kubeconfigs[0], log)
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.Ready(ready); err != nil {
		log, _ := os.ReadFile(filepath.Join(r.Dir, "classbind.log"))
		return fmt.Errorf("%w; the end of its log:\n%s", err, log[max(0, len(log)-2000):])
	}
	if err := r.kubectl(ctx, "", "wait", "--for=condition=Ready", "claimkinds,classkinds", "--all", "--timeout=60s"); err != nil {
		return err
	}
	secret, err := r.clientset.CoreV1().Secrets(classbind.Namespace).Get(ctx, v1beta1.CASecret, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot trust classbind: %w", err)
	}
	if r.classbind, err = r.target("classbind", p, secret.Data[corev1.ServiceAccountRootCAKey]); err != nil {
		return err
	}
	for i := range r.classbind.reviews {
		answer, err := r.classbind.ask(ctx, i)
		if err != nil {
			return err
		}
		if got, want := answer.AuditAnnotations["candidates"], strconv.Itoa(r.matches); got != want {
			return fmt.Errorf("a claim has %q classes to choose from, not %s: %s", got, want, r.classbind.reviews[i].body)
		}
	}
	return nil
}

// logged starts a process whose log is a file: the process writes it itself.
func (r *run) logged(name string, start func(log *os.File) (*classbind.Process, error)) (*classbind.Process, error) {
	log, err := os.Create(filepath.Join(r.Dir, name+".log")) //nolint:gosec // The folder is ours.
	if err != nil {
		return nil, fmt.Errorf("cannot keep a log: %w", err)
	}
	defer func() { _ = log.Close() }() // The process has its own.
	p, err := start(log)
	if err == nil {
		r.processes = append(r.processes, p)
	}
	return p, err
}

// kubectl as the admin, with standard input.
func (r *run) kubectl(ctx context.Context, in string, args ...string) error {
	_, _, err := r.Kubectl(ctx, strings.NewReader(in), args...)
	return err
}

// stop everything that runs.
func (r *run) stop() error {
	if r.ControlPlane == nil {
		return nil
	}
	var errs []error
	for _, p := range r.processes {
		errs = append(errs, p.Stop())
	}
	return errors.Join(append(errs, r.Stop())...)
}
