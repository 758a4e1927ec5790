package classbind

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Now() as Go has it, and what is put in the place of its first line.
const (
	now       = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	skewedNow = `// skew is set by the linker: by how many seconds the clock is wrong.
var skew string

var skewSeconds = func() int64 {
	n, _ := atoi(skew)
	return int64(n)
}()

` + now + "\tsec += skewSeconds\n"
)

// BuildSkewed builds the command in dir for a host whose clock is ahead by the skew, in whole seconds, or behind by a negative one. All of
// it has that clock, TLS and leader election included; what measures durations is not affected.
//
// Production code has no hook for this: the standard library is compiled with another time.Now, once for all skews.
func BuildSkewed(ctx context.Context, dir string, skew time.Duration) (string, error) {
	if skew == 0 {
		return Build(ctx, dir)
	}
	flags, err := skewFlags(ctx, dir, skew)
	if err != nil {
		return "", fmt.Errorf("cannot skew classbind's clock: %w", err)
	}
	return Build(ctx, dir, flags...)
}

// skewFlags of go build. The overlay is written to dir.
func skewFlags(ctx context.Context, dir string, skew time.Duration) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT")
	var err error
	if cmd.Dir, err = root(ctx); err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find Go's source: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	source, err := os.ReadFile(path) //nolint:gosec // It is Go's own source.
	if err != nil {
		return nil, err
	}
	if strings.Count(string(source), now) != 1 {
		return nil, fmt.Errorf("%s does not have what is to be replaced:\n%s", path, now)
	}
	replaced := filepath.Join(dir, "time.go")
	if err := os.WriteFile(replaced, []byte(strings.Replace(string(source), now, skewedNow, 1)), 0o600); err != nil { //nolint:gosec // The folder is the caller's.
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: replaced}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "overlay.json")
	return []string{"-overlay=" + file, fmt.Sprintf("-ldflags=-X time.skew=%d", int(skew.Seconds()))}, os.WriteFile(file, overlay, 0o600)
}
