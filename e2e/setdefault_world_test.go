package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// mover is a world with one replica, in which defaults are moved.
type mover struct {
	*world
	hook hook
}

// reset deletes all classes and makes others, of which the first is the default
// unless it is empty. It marks it in an update, whose outcome the guard can tell
// once it is deleted again.
func (w *mover) reset(t *testing.T, classes ...string) {
	t.Helper()
	w.hook.set(nil)
	for kind := range strings.FieldsSeq("A B Field Plain Strict Wide") {
		all := &unstructured.Unstructured{}
		all.SetGroupVersionKind(schema.GroupVersionKind{Group: "move.test", Version: "v1", Kind: kind})
		namespace := ""
		if kind == "Field" {
			namespace = "default"
		}
		require.NoError(t, w.DeleteAllOf(t.Context(), all, client.InNamespace(namespace)))
	}
	for _, name := range classes {
		if name != "" {
			require.NoError(t, w.Create(t.Context(), classNamed(name)))
		}
	}
	if classes[0] != "" {
		w.mark(t, classes[0])
	}
}

// mark a class as the default, once nothing is in flight any more.
func (w *mover) mark(t *testing.T, name string) {
	t.Helper()
	patch := `{"metadata":{"annotations":{"resourceclass.crossplane.io/is-default-class":"true"}}}`
	if strings.HasPrefix(name, "Field/") {
		patch = `{"spec":{"default":true}}`
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.Patch(t.Context(), classNamed(name), client.RawPatch(types.MergePatchType, []byte(patch))))
	}, patience, 100*time.Millisecond)
}

// classNamed KIND/NAME or KIND/NAMESPACE/NAME.
func classNamed(text string) *unstructured.Unstructured {
	parts := strings.Split(text, "/")
	c := &unstructured.Unstructured{}
	c.SetGroupVersionKind(schema.GroupVersionKind{Group: "move.test", Version: "v1", Kind: parts[0]})
	c.SetName(parts[len(parts)-1])
	if len(parts) == 3 {
		c.SetNamespace(parts[1])
	}
	return c
}

// setDefault runs the command as an admin.
func (w *mover) setDefault(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, append([]string{"set-default"}, args...)...) //nolint:gosec // It runs the command under test.
	return w.finish(t, cmd)
}

// finish a command.
func (w *mover) finish(t *testing.T, cmd *exec.Cmd) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	// The race detector would have a command that succeeds sleep for a second.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig, "GORACE=atexit_sleep_ms=0")
	cmd.Stdout = &stdout
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	t.Logf("%s\n%s%s%v", strings.Join(cmd.Args[1:], " "), &stdout, &stderr, err)
	return stdout.String(), stderr.String(), err
}

// shell runs a command as an error says it.
func (w *mover) shell(t *testing.T, text string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `PATH="`+filepath.Dir(command)+":"+w.plane.Assets+`:$PATH"; `+text) //nolint:gosec // It runs the commands that classbind prints.
	out, _, err := w.finish(t, cmd)
	return out, err
}

// commandIn an error.
func commandIn(t *testing.T, err error, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(err.Error())
	require.Len(t, found, 2, "%v", err)
	return found[1]
}

// marked are the classes that are.
func (w *mover) marked(t *testing.T) string {
	t.Helper()
	return w.list(t, func(u *unstructured.Unstructured) (string, bool) { return "", isMarked(u) })
}

func isMarked(class *unstructured.Unstructured) bool {
	field, _, _ := unstructured.NestedBool(class.Object, "spec", "default")
	return field || class.GetAnnotations()["resourceclass.crossplane.io/is-default-class"] == "true"
}

// versions of all classes.
func (w *mover) versions(t *testing.T) string {
	t.Helper()
	return w.list(t, func(u *unstructured.Unstructured) (string, bool) { return ":" + u.GetResourceVersion(), true })
}

func (w *mover) list(t *testing.T, text func(*unstructured.Unstructured) (string, bool)) string {
	t.Helper()
	var found []string
	for kind := range strings.FieldsSeq("A B Field Plain Strict Wide") {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "move.test", Version: "v1", Kind: kind + "List"})
		require.NoError(t, w.List(t.Context(), list))
		for i := range list.Items {
			u := &list.Items[i]
			name := strings.ToLower(kind) + "s.move.test/" + path.Join(u.GetNamespace(), u.GetName())
			if more, ok := text(u); ok {
				found = append(found, name+more)
			}
		}
	}
	return strings.Join(found, " ")
}

// status of a claim kind: its default and whether it is the only one.
func (w *mover) status(t *testing.T, claimKind string) string {
	t.Helper()
	k := &v1alpha1.ClaimKind{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: claimKind}, k))
	condition := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionSingleDefault)
	if condition == nil {
		return k.Status.DefaultClass
	}
	return k.Status.DefaultClass + " " + string(condition.Status)
}

func refuseRival(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
	if c.GetName() == "rival" && !*r.DryRun {
		return "no rivals"
	}
	return ""
}

// interrupter interrupts a command that prints a text.
type interrupter struct {
	lockedBuffer
	cmd  *exec.Cmd
	at   string
	once sync.Once
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(i.at)) {
		i.once.Do(func() { _ = i.cmd.Process.Signal(os.Interrupt) })
	}
	return i.lockedBuffer.Write(p)
}

// hook is a webhook that is asked of every write of a class, in the same moment
// as the guard.
type hook struct {
	mu sync.Mutex
	// refuse says why the write is refused, empty if it is not.
	refuse func(request *admissionv1.AdmissionRequest, class *unstructured.Unstructured) string
}

func (h *hook) set(refuse func(*admissionv1.AdmissionRequest, *unstructured.Unstructured) string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = refuse
}

func (h *hook) start(t *testing.T, w *world) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	require.NoError(t, w.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook.move.test"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.move.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: caOf(server),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"move.test"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}))
}

func (h *hook) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	review, class := &admissionv1.AdmissionReview{}, &unstructured.Unstructured{}
	err := json.NewDecoder(request.Body).Decode(review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &class.Object)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	refuse := h.refuse
	h.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if refuse != nil {
		if message := refuse(review.Request, class); message != "" {
			review.Response.Allowed, review.Response.Result = false, &metav1.Status{Message: message, Code: http.StatusForbidden}
		}
	}
	review.Request = nil
	_ = json.NewEncoder(out).Encode(review)
}
