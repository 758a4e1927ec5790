package e2e

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/assets/assetstest"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/load"
	"github.com/classbind/classbind/e2e/progress"
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
	t.Run("Named", func(t *testing.T) { r.named(t, dist) })
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
	t.Run("Documents", func(t *testing.T) { installs(t, releaseVersion, dist) })
	t.Run("Installed", func(t *testing.T) { r.installs(t, dist) })
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
		{"NoGit", "rm -r .git", "make release VERSION=v0.1.0", "cannot determine which commit this is"},
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

var (
	docDownload = regexp.MustCompile(`releases/download/v0\.1\.0/([\w.-]*\w)`)
	docPlatform = regexp.MustCompile(`_(linux|darwin)_(amd64|arm64)`)
)

// named checks that a release has every file that a document names, and that docs/releases.md names every file that it has.
func (r *releaseTest) named(t *testing.T, dist string) {
	published := []string{"SHA256SUMS.sigstore.json", "classbind.intoto.jsonl"} // make publish and the workflow add these.
	for page := range strings.Lines(r.must(t, r.root, "git ls-files '*.md'")) {
		page = strings.TrimSpace(page)
		for _, found := range docDownload.FindAllStringSubmatch(readText(t, filepath.Join(r.root, page)), -1) {
			if !slices.Contains(published, found[1]) {
				assert.FileExists(t, filepath.Join(dist, found[1]), "We should make what %s names.", page)
			}
		}
	}
	page := readText(t, filepath.Join(r.root, "docs", "releases.md"))
	for _, file := range must(os.ReadDir(dist))(t) {
		assert.Contains(t, page, "`"+docPlatform.ReplaceAllString(file.Name(), "_OS_ARCH")+"`", "We should say what each file is.")
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
	assert.Contains(
		t, readText(t, filepath.Join(dist, "SHA256SUMS")), artifact.Layers[0].Digest.Hex+"  classbind-0.1.0.tgz\n",
		"We should push the chart as it is.",
	)
	args := strings.Split(strings.TrimSpace(readText(t, called)), "\n")
	assert.Equal(t, []string{"release", "create", "v0.1.0", "--verify-tag", "--title", "v0.1.0", "--notes"}, args[:7])
	assert.Contains(t, strings.Join(args, "\n"), "\nThe first release.", "We should say what is new.")
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

const upgradeGroup = "upgrade.test"

// olderRelease is the source of the commit before this one, and its command.
func olderRelease(t *testing.T) (root, command string) {
	deploy := must(classbind.Deploy(t.Context()))(t)
	archive := exec.CommandContext(t.Context(), "git", "archive", "HEAD~1")
	archive.Dir = filepath.Dir(deploy)
	source, err := archive.Output()
	if err != nil {
		t.Skipf("It needs the commit before this one, which a shallow clone does not have: git fetch --unshallow. (%v)", err)
	}
	root = t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", root) //nolint:gosec // It is a folder of the test's.
	unpack.Stdin = strings.NewReader(string(source))
	output(t, unpack)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "classbind", "./cmd/classbind")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output(t, build)
	return root, filepath.Join(root, "classbind")
}

// olderWorld is a cluster with the older release applied, and its command beside it, behind a Service.
func olderWorld(t *testing.T, service *classbind.Balancer) (*world, *replica) {
	root, command := olderRelease(t)
	plane := must(controlplane.Start(t.Context(), controlplane.Options{Progress: os.Stderr, ConnectionPerWebhookCall: true}))(t)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	w := &world{Kubectl: plane.Kubectl, config: plane.Config, plane: plane, deploy: filepath.Join(root, "deploy")}
	w.kubeconfig = must(classbind.Install(t.Context(), plane, w.deploy))(t)[0]
	require.NoError(t, w.connect())

	r := &replica{log: &progress.Log{}}
	r.Process = must(classbind.Start(command, w.kubeconfig, r.log, "--webhook-url="+service.URL, "--shutdown-delay-duration=5s"))(t)
	t.Cleanup(func() { assert.NoError(t, r.Stop()) })
	r.logFailure(t)
	require.NoError(t, r.Ready(t.Context()))
	service.Add(strings.TrimPrefix(r.URL, "https://"))
	return w, r
}

// TestUpgrade goes from the commit before to this one as docs/upgrade-and-uninstall.md says, while claims are created. Processes take the
// place of the pods, where the older one ends once the newer one is ready.
func TestUpgrade(t *testing.T) {
	long(t)
	notInPods(t, "It needs a control plane of its own, with classbind as a process beside it.")
	t.Parallel()
	service := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = service.Close() })
	w, old := olderWorld(t, service)
	w.resources(t, "Claim claims.upgrade.test Namespaced", "Class classes.upgrade.test Cluster")
	w.apply(t, vendor(upgradeGroup)+claimKind("claims.upgrade.test", "{}")+serving("classes.upgrade.test", "claims.upgrade.test"))
	w.kubectl(t, "wait", "claimkinds", "--all", "--for=condition=Ready", "--timeout=5m")
	w.kubectl(t, "wait", "classkinds", "--all", "--for=condition=Guarded", "--timeout=5m")
	w.awaitRefused(t, class(upgradeGroup, "Class", "probe", "annotations: {classbind.io/weight: x}, "), "must be an integer", "We should be asked about classes.")
	w.apply(t, class(upgradeGroup, "Class", "usual", isDefault))
	w.awaitBound(t, strings.Replace(claim(upgradeGroup, "probe"), "classSelector: {}", "", 1), "Class/usual", "We should have the older release bind claims.")

	w.namespaces(t, "load")
	claims := load.Start(t.Context(), load.Options{
		Client: w.Client, Kinds: []schema.GroupVersionKind{{Group: upgradeGroup, Version: "v1", Kind: "Claim"}}, Namespace: "load", PerSecond: 20,
		Foreign: func(class string) bool { return class != "Class/usual" },
	})
	require.NoError(t, claims.Next(t.Context(), 20))
	w.deploy = must(classbind.Deploy(t.Context()))(t)
	for _, block := range documented(t, "docs/upgrade-and-uninstall.md") {
		for _, line := range block.lines {
			w.kubectl(t, strings.Fields(strings.ReplaceAll(line, "-k overlay", "-k "+w.deploy))[1:]...)
		}
	}
	newer := w.start(t, "--webhook-url="+service.URL)
	require.NoError(t, newer.Ready(t.Context()))
	service.Add(strings.TrimPrefix(newer.URL, "https://"))
	service.Remove(strings.TrimPrefix(old.URL, "https://"))
	require.NoError(t, old.Stop())
	require.NoError(t, claims.Next(t.Context(), 40))
	report := must(claims.Stop(t.Context()))(t)
	t.Log(report)
	assert.Zero(t, report.Failures+report.Unbound+report.Unlike+report.Foreign, "We should refuse no claim, and create none without its class.")

	w.refuses(t, class(upgradeGroup, "Class", "second", isDefault), `"Class/usual" is the default class`)
	w.kubectl(t, "annotate", "classes.upgrade.test", "usual", "resourceclass.crossplane.io/is-default-class-")
	_, _, err := w.create(t, class(upgradeGroup, "Class", "next", isDefault))
	require.NoError(t, err, "We should have the Lease of the older release keep nobody from becoming the default.")
	w.refuses(t, class(upgradeGroup, "Class", "second", isDefault), `"Class/next" is the default class`)
}

// TestRun does what make run says, and ends it.
func TestRun(t *testing.T) {
	long(t)
	t.Parallel()
	notInPods(t, "It starts a control plane of its own.")
	// A process that ignores interrupts has its children ignore them, too.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	for name, tc := range map[string]struct {
		reason string
		signal syscall.Signal
		// all reports whether the children of make get the signal, as they do from a terminal.
		all bool
	}{
		"Interrupt": {reason: "We should end without an error when people press Ctrl-C.", signal: syscall.SIGINT, all: true},
		"Terminate": {reason: "We should end when make alone is told to, and leave no server behind.", signal: syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			out := &progress.Log{}
			run := exec.Command("make", "run") //nolint:noctx // It is to end by the signal alone.
			run.Dir, run.Stdout, run.Stderr = "..", out, out
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			run.WaitDelay = patience // Its children have the pipe.
			require.NoError(t, run.Start())
			t.Cleanup(func() { _ = syscall.Kill(-run.Process.Pid, syscall.SIGTERM) })
			environment := regexp.MustCompile(`export (KUBECONFIG='([^']+)' PATH=.*)`)
			require.EventuallyWithT(t, func(c *attempt) {
				require.Regexp(c, environment, out.String())
				require.Contains(c, out.String(), "its Deployment stays at 0 of 2 pods")
			}, 10*time.Minute, 100*time.Millisecond) // It may have to compile.
			said := environment.FindStringSubmatch(out.String())
			shell := func(command string) string {
				in := exec.CommandContext(t.Context(), "sh", "-euc", fmt.Sprintf("export %s; cd ..; %s", said[1], command)) //nolint:gosec // It runs what make run prints.
				text, err := in.CombinedOutput()
				require.NoError(t, err, "%s", text)
				return string(text)
			}
			for _, b := range documented(t, "deploy/samples/crossplane/README.md") {
				want := "...\n" + strings.Join(b.lines, "\n") + "\n..."
				assert.True(t, docMatches(want, out.String()), "We should print what the sample shows:\n%s", out)
			}
			assert.Contains(
				t, shell("classbind explain PostgreSQLInstance/gitlab-database --namespace acme-team --unbound"), "bound to",
				"We should have classbind on the PATH.",
			)
			shell("kubectl delete -k deploy --wait=false")

			process := run.Process.Pid
			if tc.all {
				process = -process
			}
			require.NoError(t, syscall.Kill(process, tc.signal))
			_ = run.Wait() // make ends by the signal.
			eventually(t, func(c *attempt) {
				require.NoDirExists(c, filepath.Dir(said[2]), "We should clean up.")
				require.NoError(c, gone(-run.Process.Pid))
			}, tc.reason)
			assert.NotContains(t, strings.ToLower(out.String()), "error", tc.reason)
		})
	}
}

// TestFirstMinute has a clone, Go, and an index of envtest: it runs the demonstration, and builds no Kubernetes. What the index lists
// starts our own binaries, so the time of the download itself is not in what is logged.
func TestFirstMinute(t *testing.T) {
	long(t)
	notInPods(t, "It starts a control plane of its own.")
	binaries := must(assets.Dir(t.Context(), os.Stderr))(t)
	files := map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		files[name] = fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", filepath.Join(binaries, name))
	}
	clone := filepath.Join(t.TempDir(), "classbind")
	out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "..", clone).CombinedOutput() //nolint:gosec // It is a folder of the test's.
	if err != nil {
		t.Skipf("It needs a clone: %s", out)
	}
	demo := exec.CommandContext(t.Context(), "make", "demo")
	demo.Dir = clone
	demo.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=", "ENVTEST_INDEX="+assetstest.Index(t, "v1.37.1", files)+"/index.yaml")
	demo.Env = append(demo.Env, goFolders(t)...)
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
		demo.Env = append(demo.Env, name+"="+t.TempDir())
	}
	begin := time.Now()
	said := output(t, demo)
	t.Logf("The demonstration took %s.", time.Since(begin).Round(time.Second))
	assert.Contains(t, said, "downloading etcd, kube-apiserver, kubectl of Kubernetes 1.37.x", "We should download.")
	assert.NotContains(t, said, "from source", "We should build no Kubernetes.")
	assert.Regexp(t, `after +\S+ (CloudSQL|RDS)InstanceClass/`, said, "We should show claims that are bound.")
}

func gone(process int) error {
	if err := syscall.Kill(process, 0); err != syscall.ESRCH {
		return fmt.Errorf("%d is there: %w", process, err)
	}
	return nil
}
