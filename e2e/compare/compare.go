// Package compare measures classbind beside other ways to give a claim a class: policies of Kyverno's, and a MutatingAdmissionPolicy.
// All run on one control plane, each for claims of a kind of its own, and take turns.
package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/classbind/classbind/e2e/progress"
)

// Settings of a comparison.
type Settings struct {
	// Progress is called with what goes on.
	Progress io.Writer
	// Rounds of turns of creates, for each number of clients.
	Rounds int
	// Draws of the chi-square test.
	Draws int
	// Repeated claims.
	Repeated int
}

// Run measures, and returns the table for the document.
func Run(ctx context.Context, s Settings) (table string, err error) {
	// The clients share their processors with what they measure: see e2e/bench.
	defer debug.SetGCPercent(debug.SetGCPercent(2000))
	w := &world{settings: s}
	defer func() { err = errors.Join(err, w.stop()) }()
	const what = "building and starting all that is compared (a first time, for ten minutes)"
	if err := progress.During(s.Progress, what, func() error { return w.start(ctx) }); err != nil {
		return "", err
	}
	if err := w.measureAll(ctx); err != nil {
		return "", err
	}
	return w.table(ctx)
}

// measureAll with one replica of each, and then with two.
func (w *world) measureAll(ctx context.Context) error {
	if err := w.measureCreates(ctx, "one client", 1); err != nil {
		return err
	}
	if err := w.measureCreates(ctx, "8 clients", 8); err != nil {
		return err
	}
	if err := w.measure(ctx, "the only replica killed"+outage, "outages.go", w.measureOutages); err != nil {
		return err
	}
	for _, s := range w.services {
		if err := s.add(ctx); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		what, file string
		of         measure
	}{
		{"one of two replicas killed" + outage, "outages.go", w.measureOutages},
		{fmt.Sprintf("chi-square of %d draws, 9 degrees of freedom", w.settings.Draws), "draws.go", w.measureDraws},
		{fmt.Sprintf("dry runs with the class of the create, of %d", w.settings.Repeated), "draws.go", w.measureRepeats("dry-run", true)},
		{
			fmt.Sprintf("claims with the same class when created again, of %d", w.settings.Repeated),
			"draws.go", w.measureRepeats("again", false),
		},
	} {
		if err := w.measure(ctx, m.what, m.file, m.of); err != nil {
			return err
		}
	}
	return w.measureUnmatched(ctx)
}

// measure of a contender, as a cell of the table.
type measure func(ctx context.Context, c *contender) (string, error)

// measure all contenders but the baseline in turn, for a row of the table.
func (w *world) measure(ctx context.Context, what, file string, of measure) error {
	cells := []string{""}
	for _, c := range w.contenders {
		cell, err := of(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", what, c.name, err)
		}
		cells = append(cells, cell)
	}
	w.row(what, file, cells)
	return nil
}
