package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/classbind"
)

// version of the release that is tested, $VERSION, is what the command in the pod and its log say.
func (d *deployment) version(t *testing.T) {
	printed := strings.Fields(d.kubectl(t, "exec", "deployment/classbind", "--namespace="+classbind.Namespace, "--", "/classbind", "version"))
	require.Len(t, printed, 4, "We should print one line.")
	if release := os.Getenv("VERSION"); release != "" {
		assert.Equal(t, release, printed[1], "We should have the image of the release in the pod.")
	}
	started := ""
	for line := range strings.Lines(d.kubectl(t, "logs", "deployment/classbind", "--namespace="+classbind.Namespace)) {
		if strings.Contains(line, "Starting classbind") {
			started = line
		}
	}
	assert.Contains(t, started, printed[1], "We should find the version in the log.")
}
