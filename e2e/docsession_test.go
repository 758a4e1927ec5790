package e2e

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/controlplane"
)

const docPatience = 10 * time.Minute

// docLoop is the shell of a session: it runs a file in each turn, and says when it is done. What a file
// leaves, as variables and the folder, is there for the next. The machine may be slower than a user's.
const docLoop = `kubectl() { [ "${1:-}" != wait ] || set -- "$@" --timeout=5m; command kubectl "$@"; }
while IFS= read -r -u 3 file; do
  source "$file" < /dev/null > "$file.out" 2>&1 3<&- 4>&-
  echo done >&4
done`

type docSession struct {
	// root is a copy of the repository, and dir has all else.
	root, dir string
	image     string // $IMAGE, in pods.
	dist      string // the folder of a release, or empty

	to     io.Writer
	done   chan bool // It is closed when the shell ends.
	shell  *exec.Cmd
	steps  int
	served *httptest.Server
}

func newDocSession(t *testing.T, kind string) *docSession {
	switch {
	case inPods():
		return docSessionWith(t, os.Getenv("KUBECONFIG"))
	case kind == docsNone:
		return docSessionWith(t, "")
	case kind == docsEmpty:
		plane := must(controlplane.Start(t.Context(), controlplane.Options{Progress: os.Stderr}))(t)
		t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
		return docSessionWith(t, plane.Kubeconfig)
	}
	w := newWorld(t, controlplane.Options{})
	// Without its log at the end: what a command prints explains more of a page.
	r := must(w.run("--in-flight-window=2s"))(t) // Some commands wait for it.
	t.Cleanup(func() { assert.NoError(t, r.Stop(), "We should see the replica end well.") })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.Ready(ctx), "We should have a replica that is ready.")
	if kind == docsCrossplane {
		w.applySamples(t)
	}
	return docSessionWith(t, w.plane.Kubeconfig)
}

// docSessionWith a kubeconfig. Without one, there is no cluster.
func docSessionWith(t *testing.T, kubeconfig string) *docSession {
	s := &docSession{dir: t.TempDir(), root: filepath.Join(t.TempDir(), "classbind"), image: podImage}
	if kubeconfig == "" {
		kubeconfig = filepath.Join(s.dir, "none.kubeconfig")
	}
	var path []string
	if inPods() {
		path = append(path, filepath.Join(filepath.Dir(podDeploy), "bin"))
		require.NoError(t, os.CopyFS(filepath.Join(s.root, "deploy"), os.DirFS(podDeploy)))
		deployment := filepath.Join(s.root, "deploy", "base", "deployment.yaml") // With the image that the nodes have.
		manifest := strings.ReplaceAll(readText(t, deployment), "localhost/classbind:dev", s.image)
		require.NoError(t, os.WriteFile(deployment, []byte(manifest), 0o600))
	} else {
		copyRepository(t, s.root)
		binaries := must(assets.Dir(t.Context(), os.Stderr))(t)
		path = append(path, filepath.Dir(command), binaries)
	}
	for name, script := range map[string]string{
		"docker": `[ "$1" != run ] || { shift 3; exec classbind "$@"; }`, // run --rm IMAGE ARGUMENT...
		"kind":   "",
	} {
		file := filepath.Join(s.dir, name)
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // It is to be executed.
	}
	path = append(path, s.dir)
	s.serveReleases(t)
	s.start(t, []string{"KUBECONFIG=" + kubeconfig, "PATH=" + strings.Join(append(path, os.Getenv("PATH")), ":")})
	return s
}

// copyRepository as git has it, with what is new, and without what is ignored or deleted.
func copyRepository(t *testing.T, to string) {
	const script = `cd .. && mkdir -p "$0" && git ls-files --cached --others --exclude-standard |
while IFS= read -r path; do test ! -e "$path" || echo "$path"; done | tar -cf - -T - | tar -xf - -C "$0"`
	output(t, exec.CommandContext(t.Context(), "sh", "-ec", script, to)) //nolint:gosec // The folder is the test's own.
}

// serveReleases as GitHub would: the folder of a release, or else what make release has written to dist, and install.yaml. Of the Gateway
// API, it serves the CRDs, with what classbind reads of them.
func (s *docSession) serveReleases(t *testing.T) {
	dist := must(filepath.Abs(filepath.Join("..", "dist")))(t)
	gateways := must(filepath.Abs(filepath.Join(projects, "crds", "gateway-api.yaml")))(t)
	s.served = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/standard-install.yaml":
			http.ServeFile(w, r, gateways)
			return
		case r.URL.Path != "/install.yaml" || s.dist != "":
			http.FileServer(http.Dir(cmp.Or(s.dist, dist))).ServeHTTP(w, r)
			return
		}
		out, err := exec.CommandContext(r.Context(), "kubectl", "kustomize", filepath.Join(s.root, "deploy")).Output() //nolint:gosec // It is ours.
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(out)
	}))
	t.Cleanup(s.served.Close)
}

func (s *docSession) start(t *testing.T, env []string) {
	stepsRead, stepsWrite, err := os.Pipe()
	require.NoError(t, err)
	doneRead, doneWrite, err := os.Pipe()
	require.NoError(t, err)
	s.shell = exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", docLoop)
	s.shell.Dir = s.root
	s.shell.Env = append(append(os.Environ(), goFolders(t)...), "HOME="+s.dir, "KUBECACHEDIR="+filepath.Join(s.dir, "kubectl"), "KUBERC=off", "LC_ALL=C.UTF-8")
	s.shell.Env = append(s.shell.Env, env...)
	s.shell.ExtraFiles = []*os.File{stepsRead, doneWrite}
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, s.shell.Start())
	_, _ = stepsRead.Close(), doneWrite.Close()
	s.to, s.done = stepsWrite, make(chan bool)
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(doneRead); lines.Scan(); {
			s.done <- true
		}
	}()
	t.Cleanup(func() {
		_ = stepsWrite.Close()
		_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) // What runs in the background, too.
		_ = s.shell.Wait()
		_ = doneRead.Close()
	})
}

// goFolders keeps what Go has compiled and downloaded, which is in the home otherwise.
func goFolders(t *testing.T) (env []string) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB"}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output() //nolint:gosec // We choose the names.
	if inPods() && err != nil {
		return nil
	}
	require.NoError(t, err)
	for i, value := range strings.SplitN(strings.TrimSpace(string(out)), "\n", len(names)) {
		env = append(env, names[i]+"="+value)
	}
	return env
}

var (
	docRelease = regexp.MustCompile(`https://github\.com/(?:classbind/classbind|` +
		`kubernetes-sigs/gateway-api)/releases/(?:download/v[\w.-]+|latest/download)/`)
	docRemote  = regexp.MustCompile(`(?:https://)?github\.com/classbind/classbind//?(deploy[\w/-]*)\?ref=[\w.]+`)
	docImage   = regexp.MustCompile(`ghcr\.io/classbind/classbind:v[\w.]+`)
	docNewName = regexp.MustCompile(`(newName: *"?)ghcr\.io/classbind/classbind`)
	docNewTag  = regexp.MustCompile(`(newTag: *"?)v[\w.-]+`)
)

// substitute what is not there before a release: its files, its folders and, in pods, its image. Folders are relative to a folder.
func (s *docSession) substitute(text, folder string) string {
	text = docRelease.ReplaceAllString(text, s.served.URL+"/")
	text = docRemote.ReplaceAllStringFunc(text, func(found string) string {
		path := filepath.Join(s.root, docRemote.FindStringSubmatch(found)[1])
		if relative, err := filepath.Rel(folder, path); folder != "" && err == nil {
			return relative
		}
		return path
	})
	if s.image == "" {
		return text
	}
	text = docImage.ReplaceAllLiteralString(text, s.image)
	if docNewName.MatchString(text) {
		colon := strings.LastIndex(s.image, ":")
		text = docNewName.ReplaceAllString(text, "${1}"+s.image[:colon])
		text = docNewTag.ReplaceAllString(text, "${1}"+s.image[colon+1:])
	}
	return text
}

// errDocEnd ends a session: its shell has ended, or the rest of the page would build on what failed.
var errDocEnd = errors.New("the rest of the page is not run")

// run a step. The next must not be run after errDocEnd.
func (s *docSession) run(step *docStep) error {
	s.steps++
	script := filepath.Join(s.dir, fmt.Sprintf("step-%d", s.steps))
	text, err := s.script(step, script)
	if err == nil {
		err = os.WriteFile(script, []byte(text), 0o600)
	}
	if err == nil {
		_, err = fmt.Fprintln(s.to, script)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", step.at, errDocEnd, err)
	}
	ok, late := false, false
	select {
	case ok = <-s.done:
	case <-time.After(docPatience):
		late = true
	}
	out, err := os.ReadFile(script + ".out") //nolint:gosec // The folder is the test's own.
	ran := fmt.Sprintf("\n$ %s\n%s", step.title(), out)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w: %w", step.at, errDocEnd, err)
	case late:
		return fmt.Errorf("%s: the command takes more than %s; %w:%s", step.at, docPatience, errDocEnd, ran)
	case !ok:
		return fmt.Errorf("%s: the command fails; %w:%s", step.at, errDocEnd, ran)
	}
	return judge(step, script, string(out), ran)
}

func (s *docStep) title() string {
	if s.file != "" {
		return "write " + s.file
	}
	return strings.TrimSpace(s.command)
}

// script of a step, which may have more files beside it.
func (s *docSession) script(step *docStep, path string) (string, error) {
	text := s.substitute(step.command, "")
	if step.file != "" {
		content := s.substitute(step.content, filepath.Join(s.root, filepath.Dir(step.file)))
		if err := os.WriteFile(path+".yaml", []byte(content), 0o600); err != nil {
			return "", err
		}
		text = fmt.Sprintf("mkdir -p \"$(dirname '%[1]s')\"\ncp '%[2]s.yaml' '%[1]s'\n", step.file, path)
	}
	if step.fails { // Each command that fails leaves a line.
		text = fmt.Sprintf("set +e\ntrap 'echo failed >> %[1]s.failed' ERR\n%[2]s\n__status=$?\ntrap - ERR\nset -e\necho $__status > %[1]s.status\n", path, text)
	}
	return text, nil
}

func judge(step *docStep, script, got, ran string) error {
	if step.fails {
		status, err := os.ReadFile(script + ".status") //nolint:gosec // The folder is the test's own.
		if err != nil || strings.TrimSpace(string(status)) == "0" {
			return fmt.Errorf("%s: the last command does not fail; %w:%s", step.at, errDocEnd, ran)
		}
		failed, err := os.ReadFile(script + ".failed") //nolint:gosec // The folder is the test's own.
		if err != nil || strings.Count(string(failed), "\n") != 1 {
			return fmt.Errorf("%s: a command before the last fails, too; %w:%s", step.at, errDocEnd, ran)
		}
	}
	if step.compared && !docMatches(step.want, got) {
		return fmt.Errorf("%s: the page shows:\n$ %s\n%s\nThe command prints:\n%s", step.at, step.title(), step.want, got)
	}
	return nil
}

// checkManifest has an API server read what is ours in it, whether there is such an object or not. All else is to be YAML.
func checkManifest(t *testing.T, step *docStep) {
	for _, object := range must(docObjects(step.content))(t, step.at) {
		_, _, err := theSharedWorld(t).create(t, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		assert.NoError(t, client.IgnoreAlreadyExists(err), "%s: the API server refuses the manifest.", step.at)
	}
}

func TestDocsFaults(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs a copy of the repository.")
	for name, tc := range map[string]struct {
		reason string
		step   docStep
		want   string
		end    bool
	}{
		"Fails": {"We should end at a command that fails.", docStep{command: "false\ntrue\n"}, "the command fails", true},
		"Pipe":  {"We should see a command fail within a pipe.", docStep{command: "false | cat\n"}, "the command fails", true},
		"Unset": {"We should see a variable that is not set.", docStep{command: "echo $nothing\n"}, "the command fails", true},
		"Other": {
			"We should compare what is printed, and go on.",
			docStep{command: "printf 'a\\nb\\nc\\n'\n", compared: true, want: "a\nx\nc\n"},
			"The command prints:\na\nb\nc\n", false,
		},
		"Works":      {"We should see that nothing fails.", docStep{command: "true\n", fails: true}, "the last command does not fail", true},
		"FailsEarly": {"We should have the last command alone fail.", docStep{command: "false\nfalse\n", fails: true}, "a command before the last fails", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newDocSession(t, docsNone).run(&tc.step)
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.Equal(t, tc.end, errors.Is(err, errDocEnd), tc.reason)
		})
	}
}
