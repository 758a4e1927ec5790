package progress

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEvery has what is no terminal. A terminal needs a device that tests do not have everywhere.
func TestEvery(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	assert.Equal(t, 30*time.Second, every(file), "We should fill no file with lines.")
	assert.Equal(t, 30*time.Second, every(&bytes.Buffer{}), "We should fill no log with lines.")
	if terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		t.Cleanup(func() { _ = terminal.Close() })
		assert.Equal(t, 10*time.Second, every(terminal), "We should show a person at a terminal that something goes on.")
	}
}
