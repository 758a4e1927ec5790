// Package bench measures classbind beside a webhook that does nothing: on a real
// control plane, with deploy/ applied and the built command, as the tests run it.
package bench

import (
	"context"
	"errors"
	"os"
	"runtime/debug"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// loadGCPercent has the heap grow to so many percent more than is in use (GOGC).
const loadGCPercent = 2000

// Run the parts that the settings name. Those that ended are in the report beside an error, too.
func Run(ctx context.Context, s Settings) (r *Report, err error) {
	// The load shares its processors with what it measures, and allocates for each
	// request. Without this, it would collect garbage dozens of times a second.
	defer debug.SetGCPercent(debug.SetGCPercent(loadGCPercent))
	bounds, err := readBounds(boundsFile)
	if err != nil {
		return nil, err
	}
	if r, err = newReport(s); err != nil {
		return nil, err
	}
	defer func() { r.judge(bounds) }()
	dir, err := os.MkdirTemp("", "classbind-bench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var command, doNothing string
	err = progress.During(s.Progress, "building classbind and the webhook that does nothing", func() (err error) {
		if command, err = classbind.Build(ctx, dir); err != nil {
			return err
		}
		doNothing, err = buildDoNothing(ctx, dir)
		return err
	})
	if err != nil {
		return r, err
	}
	if s.runs(partWebhook, partCreate, partStorm) {
		if err := r.many(ctx, s, command, doNothing); err != nil {
			return r, err
		}
	}
	if s.runs(partScale) {
		r.Scale, err = scale(ctx, command, s)
	}
	return r, err
}

// many runs the parts that want many classes of many kinds.
func (r *Report) many(ctx context.Context, s Settings, command, doNothing string) (err error) {
	m, err := startMany(ctx, command, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	if s.runs(partWebhook) {
		if r.Webhook, err = m.webhook(ctx, doNothing); err != nil {
			return err
		}
	}
	if s.runs(partCreate) {
		if r.Create, err = m.create(ctx, doNothing); err != nil {
			return err
		}
	}
	if s.runs(partStorm) {
		r.Storm, err = m.storm(ctx)
	}
	return err
}
