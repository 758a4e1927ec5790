package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// profileRounds is how many rounds long the profiled one is.
const profileRounds = 4

// get a page of a replica's, such as /debug/pprof/heap.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return body, err
}

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
