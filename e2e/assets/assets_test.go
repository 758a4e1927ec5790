package assets

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAssetsGiven(t *testing.T) {
	cases := map[string]struct {
		reason string
		files  []string
		err    string // "" for none
	}{
		"Complete":   {reason: "We should take what setup-envtest lays out", files: binaries},
		"OneMissing": {reason: "We should name the only missing file", files: []string{"etcd", "kube-apiserver"}, err: `cannot use $KUBEBUILDER_ASSETS: no executable "kubectl" in`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range tc.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o700)) //nolint:gosec // It is to be executed.
			}
			t.Chdir(dir)
			for _, given := range []string{dir, "."} {
				t.Setenv(envAssets, given)
				got, err := Dir(t.Context(), nil)
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err, tc.reason)
					continue
				}
				require.NoError(t, err, tc.reason)
				assert.Equal(t, dir, got, tc.reason)
			}
		})
	}
}

func TestAssetsOutsideTheModule(t *testing.T) {
	t.Setenv(envAssets, "")
	t.Chdir(t.TempDir())
	_, err := Dir(t.Context(), nil)
	require.ErrorContains(t, err, "set $KUBEBUILDER_ASSETS")
}

// A module of the same name, with a kube that builds in a second, goes the same way as ours.
func TestAssetsBuilt(t *testing.T) {
	emptyHome(t)
	t.Setenv(envIndex, indexOff)
	write := smallSource(t)

	write("cmd/kube/main.go", "package main\nfunc main() { undefined() }\n")
	var progress bytes.Buffer
	_, err := Dir(t.Context(), &progress)
	require.ErrorContains(t, err, "undefined: undefined", "the compiler's words")
	assert.Contains(t, progress.String(), "building etcd, kube-apiserver and kubectl v1.99.5 from source")

	write("cmd/kube/main.go", `package main
import "os"
func main() { os.Stdout.WriteString(os.Args[0]) }
`)
	var wg sync.WaitGroup
	var built [3]bytes.Buffer
	var dirs [3]string
	for i := range built {
		wg.Go(func() {
			var err error
			dirs[i], err = Dir(t.Context(), &built[i])
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, dirs[0], dirs[1])
	assert.Equal(t, dirs[0], dirs[2])
	all := built[0].String() + built[1].String() + built[2].String()
	assert.Equal(t, 1, strings.Count(all, "built in"), "one builds, the others wait: %s", all)
	for _, name := range binaries {
		out, err := exec.Command(filepath.Join(dirs[0], name)).Output() //nolint:gosec // It is what was just built.
		require.NoError(t, err)
		assert.Equal(t, name, filepath.Base(string(out)), "called by its own name")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dirs[0]), "*"))
	require.NoError(t, err)
	assert.Len(t, left, 2, "the lock, the one folder, and nothing of the failed build: %v", left)

	write("cmd/kube/main.go", "package main\nfunc main() {}\n")
	other, err := Dir(t.Context(), nil)
	require.NoError(t, err)
	assert.NotEqual(t, dirs[0], other, "another source is another folder")

	src, err := findSource(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "-s -w -X k8s.io/component-base/version.gitVersion=v1.99.5"+
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=99", src.ldflags())
}
