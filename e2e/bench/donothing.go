package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// startDoNothing starts a webhook server that answers all claims as classbind answers one, and waits until it does.
func (r *run) startDoNothing(ctx context.Context) error {
	command := filepath.Join(r.Dir, "donothing")
	//nolint:gosec // What it builds is ours.
	out, err := exec.CommandContext(ctx, "go", "build", "-o", command, "github.com/classbind/classbind/e2e/cmd/donothing").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot build the do-nothing webhook: %w\n%s", err, out)
	}
	response, err := r.classbind.ask(ctx, 0)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(response)
	if err != nil {
		return err
	}
	var key []byte
	if r.ca, key, err = certutil.GenerateSelfSignedCertKey("localhost", nil, nil); err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	certs := filepath.Join(r.Dir, "donothing-certs")
	err = errors.Join(os.Mkdir(certs, 0o700),
		os.WriteFile(filepath.Join(certs, "tls.crt"), r.ca, 0o600), os.WriteFile(filepath.Join(certs, "tls.key"), key, 0o600))
	if err != nil {
		return err
	}
	ports, err := classbind.FreePorts(1)
	if err != nil {
		return err
	}
	p, err := r.logged("donothing", func(log *os.File) (*classbind.Process, error) {
		//nolint:gosec // It runs what was just built.
		return classbind.Run(exec.Command(command, "--port="+ports[0], "--cert-dir="+certs, "--answer="+string(answer)), log)
	})
	if err != nil {
		return fmt.Errorf("cannot start the do-nothing webhook: %w", err)
	}
	p.URL = "https://localhost:" + ports[0]
	if r.doNothing, err = r.target("do-nothing", p, r.ca); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.Await(ready, func(ctx context.Context) error {
		_, err := r.doNothing.ask(ctx, 0)
		return err
	})
}

// configureDoNothing has the API server call it about new claims of a kind, on the conditions on which it calls classbind about a kind.
func (r *run) configureDoNothing(ctx context.Context, kind, like string) error {
	configurations := r.clientset.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c, err := configurations.Get(ctx, v1beta1.LastConfiguration, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot see how classbind is called: %w", err)
	}
	i := slices.IndexFunc(c.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
		return e.Name == resource(like)+v1beta1.BindSuffix
	})
	if i < 0 {
		return fmt.Errorf("classbind is not called for %s", like)
	}
	entry := c.Webhooks[i]
	entry.Name = "donothing." + resource(kind)
	entry.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new(r.doNothing.url + v1beta1.BindPath), CABundle: r.ca}
	entry.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{plural(kind)},
			Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
	_, err = configurations.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: entry.Name}, Webhooks: []admissionregistrationv1.MutatingWebhook{entry},
	}, metav1.CreateOptions{})
	return err
}
