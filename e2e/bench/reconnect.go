package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// Reconnect of all watches.
type Reconnect struct {
	// VisibleSeconds from when the API server could be reached again until a change
	// made then was visible.
	VisibleSeconds float64 `json:"visibleSeconds"`
	// CPUMillis until all was at rest again.
	CPUMillis    float64 `json:"cpuMillis"`
	PeakRSSBytes int64   `json:"peakRSSBytes"`
}

// reconnects of a replica whose connections to the API server can be cut.
func (h *held) reconnects(ctx context.Context, c *Change) (err error) {
	wire, err := classbind.NewBalancer()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wire.Close()) }()
	wire.Add(strings.Trim(strings.TrimPrefix(h.Config.Host, "https:"), "/"))
	through := *h
	through.cluster = new(*h.cluster)
	if through.kubeconfig, err = redirected(h.kubeconfig, wire.URL, h.Dir); err != nil {
		return err
	}
	r, _, err := through.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	config, err := h.trust(ctx)
	if err != nil {
		return err
	}
	v, err := h.watchFor(ctx, r, config)
	if err != nil {
		return err
	}
	defer v.c.Close()
	v.pause = lookingOn
	err = progress.During(h.progress, "cutting classbind off from the API server", func() error {
		c.Resumed, err = h.reconnect(ctx, r, v, func() error {
			wire.Cut()
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return progress.During(h.progress, "restarting the API server", func() error {
		c.Relisted, err = h.reconnect(ctx, r, v, func() error {
			if err := h.RestartAPIServer(); err != nil {
				return err
			}
			return h.awaitClasses(ctx)
		})
		return err
	})
}

// reconnect a replica after a fault.
func (h *held) reconnect(ctx context.Context, r *replica, v *visibility, fault func() error) (c Reconnect, err error) {
	settling := settlingRounds * h.settings.Round
	idle, err := r.cpuFor(ctx, settling)
	if err != nil {
		return c, err
	}
	before, err := r.cpu()
	if err != nil {
		return c, err
	}
	start := time.Now()
	if err := fault(); err != nil {
		return c, err
	}
	reachable := time.Now()
	if _, err := v.toggle(ctx); err != nil {
		return c, err
	}
	c.VisibleSeconds = time.Since(reachable).Seconds()
	sleep(ctx, settling)
	after, err := r.cpu()
	if err != nil {
		return c, err
	}
	c.CPUMillis = millis(after-before) - millis(idle)*time.Since(start).Seconds()/settling.Seconds()
	_, c.PeakRSSBytes, err = r.memory()
	return c, err
}

// awaitClasses until the API server serves them, which takes it a little longer
// than to be healthy.
func (h *held) awaitClasses(ctx context.Context) error {
	why := errors.New("it did not answer")
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		why = h.client.Get().Resource(plural(h.class)).Name(className(0)).Do(ctx).Error()
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve classes: %w: %w", err, why)
	}
	return nil
}

// redirected is a kubeconfig for another address of the same API server, in dir.
func redirected(kubeconfig, url, dir string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", err
	}
	for _, c := range config.Clusters {
		c.Server = url
	}
	path := filepath.Join(dir, "redirected.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o600)
}
