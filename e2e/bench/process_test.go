package bench

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcess(t *testing.T) {
	// It works for a while, and then waits.
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read line")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	p := &process{cmd.Process.Pid}
	used, err := p.cpu()
	require.NoError(t, err)
	assert.Positive(t, used)
	more, err := p.cpuFor(t.Context(), time.Millisecond)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, more, time.Duration(0), "We should measure what it used in that time alone.")
	assert.Less(t, more, used, "We should measure what it used in that time alone.")
	rss, peak, err := p.memory()
	require.NoError(t, err)
	assert.Positive(t, rss)
	assert.GreaterOrEqual(t, peak, rss)

	_, err = (&process{-1}).cpu()
	require.Error(t, err)
	own, err := ownCPU()
	require.NoError(t, err)
	assert.Positive(t, own)
}
