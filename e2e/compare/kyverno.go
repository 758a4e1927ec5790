package compare

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/classbind/classbind/e2e/classbind"
)

const (
	// KyvernoVersion is built from its module, which no module here requires.
	KyvernoVersion = "v1.19.1"

	kyvernoModule     = "github.com/kyverno/kyverno"
	kyvernoNamespace  = "kyverno"
	kyvernoDeployment = "kyverno-admission-controller"
)

// buildKyverno returns the command, built once for each version into the user's cache, and the folder of its source.
func buildKyverno(ctx context.Context) (command, source string, err error) {
	get := exec.CommandContext(ctx, "go", "mod", "download", "-json", kyvernoModule+"@"+KyvernoVersion)
	get.Dir = os.TempDir() // In a module, it could change go.sum.
	out, err := get.Output()
	if err != nil {
		return "", "", fmt.Errorf("cannot download Kyverno: %w: %s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	command = filepath.Join(cache, "classbind", "kyverno-"+KyvernoVersion, "kyverno")
	if _, err := os.Stat(command); err == nil {
		return command, module.Dir, nil
	}
	// Within the module itself, because its replace directives count only there.
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", command+".new", "./cmd/kyverno") //nolint:gosec // The path is ours.
	build.Dir, build.Env = module.Dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("cannot build Kyverno: %w\n%s", err, out)
	}
	return command, module.Dir, os.Rename(command+".new", command) // Whole or not at all.
}

// newKyverno applies the manifest in Kyverno's source. Replicas of its admission controller have the flags, the variables and the
// rights that they have there, but listen on ports of this host, and write no reports.
func (w *world) newKyverno(ctx context.Context) (*service, error) {
	command, source, err := buildKyverno(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.kubectl(ctx, "", "create", "-f", filepath.Join(source, "config", "install-latest-testing.yaml")); err != nil {
		return nil, err
	}
	out, _, err := w.Kubectl(ctx, nil, "get", "deployment", kyvernoDeployment, "--namespace="+kyvernoNamespace, "--output=json")
	if err != nil {
		return nil, err
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal([]byte(out), &deployment); err != nil {
		return nil, err
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	kubeconfig, err := w.UserKubeconfig("system:serviceaccount:"+kyvernoNamespace+":"+kyvernoDeployment,
		"system:serviceaccounts", "system:serviceaccounts:"+kyvernoNamespace)
	if err != nil {
		return nil, err
	}
	s, err := w.newService("kyverno")
	if err != nil {
		return nil, err
	}
	s.launch = func(number int, log *os.File) (*classbind.Process, error) {
		ports, err := classbind.FreePorts(3)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(command, slices.Concat(container.Args, []string{ //nolint:gosec // It runs what was just built.
			// Reports of each admission are optional. Nothing here reads them, and they cost more than the admission.
			"--admissionReports=false",
			"--kubeconfig=" + kubeconfig, "--serverIP=" + strings.TrimPrefix(s.balancer.URL, "https://"),
			"--webhookServerHost=localhost", "--webhookServerPort=" + ports[0],
			"--metricsPort=" + ports[1], "--controllerRuntimeMetricsAddress=localhost:" + ports[2],
		})...)
		cmd.Env = os.Environ()
		for _, variable := range container.Env {
			cmd.Env = append(cmd.Env, variable.Name+"="+variable.Value)
		}
		cmd.Env = append(cmd.Env, "KYVERNO_NAMESPACE="+kyvernoNamespace, fmt.Sprintf("KYVERNO_POD_NAME=%s-%d", kyvernoDeployment, number))
		p, err := classbind.Run(cmd, log)
		if err == nil {
			p.URL = "https://localhost:" + ports[0]
		}
		return p, err
	}
	s.ready = kyvernoReady
	return s, nil
}

// kyvernoReady asks what the readinessProbe of the Deployment asks.
func kyvernoReady(ctx context.Context, p *classbind.Process) error {
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // A kubelet does not verify it either.
		DisableKeepAlives: true,
	}}
	return p.Await(ctx, func(context.Context) error {
		response, err := client.Get(p.URL + "/health/readiness")
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
}
