package race

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// Commands are classbind's, by how far its clock is ahead.
type Commands map[time.Duration]string

// Build in dir what there is not yet for a timing.
func (c Commands) Build(ctx context.Context, dir string, t Timing, to io.Writer) error {
	for i := range max(1, len(t.Skews)) {
		skew := t.skew(i)
		if c[skew] != "" {
			continue
		}
		what := fmt.Sprintf("building classbind, whose clock is ahead by %s", skew)
		err := progress.During(to, what, func() error {
			place, err := os.MkdirTemp(dir, "command-")
			if err != nil {
				return fmt.Errorf("cannot build classbind: %w", err)
			}
			c[skew], err = classbind.BuildSkewed(ctx, place, skew)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Fleet is replicas of classbind behind a balancer.
type Fleet struct {
	cluster  *Cluster
	timing   Timing
	balancer *classbind.Balancer
	replicas []*replica
	logs     string
	failed   bool
}

// Deploy so many replicas and wait until they are ready. They use the API servers in turn.
func (c *Cluster) Deploy(ctx context.Context, replicas int, t Timing, commands Commands) (_ *Fleet, err error) {
	f := &Fleet{cluster: c, timing: t}
	if f.balancer, err = classbind.NewBalancer(); err != nil {
		return nil, err
	}
	if f.logs, err = os.MkdirTemp("", "classbind-race-"); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot keep logs: %w", err), f.balancer.Close())
	}
	err = progress.During(c.progress, fmt.Sprintf("starting %d replicas", replicas), func() error {
		var all errgroup.Group
		for i := range replicas {
			r, err := f.replica(i, commands)
			if err != nil {
				return errors.Join(err, all.Wait())
			}
			all.Go(func() error { return r.start(ctx) })
		}
		return all.Wait()
	})
	if err != nil {
		f.failed = true
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// replica that is to be started.
func (f *Fleet) replica(i int, commands Commands) (r *replica, err error) {
	server, skew := i%len(f.cluster.Configs), f.timing.skew(i)
	r = &replica{
		fleet: f, name: fmt.Sprint("replica-", i+1), command: commands[skew], skew: skew,
		server: f.cluster.Configs[server], kubeconfig: f.cluster.kubeconfigs[server],
		flags: []string{"--webhook-url=" + f.balancer.URL},
	}
	if f.timing.Window > 0 {
		r.flags = append(r.flags, "--in-flight-window="+f.timing.Window.String())
	}
	if r.log, err = os.Create(filepath.Join(f.logs, r.name+".log")); err == nil {
		f.replicas = append(f.replicas, r)
	}
	return r, err
}

// Stop all replicas. Their logs are kept if anything was not as it should be.
func (f *Fleet) Stop() error {
	var all errgroup.Group
	for _, r := range f.replicas {
		all.Go(r.stop)
	}
	err := errors.Join(all.Wait(), f.balancer.Close())
	if f.failed || err != nil {
		_, _ = fmt.Fprintf(f.cluster.progress, "the replicas' logs are in %s\n", f.logs)
		return err
	}
	return os.RemoveAll(f.logs)
}

// calls of the webhook that each replica has answered, counted from zero after a kill.
func (f *Fleet) calls(ctx context.Context) ([]int, error) {
	all := make([]int, len(f.replicas))
	for i, r := range f.replicas {
		var err error
		if all[i], err = r.process.Calls(ctx, v1beta1.GuardPath); err != nil {
			return nil, err
		}
	}
	return all, nil
}
