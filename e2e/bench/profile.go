package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/classbind/classbind/e2e/classbind"
)

// profileRounds is how many rounds long the profiled one is.
const profileRounds = 4

// get a page of a replica's, such as /debug/pprof/profile.
var get = classbind.Get

// profileCPU of classbind in one more round, a long one that counts for nothing
// else, and write it to a file.
func (m *many) profileCPU(ctx context.Context, t *target) error {
	d := max(profileRounds*m.settings.Round, time.Second).Round(time.Second)
	_, _ = fmt.Fprintf(m.progress, "profiling classbind under load for %s\n", d)
	all, ctx := errgroup.WithContext(ctx)
	var profile []byte
	all.Go(func() (err error) {
		profile, err = get(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", m.replica.pprof, int(d.Seconds())))
		return err
	})
	all.Go(func() error {
		_, err := t.drive(ctx, d, 0)
		return err
	})
	if err := all.Wait(); err != nil {
		return fmt.Errorf("cannot profile classbind: %w", err)
	}
	if err := os.WriteFile(m.settings.CPUProfile, profile, 0o644); err != nil { //nolint:gosec // It is no secret.
		return fmt.Errorf("cannot save the profile: %w", err)
	}
	return nil
}
