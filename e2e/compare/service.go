package compare

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/classbind/classbind/e2e/classbind"
)

// service is what a Deployment and a Service are in a cluster: replicas behind one address. A replica gets connections once it says
// that it is ready.
type service struct {
	name     string
	dir      string
	balancer *classbind.Balancer
	// launch the replica of a number, and ready waits until it reports that it is.
	launch func(number int, log *os.File) (*classbind.Process, error)
	ready  func(ctx context.Context, p *classbind.Process) error

	replicas []*classbind.Process
}

// newService has no replica yet.
func (w *world) newService(name string) (*service, error) {
	b, err := classbind.NewBalancer()
	if err != nil {
		return nil, err
	}
	s := &service{name: name, dir: w.Dir, balancer: b}
	w.services = append(w.services, s)
	return s, nil
}

// newClassbind installs deploy. Its replicas have the rights of its ServiceAccount.
func (w *world) newClassbind(ctx context.Context) (*service, error) {
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfigs, err := classbind.Install(ctx, w.ControlPlane, deploy)
	if err != nil {
		return nil, err
	}
	command, err := classbind.Build(ctx, w.Dir)
	if err != nil {
		return nil, err
	}
	s, err := w.newService("classbind")
	if err != nil {
		return nil, err
	}
	s.launch = func(_ int, log *os.File) (*classbind.Process, error) {
		return classbind.Start(command, kubeconfigs[0], log, "--webhook-url="+s.balancer.URL)
	}
	s.ready = func(ctx context.Context, p *classbind.Process) error { return p.Ready(ctx) }
	return s, nil
}

// add a replica, and wait until it serves.
func (s *service) add(ctx context.Context) error {
	s.replicas = append(s.replicas, nil)
	return s.start(ctx, len(s.replicas)-1)
}

func (s *service) start(ctx context.Context, number int) error {
	log, err := os.CreateTemp(s.dir, fmt.Sprintf("%s-%d-*.log", s.name, number))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // The process has its own.
	p, err := s.launch(number, log)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", s.name, err)
	}
	s.replicas[number] = p
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.ready(ctx, p); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s is not ready: %w; the end of its log:\n%s", s.name, err, text[max(0, len(text)-2000):])
	}
	s.balancer.Add(address(p))
	return nil
}

// restart the first replica as a kubelet does after a crash: it is killed, and started again at once.
func (s *service) restart(ctx context.Context) error {
	s.replicas[0].Kill()
	s.balancer.Remove(address(s.replicas[0]))
	return s.start(ctx, 0)
}

func address(p *classbind.Process) string { return strings.TrimPrefix(p.URL, "https://") }

// stop all replicas. Their errors are of no interest: some end with one when they are stopped.
func (s *service) stop() error {
	for _, p := range s.replicas {
		if p != nil {
			_ = p.Stop()
		}
	}
	return s.balancer.Close()
}
