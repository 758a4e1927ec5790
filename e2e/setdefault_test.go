package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

const setDefaultKinds = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stricts.move.test}
spec:
  group: move.test
  scope: Cluster
  names: {kind: Strict, plural: stricts}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: move-test-half}
rules:
- {apiGroups: [classbind.io], resources: [claimkinds, classkinds], verbs: [get, list]}
- {apiGroups: [move.test], resources: ["*"], verbs: [get, list]}
- {apiGroups: [move.test], resources: [as], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: move-test-half}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: move-test-half}
subjects: [{kind: User, name: half}]
`

const policy = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: move-test}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [move.test], apiVersions: [v1], operations: [UPDATE], resources: ["*"]}]
  validations: [{expression: "!has(object.metadata.annotations) || !('classbind.io/default' in object.metadata.annotations)", message: no default}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: move-test}
spec: {policyName: move-test, validationActions: [Deny]}
`

// TestSetDefault runs the command as an admin would.
func TestSetDefault(t *testing.T) {
	t.Parallel()
	const window = 6 * time.Second
	w := &mover{world: newWorld(t, controlplane.Options{})}
	replica := w.serve(t, "--in-flight-window="+window.String())
	w.resources(t, "Claim claims.move.test Namespaced", "Other others.move.test Namespaced",
		"A as.move.test Cluster", "B bs.move.test Cluster", "Wide wides.move.test Cluster", "Plain plains.move.test Cluster", "Field fields.move.test Namespaced")
	w.apply(t, setDefaultKinds+vendor("move.test")+
		claimKind("claims.move.test", "{classes: {namespaces: {from: All}}}")+claimKind("others.move.test", "{}")+
		serving("as.move.test", "claims.move.test")+
		serving("bs.move.test", "claims.move.test")+
		serving("plains.move.test", "others.move.test")+
		serving("wides.move.test", "claims.move.test", "others.move.test")+
		classKind("stricts.move.test", "{claimKinds: [{name: claims.move.test}], default: {path: .spec.default}}")+
		classKind("fields.move.test", "{claimKinds: [{name: claims.move.test}], default: {path: .spec.default}}"))
	for _, kind := range []string{"A", "B", "Wide", "Plain", "Strict"} {
		w.awaitGuard(t, "move.test", kind, strings.ToLower(kind)+"s.move.test")
	}
	w.awaitGuardOf(t, "fields.move.test", class("move.test", "Field", "probe", "namespace: default, annotations: {resourceclass.crossplane.io/weight: x}, "))
	w.startHook(t)

	t.Run("Moves", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		out, _, err := w.setDefault(t, "b/new")
		require.NoError(t, err)
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nbs.move.test/new: the default for claims.move.test\n", out)
		assert.Equal(t, "bs.move.test/new", w.marked(t))
		assert.Equal(t, "B//new True", w.status(t, "claims.move.test"), "We should have waited for the status.")
		assert.Equal(t, "bs.move.test/new", *w.lease(t, "default.claims.move.test").Spec.HolderIdentity, "We should have asked the guard.")

		versions := w.versions(t)
		out, _, err = w.setDefault(t, "bs.move.test/new", "--for=claims.move.test")
		require.NoError(t, err)
		assert.Equal(t, "bs.move.test/new: the default for claims.move.test already\n", out)
		assert.Equal(t, versions, w.versions(t), "We should write nothing where there is nothing to do.")
	})

	t.Run("DryRun", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		versions := w.versions(t)
		out, _, err := w.setDefault(t, "B/new", "--for=claims", "--dry-run")
		require.NoError(t, err)
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test (dry run)\nbs.move.test/new: the default for claims.move.test (dry run)\n", out)
		assert.Equal(t, versions, w.versions(t), "We should write nothing.")
	})

	t.Run("FirstDefault", func(t *testing.T) {
		w.reset(t, "", "Wide/new")
		out, _, err := w.setDefault(t, "Wide/new", "--for=claims")
		require.NoError(t, err)
		assert.Equal(t, "wides.move.test/new: the default for claims.move.test, others.move.test\n", out)
		assert.Equal(t, "wides.move.test/new", w.marked(t))
	})

	t.Run("NotNamed", func(t *testing.T) {
		w.reset(t, "Wide/old", "Wide/new", "A/new")
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "Wide/new", "--for=claims")
		require.ErrorContains(t, err, "others.move.test: wides.move.test/new in the place of wides.move.test/old")
		assert.Equal(t, versions, w.versions(t), "We should not take the default from a claim kind that was not named.")
		must(w.shell(t, commandIn(t, err, `to agree, run: (.*)`)))(t, "We should give a command that works.")
		assert.Equal(t, "wides.move.test/new", w.marked(t))

		_, _, err = w.setDefault(t, "A/new", "--for=claims")
		require.ErrorContains(t, err, "others.move.test: no default in the place of wides.move.test/new")
		assert.Equal(t, "wides.move.test/new", w.marked(t), "We should not leave a claim kind without a default that was not named.")
		out := must(w.shell(t, commandIn(t, err, `to agree, run: (.*)`)))(t, "We should give a command that works.")
		assert.Contains(t, out, "others.move.test: no longer has a default\n")
		assert.Equal(t, "as.move.test/new", w.marked(t))
	})

	t.Run("Field", func(t *testing.T) {
		w.reset(t, "A/old", "Field/default/new")
		out, _, err := w.setDefault(t, "fields/default/new", "--for=claims")
		require.NoError(t, err)
		assert.Contains(t, out, "fields.move.test/default/new: the default for claims.move.test\n")
		assert.Equal(t, "true", w.kubectl(t, "get", "fields.move.test", "new", "-o", "jsonpath={.spec.default}"))
		assert.Equal(t, "Field/default/new True", w.status(t, "claims.move.test"))
		_, _, err = w.setDefault(t, "A/old", "--for=claims")
		require.NoError(t, err)
		assert.Equal(t, "{}", w.kubectl(t, "get", "fields.move.test", "new", "-o", "jsonpath={.spec}"), "We should remove the field.")
		assert.Equal(t, "A//old True", w.status(t, "claims.move.test"))
	})

	t.Run("CommandsOfTheGuard", func(t *testing.T) {
		const ours, kubectls = `to move the default, run: (classbind .*?);`, `and no more, run: (kubectl .*)`
		for name, tc := range map[string]struct{ old, class, pattern, want string }{
			"Ours":              {"A/old", "B/new", ours, "bs.move.test/new"},
			"OursForTwo":        {"Wide/old", "Wide/new", ours, "wides.move.test/new"},
			"OursLeavesWithout": {"Wide/old", "B/new", ours, "bs.move.test/new"},
			"Kubectl":           {"A/old", "B/new", kubectls, ""},
			"KubectlField":      {"Field/default/old", "B/new", kubectls, ""},
		} {
			t.Run(name, func(t *testing.T) {
				w.reset(t, tc.old, tc.class)
				kind, _, _ := strings.Cut(strings.ToLower(tc.class), "/")
				err := w.annotate(t, kind+"s.move.test", "new", "resourceclass.crossplane.io/is-default-class=true")
				require.ErrorContains(t, err, "is the default class for")
				must(w.shell(t, commandIn(t, err, tc.pattern)))(t, "We should be refused with a command that works.")
				assert.Equal(t, tc.want, w.marked(t))
			})
		}
		t.Run("AtCreation", func(t *testing.T) {
			w.reset(t, "A/old")
			_, _, err := w.create(t, class("move.test", "B", "new", isDefault))
			text := commandIn(t, err, `create this class without its mark, then run: (classbind .*?);`)
			require.NoError(t, w.Create(t.Context(), classNamed("B/new")))
			must(w.shell(t, text))(t, "We should be refused with a command that works.")
			assert.Equal(t, "bs.move.test/new", w.marked(t))
		})
	})

	t.Run("RefusedBeforehand", func(t *testing.T) {
		w.reset(t, "A/old", "B/new", "Strict/new")
		versions := w.versions(t)
		half := must(w.plane.UserKubeconfig("half"))(t)
		for name, tc := range map[string]struct {
			args []string
			want string
		}{
			"Absent":        {[]string{"B/absent", "--for=claims"}, "there is no class B/absent: create it"},
			"NotPermitted":  {[]string{"B/new", "--for=claims", "--kubeconfig=" + half}, `cannot mark bs.move.test/new as the default: bs.move.test "new" is forbidden: User "half" cannot patch`},
			"DroppedInCRD":  {[]string{"Strict/new", "--for=claims"}, "cannot mark stricts.move.test/new as the default: the mark does not change"},
			"ClassKind":     {[]string{"C/new", "--for=claims"}, "no such class kind is registered"},
			"NoFor":         {[]string{"Wide/new"}, "with --for: wides.move.test serves claims.move.test, others.move.test"},
			"ClaimKind":     {[]string{"B/new", "--for=queues"}, "no such claim kind is registered"},
			"ContextAbsent": {[]string{"B/new", "--for=claims", "--context=lost"}, `"lost"`},
		} {
			t.Run(name, func(t *testing.T) {
				out, _, err := w.setDefault(t, tc.args...)
				require.ErrorContains(t, err, tc.want)
				assert.Empty(t, out)
				assert.Equal(t, versions, w.versions(t), "We should have written nothing.")
			})
		}
	})

	t.Run("RefusedByAPolicy", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		w.apply(t, policy)
		defer func() {
			w.kubectl(t, "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "move-test")
			eventually(t, func(c *attempt) {
				require.NoError(c, w.annotate(t, "bs.move.test", "new", "classbind.io/default=false", client.DryRunAll))
			})
		}()
		eventually(t, func(c *attempt) {
			err := w.annotate(t, "bs.move.test", "new", "classbind.io/default=false", client.DryRunAll)
			require.ErrorContains(c, err, "no default")
		})
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, "no default")
		assert.Equal(t, versions, w.versions(t), "We should find out before we write anything, although the guard would refuse it, too.")
	})

	t.Run("PutsBack", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		var unmarked atomic.Bool
		w.refuse.Store(new(refusal(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetName() == "old" && !isMarked(c) && !*r.DryRun {
				unmarked.Store(true)
			}
			if c.GetName() == "new" && unmarked.Load() {
				return "not yet"
			}
			return ""
		})))
		out, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, "cannot mark bs.move.test/new as the default: admission webhook \"hook.standin.test\" denied the request: not yet\nas.move.test/old is the default again")
		assert.Empty(t, out, "We should have moved nothing.")
		assert.Equal(t, "as.move.test/old", w.marked(t))
		assert.Equal(t, "as.move.test/old", *w.lease(t, "default.claims.move.test").Spec.HolderIdentity, "We should have asked in a dry run, which holds nobody back.")
	})

	t.Run("Overtaken", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		w.refuse.Store(new(refusal(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetName() == "old" && !isMarked(c) && !*r.DryRun {
				err := w.label(t, "bs.move.test", "new", "tier=gold")
				assert.NoError(t, err)
			}
			return ""
		})))
		out, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.NoError(t, err, "We should read again what has changed, and go on.")
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nbs.move.test/new: the default for claims.move.test\n", out)
		assert.Equal(t, "gold", w.kubectl(t, "get", "bs.move.test", "new", "-o", "jsonpath={.metadata.labels.tier}"), "We should overwrite nothing.")
	})

	t.Run("InFlight", func(t *testing.T) {
		for waited, attempt := false, 1; !waited; attempt++ { // The window is short: a busy machine may miss it.
			require.LessOrEqual(t, attempt, 10, "We should wait for what is in flight.")
			w.reset(t, "", "B/new")
			w.refuse.Store(new(refusal(refuseRival)))
			w.refuses(t, class("move.test", "A", "rival", isDefault), "no rivals")
			out, progress, err := w.setDefault(t, "B/new", "--for=claims")
			require.NoError(t, err)
			assert.Equal(t, "bs.move.test/new: the default for claims.move.test\n", out)
			waited = strings.Contains(progress, `"as.move.test/rival" is being made the default class`)
		}
	})

	t.Run("Interrupted", func(t *testing.T) {
		w.reset(t, "A/old", "Plain/old", "Wide/new")
		w.mark(t, "Plain/old")
		w.refuse.Store(new(refusal(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetKind() == "Plain" && !isMarked(c) && !*r.DryRun { // A/old has lost its mark.
				_, _, err := w.create(t, class("move.test", "A", "rival", isDefault))
				assert.ErrorContains(t, err, "no rivals") //nolint:testifylint // The server of the hook must not end here, but answer.
			}
			return refuseRival(r, c)
		})))
		cmd := exec.CommandContext(t.Context(), command, "set-default", "Wide/new", "--for=claims,others")
		interrupted := &interrupter{cmd: cmd, at: "waiting: "}
		cmd.Stderr = interrupted
		out, _, err := w.finish(t, cmd)
		require.Error(t, err)
		assert.Contains(t, interrupted.String(), "error: interrupted: ")
		assert.Contains(t, interrupted.String(), "\nas.move.test/old is the default again\nplains.move.test/old is the default again")
		assert.Empty(t, out, "We should have moved nothing.")
		assert.Equal(t, "as.move.test/old plains.move.test/old", w.marked(t), "We should put back what was taken.")
	})

	// From here on nobody guards anything.
	t.Run("WithoutClassbind", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		require.NoError(t, replica.Stop())
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, `failed calling webhook "bs.move.test.guard.classbind.io"`)
		assert.Equal(t, versions, w.versions(t), "We should have written nothing.")
	})
}

// mover is a world with one replica, in which defaults are moved.
type mover struct {
	*world
	// refuse says why a write of a class is refused, empty if it is not.
	refuse atomic.Pointer[refusal]
}

type refusal func(*admissionv1.AdmissionRequest, *unstructured.Unstructured) string

// reset deletes all classes and makes others, of which the first is the default unless it is empty. It marks it in an update, whose outcome
// the guard can tell once it is deleted again.
func (w *mover) reset(t *testing.T, classes ...string) {
	w.refuse.Store(nil)
	for kind := range strings.FieldsSeq("A B Field Plain Strict Wide") {
		namespace := ""
		if kind == "Field" {
			namespace = "default"
		}
		require.NoError(t, w.DeleteAllOf(t.Context(), object("move.test", kind, ""), client.InNamespace(namespace)))
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
	patch := `{"metadata":{"annotations":{"resourceclass.crossplane.io/is-default-class":"true"}}}`
	if strings.HasPrefix(name, "Field/") {
		patch = `{"spec":{"default":true}}`
	}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Patch(t.Context(), classNamed(name), client.RawPatch(types.MergePatchType, []byte(patch))))
	})
}

// classNamed KIND/NAME or KIND/NAMESPACE/NAME.
func classNamed(text string) *unstructured.Unstructured {
	parts := strings.Split(text, "/")
	c := object("move.test", parts[0], parts[len(parts)-1])
	if len(parts) == 3 {
		c.SetNamespace(parts[1])
	}
	return c
}

func (w *mover) setDefault(t *testing.T, args ...string) (out, progress string, err error) {
	cmd := exec.CommandContext(t.Context(), command, append([]string{"set-default"}, args...)...) //nolint:gosec // It runs the command under test.
	return w.finish(t, cmd)
}

func (w *mover) finish(t *testing.T, cmd *exec.Cmd) (out, progress string, err error) {
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

func (w *mover) shell(t *testing.T, text string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `PATH="`+filepath.Dir(command)+":"+w.plane.Assets+`:$PATH"; `+text) //nolint:gosec // It runs the commands that classbind prints.
	out, _, err := w.finish(t, cmd)
	return out, err
}

func commandIn(t *testing.T, err error, pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(err.Error())
	require.Len(t, found, 2, "%v", err)
	return found[1]
}

func (w *mover) marked(t *testing.T) string {
	return w.list(t, func(u *unstructured.Unstructured) (string, bool) { return "", isMarked(u) })
}

func isMarked(class *unstructured.Unstructured) bool {
	field, _, _ := unstructured.NestedBool(class.Object, "spec", "default")
	return field || class.GetAnnotations()[v1beta1.DefaultAnnotation] == "true" || class.GetAnnotations()[v1beta1.CrossplaneDefaultAnnotation] == "true"
}

func (w *mover) versions(t *testing.T) string {
	return w.list(t, func(u *unstructured.Unstructured) (string, bool) { return ":" + u.GetResourceVersion(), true })
}

func (w *mover) list(t *testing.T, text func(*unstructured.Unstructured) (string, bool)) string {
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

func (w *mover) status(t *testing.T, claimKind string) string {
	return w.kubectl(t, "get", "claimkind", claimKind, "-o",
		`jsonpath={range .status.defaults[*]}{.kind}/{.namespace}/{.name} {end}{.status.conditions[?(@.type=="SingleDefault")].status}`)
}

func refuseRival(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
	if c.GetName() == "rival" && !*r.DryRun {
		return "no rivals"
	}
	return ""
}

type interrupter struct {
	progress.Log
	cmd  *exec.Cmd
	at   string
	once sync.Once
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(i.at)) {
		i.once.Do(func() { _ = i.cmd.Process.Signal(os.Interrupt) })
	}
	return i.Log.Write(p)
}

// startHook has a webhook that is asked of every write of a class, in the same moment as the guard.
func (w *mover) startHook(t *testing.T) {
	w.askOfWrites(t, "ValidatingWebhookConfiguration", "hook", "rules: [{apiGroups: [move.test], apiVersions: ['*'], resources: ['*'], operations: [CREATE, UPDATE]}]",
		func(_ *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			class := &unstructured.Unstructured{}
			if err := json.Unmarshal(r.Object.Raw, &class.Object); err != nil {
				return refused(apierrors.NewBadRequest(err.Error()))
			}
			if refuse := w.refuse.Load(); refuse != nil {
				if message := (*refuse)(r, class); message != "" {
					return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message, Code: http.StatusForbidden}}
				}
			}
			return &admissionv1.AdmissionResponse{Allowed: true}
		})
}
