package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/e2e/progress"
)

const (
	// replicated is the number of classes that several replicas hold, if there are
	// to be so many.
	replicated = 10_000
	// fewer changes are made for each number of replicas than for a single one.
	fewer = 4
)

// rates of claims in a second at which a replica is measured.
var rates = []int{100, 500, 1000}

// Scale is what a replica takes for classes and claims, and what several do.
type Scale struct {
	Sizes    []Size     `json:"sizes"`
	Claims   []Claimed  `json:"claims"`
	Replicas []Replicas `json:"replicas"`
}

// Claimed are claims that come at a steady rate, whatever becomes of those before.
type Claimed struct {
	Classes   int     `json:"classes"`
	PerSecond float64 `json:"perSecond"`
	// CPUMicros are for each of them.
	CPUMicros float64 `json:"cpuMicros"`
	P50Millis float64 `json:"p50Millis"`
	P99Millis float64 `json:"p99Millis"`
}

// Replicas that hold the same classes.
type Replicas struct {
	Replicas int   `json:"replicas"`
	Classes  int   `json:"classes"`
	RSSBytes int64 `json:"rssBytes"` // of all
	// CPU of a single change of a class: that of all replicas, and of the API
	// server, in which is that of the change itself.
	CPUMillis          float64 `json:"cpuMillis"`
	APIServerCPUMillis float64 `json:"apiServerCPUMillis"`
	// VisibleP50Millis and the other from the API server's answer to a change
	// until every replica binds by it.
	VisibleP50Millis float64 `json:"visibleP50Millis"`
	VisibleP99Millis float64 `json:"visibleP99Millis"`
}

// claims of a steady rate, each rate in turn.
func (h *held) claims(ctx context.Context, r *replica, config *tls.Config) (all []Claimed, err error) {
	t, err := h.bound(r, config)
	if err != nil {
		return nil, err
	}
	for _, rate := range rates {
		r, err := t.drive(ctx, h.settings.Round, rate)
		if err != nil {
			return nil, err
		}
		c := Claimed{
			Classes: h.classes, PerSecond: r.perSecond(), CPUMicros: r.cpuMicros(),
			P50Millis: millis(r.P50), P99Millis: millis(r.P99),
		}
		_, _ = fmt.Fprintf(h.progress, "  scale: %d classes, %.0f claims/s, CPU %.0f µs, p50 %.2f ms, p99 %.2f ms\n",
			c.Classes, c.PerSecond, c.CPUMicros, c.P50Millis, c.P99Millis)
		all = append(all, c)
	}
	return all, nil
}

// replicas measures from one to as many as the settings say.
func (h *held) replicas(ctx context.Context) (all []Replicas, err error) {
	var running []*replica
	defer func() {
		for _, r := range running {
			err = errors.Join(err, r.stop())
		}
	}()
	for n := 1; n <= h.settings.Replicas; n++ {
		r, _, err := h.start(ctx)
		if err != nil {
			return nil, err
		}
		running = append(running, r)
		err = progress.During(h.progress, fmt.Sprintf("measuring changes with %d replicas", n), func() error {
			result, err := h.replicated(ctx, running)
			all = append(all, result)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// replicated changes classes that several replicas hold.
func (h *held) replicated(ctx context.Context, running []*replica) (result Replicas, err error) {
	result = Replicas{Replicas: len(running), Classes: h.classes}
	var processes []*process
	for _, r := range running {
		rss, _, err := r.memory()
		if err != nil {
			return result, err
		}
		result.RSSBytes += rss
		processes = append(processes, &r.process)
	}
	server, err := child("--cert-dir=" + filepath.Join(h.Dir, "kube-apiserver"))
	if err != nil {
		return result, err
	}
	changes := max(1, h.settings.SingleChanges/fewer)
	usage, err := h.changeCPU(ctx, changes, processes, []*process{server})
	if err != nil {
		return result, err
	}
	result.CPUMillis, result.APIServerCPUMillis = usage[0].perChange, usage[1].perChange
	config, err := h.trust(ctx)
	if err != nil {
		return result, err
	}
	var views []*visibility
	defer func() {
		for _, v := range views {
			v.c.Close()
		}
	}()
	for _, r := range running {
		v, err := h.watchFor(ctx, r, config)
		if err != nil {
			return result, err
		}
		views = append(views, v)
	}
	took := make([]time.Duration, changes)
	for i := range took {
		if took[i], err = toggleAll(ctx, views); err != nil {
			return result, err
		}
	}
	slices.Sort(took)
	result.VisibleP50Millis, result.VisibleP99Millis = millis(quantile(took, .5)), millis(quantile(took, .99))
	return result, nil
}

// toggleAll is a change that the last of all has seen after so long.
func toggleAll(ctx context.Context, views []*visibility) (time.Duration, error) {
	if err := views[0].change(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	all, awaiting := errgroup.WithContext(ctx)
	for _, v := range views {
		v.shown = views[0].shown
		all.Go(func() error {
			_, err := v.await(awaiting)
			return err
		})
	}
	err := all.Wait()
	return time.Since(begin), err
}
