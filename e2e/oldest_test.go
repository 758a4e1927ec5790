package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/assets"
)

var minorVersion = regexp.MustCompile(`Kubernetes v1\.(\d+)\.`)

// minor is that of the Kubernetes 1.x of which control planes are started here.
var minor = sync.OnceValues(func() (int, error) {
	dir, err := assets.Dir(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(filepath.Join(dir, "kube-apiserver"), "--version").Output() //nolint:gosec // It is the one under test.
	if err != nil {
		return 0, err
	}
	found := minorVersion.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("cannot read the version of kube-apiserver: %q", out)
	}
	return strconv.Atoi(string(found[1]))
})

// policiesServed reports whether the API server serves v1 of MutatingAdmissionPolicy.
func policiesServed(t testing.TB) bool {
	t.Helper()
	if inPods() {
		return true // The drivers start the newest release.
	}
	m, err := minor()
	require.NoError(t, err)
	return m >= 36
}

// needsPolicies skips a test where the release of Kubernetes is too old for policies.
func needsPolicies(t testing.TB) {
	t.Helper()
	if !policiesServed(t) {
		t.Skip("It needs MutatingAdmissionPolicy, which Kubernetes serves as v1 since 1.36.")
	}
}
