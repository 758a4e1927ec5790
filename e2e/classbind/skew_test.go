package classbind

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSkew(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte(`package main

import "time"

func main() {
	start := time.Now()
	print(start.Unix(), " ", time.Since(start) < time.Minute && time.Until(start) < time.Minute)
}
`), 0o600))
	for _, skew := range []time.Duration{-30 * time.Second, 0, 30 * time.Second} {
		flags, err := skewFlags(t.Context(), dir, skew)
		require.NoError(t, err)
		//nolint:gosec // What it builds is ours.
		out, err := exec.CommandContext(t.Context(), "go", append(append([]string{"run"}, flags...), source)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		clock, durations, _ := strings.Cut(string(out), " ")
		seconds, err := strconv.ParseInt(clock, 10, 64)
		require.NoError(t, err, "%s", out)
		assert.WithinDuration(t, time.Now().Add(skew), time.Unix(seconds, 0), 5*time.Second, "We should set the clock by %s.", skew)
		assert.Equal(t, "true", durations, "We should leave durations alone.")
	}
}
