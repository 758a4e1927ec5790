package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// buildDoNothing builds the command in dir and returns its path there.
func buildDoNothing(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "donothing")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/classbind/classbind/e2e/cmd/donothing").CombinedOutput() //nolint:gosec // What it builds is ours.
	if err != nil {
		return "", fmt.Errorf("cannot build the do-nothing webhook: %w\n%s", err, out)
	}
	return path, nil
}

// doNothing is a webhook server that does, which runs.
type doNothing struct {
	process

	cmd *exec.Cmd
	log *os.File
	url string
	ca  []byte      // in PEM
	tls *tls.Config // trusts it
}

// startDoNothing has all claims answered with the same response. It keeps files in dir, and waits until it accepts connections.
func startDoNothing(
	ctx context.Context, command, dir string, answer *admissionv1.AdmissionResponse,
) (d *doNothing, err error) {
	ports, err := classbind.FreePorts(2)
	if err != nil {
		return nil, err
	}
	d = &doNothing{url: "https://localhost:" + ports[0]}
	var key []byte
	if d.ca, key, err = certutil.GenerateSelfSignedCertKey("localhost", nil, nil); err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	if d.tls, err = trusting(d.ca); err != nil {
		return nil, err
	}
	annotations, err := json.Marshal(answer.AuditAnnotations)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "tls.crt"), d.ca, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
	)
	if err != nil {
		return nil, err
	}
	if d.log, err = os.Create(filepath.Join(dir, "donothing.log")); err != nil { //nolint:gosec // The folder is the caller's.
		return nil, err
	}
	d.cmd = exec.Command(command, //nolint:gosec // It runs what was just built.
		"--webhook-bind-address=localhost:"+ports[0], "--metrics-bind-address=localhost:"+ports[1], "--cert-dir="+dir,
		"--patch="+string(answer.Patch), "--annotations="+string(annotations))
	d.cmd.Stderr = d.log
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the do-nothing webhook: %w", err), d.log.Close())
	}
	d.process = process{d.cmd.Process.Pid}
	why := errors.New("it did not answer")
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var c net.Conn
		c, why = (&tls.Dialer{Config: d.tls}).DialContext(ctx, "tcp", strings.TrimPrefix(d.url, "https://"))
		if why == nil {
			why = c.Close()
		}
		return why == nil, nil
	})
	if err != nil {
		log, _ := os.ReadFile(d.log.Name())
		return nil, errors.Join(fmt.Errorf("the do-nothing webhook is not ready: %w: %w\n%s", err, why, log), d.stop())
	}
	return d, nil
}

// configuration has the API server ask it about new claims of a kind, with an entry that is like the given one.
func (d *doNothing) configuration(kind string, entry admissionregistrationv1.MutatingWebhook) ([]byte, error) {
	url, scope, name := d.url+v1beta1.BindPath, admissionregistrationv1.NamespacedScope, "donothing."+resource(kind)
	entry.Name = name
	entry.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: d.ca}
	entry.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{plural(kind)}, Scope: &scope,
		},
	}}
	return json.Marshal(&admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{entry},
	})
}

// stop the server.
func (d *doNothing) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(d.cmd.Wait(), d.log.Close())
}
