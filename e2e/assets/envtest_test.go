package assets

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/assets/assetstest"
)

func wrongChecksum([]byte) string { return strings.Repeat("0", 128) }

// scripts are the binaries, all the same.
func scripts(text string) map[string]string {
	files := map[string]string{}
	for _, name := range binaries {
		files[name] = text
	}
	return files
}

// emptyHome has no binaries of anybody. What Go has compiled stays known.
func emptyHome(t *testing.T) {
	t.Helper()
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output() //nolint:gosec // The names are above.
		require.NoError(t, err)
		t.Setenv(name, string(bytes.TrimSpace(value)))
	}
	t.Setenv(envAssets, "")
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		t.Setenv(name, t.TempDir())
	}
}

// smallSource is a module of the same name, with a kube that builds in a second.
func smallSource(t *testing.T) (write func(name, content string)) {
	t.Helper()
	t.Chdir(t.TempDir())
	write = func(name, content string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	write("go.mod", `module github.com/classbind/classbind/e2e
go 1.26.0
require k8s.io/kubernetes v1.99.5
replace k8s.io/kubernetes => ./kubernetes
`)
	write("go.sum", "")
	write("kubernetes/go.mod", "module k8s.io/kubernetes\n")
	write("cmd/kube/main.go", "package main\nfunc main() { println(\"built\") }\n")
	return write
}

func TestAssetsDownloaded(t *testing.T) {
	const downloaded, built = "#!/bin/sh\necho downloaded >&2\n", "building etcd, kube-apiserver and kubectl v1.99.5 from source"
	for name, tc := range map[string]struct {
		reason   string
		version  string
		checksum func([]byte) string
		index    string // below the server's URL, or another
		says     string // the binaries do
		progress []string
		err      string
	}{
		"Right":         {reason: "We should take what the index lists, of any patch.", says: "downloaded\n", progress: []string{"downloading etcd, kube-apiserver, kubectl of Kubernetes 1.99.x", "stored in "}},
		"WrongChecksum": {reason: "We should use nothing that is not what the index says.", checksum: wrongChecksum, err: "the download is not what the index says"},
		"OtherVersion":  {reason: "We should build where the index has no such version.", version: "v1.98.0", says: "built\n", progress: []string{"cannot download them", built}},
		"Missing":       {reason: "We should build where there is no index.", index: "/nothing", says: "built\n", progress: []string{"404 Not Found", built}},
		"Garbage":       {reason: "We should build where the index is none.", index: "/garbage.yaml", says: "built\n", progress: []string{"cannot download them", built}},
		"Unreachable":   {reason: "We should build where nobody can be reached.", index: "http://localhost:1/index.yaml", says: "built\n", progress: []string{"connection refused", built}},
		"Off":           {reason: "We should build where nothing may be downloaded.", index: indexOff, says: "built\n", progress: []string{`$ENVTEST_INDEX is "off"`, built}},
		"NoURL":         {reason: "We should say what an index is.", index: "index.yaml", err: `$ENVTEST_INDEX is "index.yaml": must be the URL of an index`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.checksum == nil {
				tc.checksum = assetstest.Checksum
			}
			url, index := assetstest.Index(t, cmp.Or(tc.version, "v1.99.7"), scripts(downloaded), tc.checksum), cmp.Or(tc.index, "/index.yaml")
			if strings.HasPrefix(index, "/") {
				index = url + index
			}
			emptyHome(t)
			t.Setenv(envIndex, index)
			smallSource(t)
			var progress bytes.Buffer
			dir, err := Dir(t.Context(), &progress)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				assert.NotContains(t, progress.String(), built)
				return
			}
			require.NoError(t, err, "%s\n%s", tc.reason, progress.String())
			for _, text := range tc.progress {
				assert.Contains(t, progress.String(), text, tc.reason)
			}
			for _, name := range binaries {
				out, err := exec.Command(filepath.Join(dir, name)).CombinedOutput() //nolint:gosec // It is one of ours.
				require.NoError(t, err)
				assert.Equal(t, tc.says, string(out), tc.reason)
			}

			t.Setenv(envIndex, "http://localhost:1/index.yaml")
			progress.Reset()
			again, err := Dir(t.Context(), &progress)
			require.NoError(t, err, "We should ask nobody for what we have.")
			assert.Equal(t, dir, again)
			assert.Empty(t, progress.String(), "We should do nothing anew.")
		})
	}
}

// TestAssetsStoredInPart has envtest store binaries of which one is gone.
func TestAssetsStoredInPart(t *testing.T) {
	emptyHome(t)
	t.Setenv(envIndex, assetstest.Index(t, "v1.99.7", scripts("#!/bin/sh\n"), assetstest.Checksum)+"/index.yaml")
	smallSource(t)
	dir, err := Dir(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // It is a folder.
	require.NoError(t, os.Remove(filepath.Join(dir, "kubectl")))
	var progress bytes.Buffer
	_, err = Dir(t.Context(), &progress)
	require.NoError(t, err)
	assert.Contains(t, progress.String(), `no executable "kubectl"`, "We should say why we build.")
}
