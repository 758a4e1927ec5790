// Package classbind runs classbind's server as a process of this host, beside a control plane.
package classbind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Namespace and User are those of the ServiceAccount in deploy/.
const (
	Namespace = "classbind-system"
	User      = "system:serviceaccount:" + Namespace + ":classbind"
)

// Groups that the API server would put User in.
var Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace}

// Deploy is the path of the folder deploy.
func Deploy(ctx context.Context) (string, error) {
	dir, err := root(ctx)
	return filepath.Join(dir, "deploy"), err
}

// root is the folder of the module that this one is beside.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/classbind/classbind").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find classbind's source: %w; run this in the e2e module", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build the command, and return its path in dir.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	root, err := root(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "classbind")
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build"}, flags...), "-o", path, "./cmd/classbind")...) //nolint:gosec // What it builds is ours.
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build classbind: %w\n%s", err, out)
	}
	return path, nil
}

// Process is a replica that runs.
type Process struct {
	// URL of the webhook server, and of the metrics and the probes.
	URL, MetricsURL, ProbeURL string

	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// Start a replica with the built command, for the cluster of a kubeconfig, on
// free ports. Its log goes to the writer. It does not wait until it is ready.
func Start(command, kubeconfig string, log io.Writer, flags ...string) (*Process, error) {
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	p, err := Run(exec.Command(command, append([]string{ //nolint:gosec // It runs the command under test.
		"serve", "--kubeconfig=" + kubeconfig, "--classbind-namespace=" + Namespace,
		"--webhook-url=https://localhost:" + ports[0], "--webhook-bind-address=localhost:" + ports[0],
		"--metrics-bind-address=localhost:" + ports[1], "--health-probe-bind-address=localhost:" + ports[2],
	}, flags...)...), log)
	if err != nil {
		return nil, fmt.Errorf("cannot start classbind: %w", err)
	}
	p.URL = "https://localhost:" + ports[0]
	p.MetricsURL, p.ProbeURL = "http://localhost:"+ports[1]+"/metrics", "http://localhost:"+ports[2]
	return p, nil
}

// Run a command as a replica, whose URLs are the caller's to set. It need not be classbind.
func Run(cmd *exec.Cmd, log io.Writer) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it: the starter of a replica stops it.
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Ready waits until the replica reports that it is.
func (p *Process) Ready(ctx context.Context) error {
	if err := p.Await(ctx, p.Probe); err != nil {
		return fmt.Errorf("classbind is not ready: %w", err)
	}
	return nil
}

// Await a probe that succeeds, or the end of the process.
func (p *Process) Await(ctx context.Context, probe func(ctx context.Context) error) error {
	why := errors.New("it did not answer")
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.exited:
			return false, fmt.Errorf("it ended: %w", p.err)
		default:
		}
		why = probe(ctx)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return nil
}

// Probe asks once whether the replica is ready.
func (p *Process) Probe(ctx context.Context) error {
	_, err := Get(ctx, p.ProbeURL+"/readyz?verbose")
	return err
}

// Metrics of the replica, as it exposes them.
func (p *Process) Metrics(ctx context.Context) ([]byte, error) {
	text, err := Get(ctx, p.MetricsURL)
	if err != nil {
		return nil, fmt.Errorf("cannot read classbind's metrics: %w", err)
	}
	return text, nil
}

// Get a page of a replica's. An answer other than 200 is an error, with its text.
func Get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return text, err
}

// Calls of the webhook at a path that the replica has counted.
func (p *Process) Calls(ctx context.Context, path string) (int, error) {
	return p.sum(ctx, "requests_total", path)
}

// Answered are all Calls once none is under way: the webhook answers first, and counts then.
func (p *Process) Answered(ctx context.Context, path string) (int, error) {
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		underWay, err := p.sum(ctx, "requests_in_flight", path)
		return underWay == 0, err
	})
	if err != nil {
		return 0, err
	}
	return p.Calls(ctx, path)
}

// sum of a metric of webhooks for a path.
func (p *Process) sum(ctx context.Context, metric, path string) (total int, err error) {
	body, err := p.Metrics(ctx)
	labels := `\{(?:code="\d+",)?webhook="` + regexp.QuoteMeta(path) + `"\}`
	of := regexp.MustCompile(`(?m)^controller_runtime_webhook_` + metric + labels + ` (\d+)$`)
	for _, match := range of.FindAllSubmatch(body, -1) {
		n, _ := strconv.Atoi(string(match[1])) // It is made of digits.
		total += n
	}
	return total, err
}

// Ended is closed once the process has ended, by itself or not.
func (p *Process) Ended() <-chan struct{} { return p.exited }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop asks the replica to end and waits until it has. Its error is that of the process, which the race detector makes one, too.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.exited
	return p.err
}

// Kill ends the replica at once, as a crash would; that is no error of Stop then.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(os.Kill)
	<-p.exited
	p.err = nil
}

// FreePorts of localhost were free when found; all are held until the last is found. A kernel does not give them to outgoing connections,
// whose ports begin at 32768 or above: such a connection could take one before it is listened on.
func FreePorts(n int) ([]string, error) {
	const first, end = 10000, 32768
	var ports []string
	var err error
	for range 100 * n {
		port := strconv.Itoa(first + rand.IntN(end-first)) //nolint:gosec // It need not be hard to guess.
		var l net.Listener
		if l, err = net.Listen("tcp", "localhost:"+port); err != nil {
			continue
		}
		defer func() { _ = l.Close() }()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("cannot find a free port: %w", err)
}
