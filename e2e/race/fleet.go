package race

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

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
		what := "building classbind"
		if skew != 0 {
			what = fmt.Sprintf("%s with a clock that is off by %s", what, skew)
		}
		if err := progress.During(to, what, func() error { return c.build(ctx, dir, skew) }); err != nil {
			return err
		}
	}
	return nil
}

func (c Commands) build(ctx context.Context, dir string, skew time.Duration) error {
	place, err := os.MkdirTemp(dir, "command-")
	if err != nil {
		return fmt.Errorf("cannot build classbind: %w", err)
	}
	if skew == 0 {
		c[skew], err = classbind.Build(ctx, place)
	} else {
		c[skew], err = classbind.BuildSkewed(ctx, place, skew)
	}
	return err
}

// Fleet is replicas of classbind behind a balancer.
type Fleet struct {
	cluster  *Cluster
	timing   Timing
	balancer *classbind.Balancer
	path     string // of the webhook whose calls are counted
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
	for i := range replicas {
		r := f.replica(i, commands)
		if r.log, err = os.Create(filepath.Join(f.logs, r.name+".log")); err != nil {
			f.failed = true
			return nil, errors.Join(err, f.Stop())
		}
		f.replicas = append(f.replicas, r)
	}
	err = progress.During(c.progress, fmt.Sprintf("starting %d replicas", replicas), func() error {
		errs := make([]error, replicas)
		var all sync.WaitGroup
		for i, r := range f.replicas {
			all.Go(func() { errs[i] = r.start(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		f.failed = true
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) replica(i int, commands Commands) *replica {
	server := i % len(f.cluster.Configs)
	r := &replica{
		fleet: f, name: fmt.Sprint("replica-", i+1),
		command: commands[f.timing.skew(i)], skew: f.timing.skew(i),
		server: f.cluster.Configs[server], kubeconfig: f.cluster.kubeconfigs[server],
		flags: []string{"--webhook-url=" + f.balancer.URL},
	}
	if f.timing.Window > 0 {
		r.flags = append(r.flags, "--in-flight-window="+f.timing.Window.String())
	}
	return r
}

// Stop all replicas. Their logs are kept if anything was not as it should be.
func (f *Fleet) Stop() error {
	errs := make([]error, len(f.replicas))
	var all sync.WaitGroup
	for i, r := range f.replicas {
		all.Go(func() { errs[i] = r.stop() })
	}
	all.Wait()
	err := errors.Join(append(errs, f.balancer.Close())...)
	if f.failed || err != nil {
		_, _ = fmt.Fprintf(f.cluster.progress, "the replicas' logs are in %s\n", f.logs)
		return err
	}
	return os.RemoveAll(f.logs)
}

// calls of the webhook that each replica has answered.
func (f *Fleet) calls(ctx context.Context) ([]int, error) {
	all := make([]int, len(f.replicas))
	for i, r := range f.replicas {
		var err error
		if all[i], err = r.calls(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}
