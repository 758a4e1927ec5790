// Package compare measures classbind beside other ways to give a claim a class: policies of Kyverno's, and a MutatingAdmissionPolicy.
// All run on one control plane, each for claims of a kind of its own, and take turns.
package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// Settings of a comparison.
type Settings struct {
	// Progress is told what goes on.
	Progress io.Writer
	// Rounds of turns of creates, for each number of clients.
	Rounds int
	// Draws of the chi-square test.
	Draws int
	// Repeated claims.
	Repeated int
}

// result is what was measured of a contender.
type result struct {
	// creates by the number of clients, as in clientsOfCreates.
	creates [2]creates
	// outages by the number of replicas, less one.
	outages [2]outage
	// chiSquare of the draws.
	chiSquare float64
	// dryRuns and retries that had the same class as the create.
	dryRuns, retries int
	// unmatched is what the author of a claim reads where no class matches.
	unmatched string
}

// Run measures, and returns the table for the document.
func Run(ctx context.Context, s Settings) (table string, err error) {
	// The clients share their processors with what they measure: see e2e/bench.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	dir, err := os.MkdirTemp("", "classbind-compare-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w := &world{settings: s}
	err = progress.During(s.Progress, "building classbind and Kyverno (a first time, for ten minutes)", func() (err error) {
		if w.classbind, err = classbind.Build(ctx, dir); err != nil {
			return err
		}
		w.kyverno, w.kyvernoSource, err = buildKyverno(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := progress.During(s.Progress, "starting all that is compared", func() error { return w.start(ctx) }); err != nil {
		return "", err
	}
	if err := w.measure(ctx); err != nil {
		return "", err
	}
	return w.table(ctx)
}

// measure with one replica of each, and then with two.
func (w *world) measure(ctx context.Context) error {
	for i, clients := range clientsOfCreates {
		if err := w.measureCreates(ctx, i, clients); err != nil {
			return err
		}
	}
	if err := w.each(ctx, w.measureDraws); err != nil {
		return err
	}
	if err := w.each(ctx, w.measureUnmatched); err != nil {
		return err
	}
	if err := w.measureOutages(ctx, 1); err != nil {
		return err
	}
	for _, s := range w.services {
		if err := s.add(ctx); err != nil {
			return err
		}
	}
	if err := w.measureOutages(ctx, 2); err != nil {
		return err
	}
	return w.each(ctx, w.measureRepeats)
}

// each contender in turn.
func (w *world) each(ctx context.Context, do func(ctx context.Context, c *contender) error) error {
	for _, c := range w.contenders {
		if err := do(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (w *world) say(format string, args ...any) {
	_, _ = fmt.Fprintf(w.settings.Progress, format+"\n", args...)
}
