package e2e

import (
	"debug/buildinfo"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/classbind"
)

const (
	releaseVersion = "v0.1.0"
	releaseImage   = "ghcr.io/classbind/classbind:" + releaseVersion
)

// releaseTest makes a release of the files that are here, in a repository of its own.
type releaseTest struct {
	root string            // a clone
	dist *httptest.Server  // what is published, as GitHub would serve it
	env  map[string]string // beside the caller's
}

func (r *releaseTest) run(t *testing.T, folder string, lines ...string) (string, error) {
	c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(lines, "\n")) //nolint:gosec // It is the test's own.
	c.Dir, c.Env = folder, os.Environ()
	for name, value := range r.env {
		c.Env = append(c.Env, name+"="+value)
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

func (r *releaseTest) must(t *testing.T, folder string, lines ...string) string {
	out, err := r.run(t, folder, lines...)
	require.NoError(t, err, "%s:\n%s", strings.Join(lines, "\n"), out)
	return out
}

func (r *releaseTest) clone(t *testing.T, name string) string {
	folder := filepath.Join(t.TempDir(), name)
	r.must(t, r.root, "git clone --quiet . '"+folder+"'")
	return folder
}

// stub is a program that prints its arguments into a file.
func (r *releaseTest) stub(t *testing.T, name string) (called string) {
	folder := t.TempDir()
	called = filepath.Join(folder, "called")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" > '" + called + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700)) //nolint:gosec // It is to be executed.
	r.env["PATH"] = folder + ":" + os.Getenv("PATH")
	t.Cleanup(func() { delete(r.env, "PATH") })
	return called
}

func readText(t *testing.T, path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // It is the test's own.
	require.NoError(t, err)
	return string(text)
}

// TestRelease runs what docs/releases.md says to the user and to the maintainer.
func TestRelease(t *testing.T) {
	long(t)
	if inPods() || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("It needs Go, and the machine that the page names.")
	}
	t.Parallel()
	r := &releaseTest{root: filepath.Join(t.TempDir(), "classbind"), env: map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "MAKEFLAGS": "", "GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_NAME": "a", "EMAIL": "a@example.org",
	}}
	copyRepository(t, r.root)
	r.must(t, r.root, "git init --quiet --initial-branch=main .", "git add .", "git commit --quiet --message=All", "git tag "+releaseVersion)
	r.refuses(t)

	dist := filepath.Join(r.root, "dist")
	r.dist = httptest.NewServer(http.FileServer(http.Dir(dist)))
	t.Cleanup(r.dist.Close)
	blocks := documented(t, "docs/releases.md")
	require.Len(t, blocks, 6)
	verify, signed, sbom, build, krew, release := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4], blocks[5]
	block := func(t *testing.T, folder string, b docBlock) string {
		return r.must(t, folder, strings.Split(docRelease.ReplaceAllString(strings.Join(b.lines, "\n"), r.dist.URL+"/"), "\n")...)
	}
	t.Log(block(t, r.root, release))

	t.Run("Verify", func(t *testing.T) {
		out := block(t, t.TempDir(), verify)
		assert.Contains(t, out, "classbind_v0.1.0_linux_amd64.tar.gz: OK\n")
		assert.Contains(t, out, "classbind v0.1.0 go1.", "We should name the version.")
	})
	t.Run("SameElsewhere", func(t *testing.T) {
		block(t, r.clone(t, "another/folder"), build)
	})
	t.Run("Krew", func(t *testing.T) {
		called := r.stub(t, "kubectl")
		block(t, t.TempDir(), krew)
		assert.Equal(t, "krew\ninstall\n--manifest-url="+r.dist.URL+"/krew.yaml\n", readText(t, called))
		r.validKrew(t, dist)
	})
	t.Run("Manifests", func(t *testing.T) {
		digest := r.checkImage(t, dist)
		for _, name := range []string{"install.yaml", "install-cert-manager.yaml"} {
			text := readText(t, filepath.Join(dist, name))
			assert.Equal(t, 1, strings.Count(text, "image: "+releaseImage+"@"+digest+"\n"), "We should run the image of the release in %s.", name)
			assert.NotContains(t, text, "localhost/")
		}
	})
	t.Run("Chart", func(t *testing.T) {
		chart := filepath.Join(dist, "classbind-0.1.0.tgz")
		must(helm(t, "lint", "--strict", chart))(t)
		sameObjects(t, readText(t, filepath.Join(dist, "install.yaml")), chart, "", classbind.Namespace)
		sameObjects(t, readText(t, filepath.Join(dist, "install-cert-manager.yaml")), chart, "certificates: cert-manager", classbind.Namespace)
	})
	t.Run("SBOM", func(t *testing.T) { r.checkBOM(t, dist) })
	t.Run("Publish", func(t *testing.T) { r.publishes(t, dist, slices.Concat(signed.lines, sbom.lines)) })
}

func (r *releaseTest) refuses(t *testing.T) {
	for _, tc := range []struct{ name, before, command, want string }{
		{"NoVersion", "", "make release", "VERSION is not set: name the version, as in make release VERSION=v0.1.0"},
		{"NoV", "", "make release VERSION=0.1.0", `VERSION is "0.1.0": it must be like v0.1.0`},
		{"BuildMetadata", "", "make release VERSION=v0.1.0+1", "it must be like v0.1.0"},
		{"Unwritten", "", "make release VERSION=v9.0.0", "CHANGELOG.md has no section for v9.0.0"},
		{"Undated", "sed -i 's/^## .0.1.0..*/## [0.1.0]/' CHANGELOG.md", "make release VERSION=v0.1.0", "CHANGELOG.md has no date for v0.1.0"},
		{"Changed", "echo >> README.md", "make release VERSION=v0.1.0", "the folder is not what is committed"},
		{"NewFile", "touch new", "make release VERSION=v0.1.0", "?? new"},
		{"OtherCommit", "git commit --quiet --allow-empty --message=Next", "make release VERSION=v0.1.0", "v0.1.0 is the tag of the commit"},
		{"NotOurs", "mkdir dist && touch dist/mine", "make release VERSION=v0.1.0", "has files that are no release: move them away"},
		{"NoGit", "rm -r .git", "make release VERSION=v0.1.0", "cannot tell which commit this is"},
		{"NotBuilt", "", "make publish VERSION=v0.1.0", "there is no dist/classbind_v0.1.0_image.tar: run make release VERSION=v0.1.0 first"},
		{"PublishNothing", "", "make publish", "VERSION is not set"},
		{"TestNothing", "", "make --assume-old=build e2e RELEASE=v0.1.0 CLUSTER=e2e/kind", "run make release VERSION=v0.1.0 first"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := r.run(t, r.clone(t, "classbind"), tc.before, tc.command)
			require.Error(t, err, "%s", out)
			assert.Contains(t, out, tc.want)
			assert.NotContains(t, out, "==> Installing", "We should say so before we build anything.")
		})
	}
}

func (r *releaseTest) validKrew(t *testing.T, dist string) {
	text, sums := readText(t, filepath.Join(dist, "krew.yaml")), readText(t, filepath.Join(dist, "SHA256SUMS"))
	for line := range strings.Lines(sums) {
		if sum, name, _ := strings.Cut(strings.TrimSpace(line), "  "); strings.HasSuffix(name, ".tar.gz") {
			assert.Contains(t, text, "sha256: "+sum+"\n    uri: https://github.com/classbind/classbind/releases/download/v0.1.0/"+name)
		}
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "classbind.yaml"), []byte(text), 0o600))
	// A module of its own, because go run PACKAGE@VERSION asks the proxy for more than that version.
	r.must(t, folder, "go mod init krew", "go mod edit -require=sigs.k8s.io/krew@v0.5.0",
		"CGO_ENABLED=0 go run -mod=mod sigs.k8s.io/krew/cmd/validate-krew-manifest -skip-install -manifest classbind.yaml")
}

func (r *releaseTest) checkImage(t *testing.T, dist string) string {
	folder := t.TempDir()
	r.must(t, folder, "tar -xf '"+filepath.Join(dist, "classbind_v0.1.0_image.tar")+"'")
	all := must(layout.ImageIndexFromPath(folder))(t)
	named := must(all.IndexManifest())(t)
	require.Len(t, named.Manifests, 1)
	index, err := all.ImageIndex(named.Manifests[0].Digest)
	require.NoError(t, err, "We should have an index.")
	require.NoError(t, validate.Index(index))
	manifest := must(index.IndexManifest())(t)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		i := must(index.Image(m.Digest))(t)
		config := must(i.ConfigFile())(t)
		assert.Equal(t, m.Platform.Architecture, config.Architecture)
		assert.Equal(t, "65532:65532", config.Config.User)
		assert.Equal(t, releaseVersion, config.Config.Labels["org.opencontainers.image.version"])
	}
	assert.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	return named.Manifests[0].Digest.String()
}

// checkBOM lists the modules of the binary, which the binary itself knows, each with a license.
func (r *releaseTest) checkBOM(t *testing.T, dist string) {
	folder := t.TempDir()
	r.must(t, folder, "tar -xzf '"+filepath.Join(dist, "classbind_v0.1.0_linux_amd64.tar.gz")+"'")
	info := must(buildinfo.ReadFile(filepath.Join(folder, "classbind")))(t)
	want := map[string]string{"std": info.GoVersion}
	for _, m := range info.Deps {
		want[m.Path] = m.Version
	}
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version string
			Licenses      []any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(readText(t, filepath.Join(dist, "classbind_v0.1.0_linux_amd64.cdx.json"))), &bom))
	got := map[string]string{}
	for _, c := range bom.Components {
		got[c.Name] = c.Version
		assert.NotEmpty(t, c.Licenses, "We should know the license of %s.", c.Name)
	}
	assert.Equal(t, "CycloneDX", bom.BOMFormat)
	assert.Equal(t, want, got)
}

// publishes to a registry on this machine, and verifies what is there as a user would. gh is not real, and a key signs instead of the
// identity of a workflow.
func (r *releaseTest) publishes(t *testing.T, dist string, verify []string) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	called := r.stub(t, "gh")
	user := t.TempDir()
	tools := regexp.MustCompile(`(?m)^(COSIGN|CRANE) +=.*`).FindAllString(readText(t, filepath.Join(r.root, "Makefile")), -1)
	require.Len(t, tools, 2)
	for i, tool := range tools {
		name, command, _ := strings.Cut(tool, "=")
		tools[i] = strings.ToLower(strings.TrimSpace(name)) + "() { " + command + ` "$@"; }`
	}
	r.must(t, user, append(tools, "COSIGN_PASSWORD= cosign generate-key-pair")...)
	out := r.must(t, r.root, "COSIGN_PASSWORD= make publish VERSION=v0.1.0 IMAGE="+host+"/classbind SIGN="+user+"/cosign.key")
	assert.Contains(t, out, "==> Pushing "+host+"/classbind:v0.1.0")
	text := strings.Join(verify, "\n")
	for from, to := range map[string]string{
		`--certificate-identity=https://github.com/classbind/classbind/.github/workflows/release.yaml@refs/tags/v0.1.0"`: `--key=` + user + `/cosign.pub"`,
		`--certificate-oidc-issuer=https://token.actions.githubusercontent.com"`:                                         `--insecure-ignore-tlog=true"`,
		"ghcr.io/classbind": host,
	} {
		require.Contains(t, text, from)
		text = strings.ReplaceAll(text, from, to)
	}
	text = docRelease.ReplaceAllString(text, r.dist.URL+"/")
	out = r.must(t, t.TempDir(), append(tools, text)...)
	assert.Contains(t, out, "Verified OK", "We should have signed the checksums.")
	assert.Equal(t, 2, strings.Count(out, `"type":"https://sigstore.dev/cosign/sign/v1"`), "We should have signed the image and the chart: %s", out)
	assert.Contains(t, out, `"bomFormat": "CycloneDX"`)
	r.must(t, user, append(tools, "COSIGN_PASSWORD= cosign generate-key-pair --output-key-prefix=another")...)
	_, err := r.run(t, t.TempDir(), append(tools, strings.ReplaceAll(text, "cosign.pub", "another.pub"))...)
	require.Error(t, err, "Another key should verify nothing.")
	response, err := http.Get(server.URL + "/v2/classbind/manifests/v0.1.0") //nolint:noctx // It is on this machine.
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	pushed := must(v1.ParseIndexManifest(response.Body))(t)
	assert.Len(t, pushed.Manifests, 2, "We should push both platforms.")
	chart, err := http.Get(server.URL + "/v2/charts/classbind/manifests/0.1.0") //nolint:noctx // It is on this machine.
	require.NoError(t, err)
	t.Cleanup(func() { _ = chart.Body.Close() })
	artifact := must(v1.ParseManifest(chart.Body))(t)
	require.Len(t, artifact.Layers, 1)
	assert.Contains(t, readText(t, filepath.Join(dist, "SHA256SUMS")), artifact.Layers[0].Digest.Hex+"  classbind-0.1.0.tgz\n", "We should push the chart as it is.")
	args := strings.Split(strings.TrimSpace(readText(t, called)), "\n")
	assert.Equal(t, []string{"release", "create", "v0.1.0", "--verify-tag", "--title", "v0.1.0", "--notes"}, args[:7])
	assert.Contains(t, args, "The first release.", "We should say what is new.")
	assert.NotContains(t, args, "--prerelease")
	files := must(os.ReadDir(dist))(t)
	for _, file := range files {
		assert.Contains(t, args, "dist/"+file.Name())
	}

	require.NoError(t, os.WriteFile(filepath.Join(dist, "install.yaml"), []byte("kind: Other"), 0o600))
	out, err = r.run(t, r.root, "make publish VERSION=v0.1.0 IMAGE="+host+"/changed")
	require.Error(t, err)
	assert.Contains(t, out, "dist/ is not what make release wrote", "We should publish nothing that was changed.")
}
