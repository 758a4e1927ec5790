package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/clientcert"
)

// What describes a cluster with pods. Nothing else is needed there: neither Go nor the source.
var (
	// podImage is what the nodes have, as well as the one that follows it, whose tag ends in -next.
	podImage = os.Getenv("IMAGE")
	// podDeploy is the path of the folder deploy.
	podDeploy = os.Getenv("DEPLOY")
	// podCerts is who issues the certificates.
	podCerts = os.Getenv("CERTS")
	// podClients is the folder of the API server's certificate, where it has one.
	podClients = clientcert.Files(os.Getenv("CLIENTS"))
)

const (
	certsSelfSigned  = "self-signed"
	certsCertManager = "cert-manager"
)

func inPods() bool { return podImage != "" }

func checkPodsEnvironment() error {
	if podCerts == "" {
		podCerts = certsSelfSigned
	}
	var errs []error
	if podCerts != certsSelfSigned && podCerts != certsCertManager {
		errs = append(errs, fmt.Errorf("$CERTS is %q: must be %s or %s", podCerts, certsSelfSigned, certsCertManager))
	}
	if _, err := os.Stat(filepath.Join(podDeploy, "kustomization.yaml")); err != nil || !filepath.IsAbs(podDeploy) {
		errs = append(errs, fmt.Errorf("$DEPLOY is %q: must be the absolute path of the folder deploy", podDeploy))
	}
	if os.Getenv("KUBECONFIG") == "" {
		errs = append(errs, errors.New("$KUBECONFIG must name the kubeconfig of the cluster of $IMAGE"))
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func podWorld() (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("cannot read $KUBECONFIG: %w", err)
	}
	config.QPS = -1
	w := &world{Kubectl: patiently(podKubectl), config: config, deploy: podDeploy}
	return w, w.connect()
}

func installed(ctx context.Context) (*world, error) {
	w, err := podWorld()
	if err != nil {
		return nil, err
	}
	folder, err := overlay(podImage)
	if err != nil {
		return nil, err
	}
	if _, _, err := w.Kubectl(ctx, nil, "apply", "-k", folder); err != nil {
		return nil, err
	}
	_, _, err = w.Kubectl(ctx, nil, rolloutStatus...)
	return w, err
}

var rolloutStatus = []string{"rollout", "status", "deployment/classbind", "--namespace=" + classbind.Namespace, "--timeout=5m"}

func podKubectl(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...) //nolint:gosec // The callers choose the arguments.
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(scratch, "kubectl"), "KUBERC=off")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), errOut.String(), err
}

// overlay of deploy with an image, and with more arguments of the command, as an admin would write it. It returns its folder.
func overlay(image string, arguments ...string) (string, error) {
	return overlayOf(podCerts, image, arguments...)
}

func overlayOf(certs, image string, arguments ...string) (string, error) {
	base := podDeploy
	if certs == certsCertManager {
		base = filepath.Join(base, "cert-manager")
	}
	folder, err := os.MkdirTemp(scratch, "overlay-")
	if err != nil {
		return "", err
	}
	if base, err = relative(folder, base); err != nil {
		return "", err
	}
	colon := strings.LastIndex(image, ":")
	policies, err := relative(folder, filepath.Join(podDeploy, "components", "policies"))
	if err != nil {
		return "", err
	}
	component, generator, err := clientCertificates(folder)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%q]
components: [%q%s]
images: [{name: localhost/classbind, newName: %q, newTag: %q}]
`, base, policies, component, image[:colon], image[colon+1:])
	text += generator
	if webhooksFirst(certs) {
		text += "sortOptions: {order: fifo}\n"
	}
	if len(arguments) > 0 {
		text += "patches:\n- target: {kind: Deployment, name: classbind}\n  patch: |-\n"
		for _, argument := range arguments {
			text += fmt.Sprintf("    - {op: add, path: /spec/template/spec/containers/0/args/-, value: %q}\n", argument)
		}
	}
	return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600)
}

// relative path of a folder from another: kustomize takes no absolute paths, and follows symbolic links first.
func relative(from, to string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.EvalSymlinks(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// webhooksFirst reports whether an overlay keeps the order that docs/install.md recommends. The
// others have kustomize's own, which deletes the webhooks last.
func webhooksFirst(certs string) bool { return certs == certsCertManager }

// clientCertificates are what the overlay in a folder has for an API server that presents a certificate, as README has it: one more
// component, and the rest of the kustomization.
func clientCertificates(folder string) (component, generator string, err error) {
	if podClients == "" {
		return "", "", nil
	}
	ca, err := os.ReadFile(podClients.CA())
	if err != nil {
		return "", "", err
	}
	component, err = relative(folder, filepath.Join(podDeploy, "components", "client-certificates"))
	if err != nil {
		return "", "", err
	}
	generator = fmt.Sprintf("configMapGenerator:\n- {name: classbind-clients, namespace: %s, files: [ca.crt], "+
		"options: {disableNameSuffixHash: true}}\n", classbind.Namespace)
	err = os.WriteFile(filepath.Join(folder, "ca.crt"), ca, 0o600) //nolint:gosec // The folder is the test's own.
	return fmt.Sprintf(", %q", component), generator, err
}

func (w *world) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := w.List(ctx, list, client.InNamespace(classbind.Namespace)); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			pods = append(pods, *p)
		}
	}
	return pods, nil
}

// awaitReplicas waits until all replicas say the same of a claim that no class matches: among how many classes they looked, or why they
// cannot. The status of registrations shows what the leader knows, and another may be a little behind.
func (w *world) awaitReplicas(t testing.TB, claimKind string) {
	if w.plane != nil {
		return // There is one, which leads.
	}
	k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: claimKind}}
	require.NoError(t, client.IgnoreNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(k), k)))
	review := must(w.review(k.Resource()))(t)
	eventually(t, func(c *attempt) {
		pods := must(w.pods(t.Context()))(c)
		require.NotEmpty(c, pods)
		var answers []string
		for i := range pods {
			answer := must(w.ask(t.Context(), pods[i].Status.PodIP, claimKind, review))(c)
			answers = append(answers, answer)
			require.Equal(c, answers[0], answer)
		}
	}, "We should see all replicas agree.")
}

func (w *world) review(claims string) ([]byte, error) {
	resource, err := w.RESTMapper().ResourceFor(schema.ParseGroupResource(claims).WithVersion(""))
	if err != nil {
		return nil, err
	}
	kind, err := w.RESTMapper().KindFor(resource)
	if err != nil {
		return nil, err
	}
	claim := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"namespace": "default", "name": "probe", "annotations": {%q: "e2e=nobody-has-this"}}}`,
		kind.GroupVersion(), kind.Kind, v1beta1.ClassSelectorAnnotation)
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "probe", Operation: admissionv1.Create, Namespace: "default", Name: "probe", DryRun: new(true),
			Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource), Object: runtime.RawExtension{Raw: []byte(claim)},
		},
	})
}

func (w *world) ask(ctx context.Context, ip, claimKind string, review []byte) (string, error) {
	config, err := w.caller()
	if err != nil {
		return "", err
	}
	caller := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	status, text, err := exchange(
		ctx, caller, http.MethodPost, "https://"+net.JoinHostPort(ip, "9443")+v1beta1.BindPath+claimKind, "application/json", string(review),
	)
	return fmt.Sprint(status, " ", text), err
}

func (w *world) podLogs(ctx context.Context) string {
	out, _, err := w.Kubectl(ctx, nil, "logs", "--namespace="+classbind.Namespace, "--selector=app.kubernetes.io/name=classbind", "--prefix", "--tail=2000")
	if err != nil {
		return err.Error()
	}
	return out
}

// kill the processes of classbind in a pod at once, as a crash would. It finds
// them among those of the node, whose processes the tests see.
func kill(p *corev1.Pod) error {
	found, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	uid := string(p.UID)
	killed := 0
	for _, path := range found {
		folder := filepath.Dir(path)
		// What cannot be read has ended.
		groups, _ := os.ReadFile(path) //nolint:gosec // It is in /proc.
		if !bytes.Contains(groups, []byte(uid)) && !bytes.Contains(groups, []byte(strings.ReplaceAll(uid, "-", "_"))) {
			continue
		}
		// The pod's sandbox has a process of its own, which stays.
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline")) //nolint:gosec // It is in /proc.
		if !bytes.HasPrefix(command, []byte("/classbind\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("cannot kill the process %d of the pod %s: %w", pid, p.Name, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("cannot find the process of the pod %s: run the tests as root where the node's processes are seen", p.Name)
	}
	return nil
}
