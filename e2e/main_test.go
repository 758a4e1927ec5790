// Package e2e tests classbind as it is deployed: the command as a process with
// the rights of its ServiceAccount, the manifests of deploy/, and a real API
// server that calls it.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// patience is how long anything may take that should take a moment.
const patience = 30 * time.Second

// command is the built one.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "classbind-e2e-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			command, err = classbind.Build(context.Background(), dir, raceFlags()...)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		return m.Run()
	}())
}

// raceFlags have the server tell of its data races, in its exit status, where
// there is the C compiler that this needs. The tests themselves are built
// without, as all else that shares packages with Kubernetes.
func raceFlags() []string {
	_ = os.Unsetenv("CGO_ENABLED") // It is 0 for the tests.
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		return nil
	}
	return []string{"-race"}
}

// world is a control plane with deploy/base applied, for one test.
type world struct {
	*controlplane.ControlPlane
	client.Client

	deploy     string
	kubeconfig string // of classbind's ServiceAccount
	warnings   *warnings
}

func newWorld(t *testing.T, o controlplane.Options) *world {
	t.Helper()
	o.Progress = os.Stderr
	plane, err := controlplane.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })

	w := &world{ControlPlane: plane, warnings: &warnings{}}
	w.deploy, err = classbind.Deploy(t.Context())
	require.NoError(t, err)
	w.kubectl(t, "apply", "-k", filepath.Join(w.deploy, "base"))
	w.kubectl(t, "wait", "--for=condition=Established", "crd", "--all")
	w.kubeconfig, err = plane.UserKubeconfig(classbind.User, classbind.Groups...)
	require.NoError(t, err)

	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	config := rest.CopyConfig(plane.Config)
	config.WarningHandlerWithContext = w.warnings
	w.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return w
}

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := w.Kubectl(t.Context(), nil, args...)
	require.NoError(t, err)
	return out
}

func (w *world) apply(t *testing.T, manifest string) {
	t.Helper()
	_, _, err := w.Kubectl(t.Context(), strings.NewReader(manifest), "apply", "-f", "-")
	require.NoError(t, err)
}

// replica is a running classbind.
type replica struct {
	*classbind.Process
	log *lockedBuffer
}

// start a replica; when the test ends it must end well, which it does not after a data race.
func (w *world) start(t *testing.T, flags ...string) *replica {
	t.Helper()
	r := &replica{log: &lockedBuffer{}}
	var err error
	r.Process, err = classbind.Start(command, w.kubeconfig, r.log, flags...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, r.Stop(), "We should see the replica end well.")
		if t.Failed() {
			t.Logf("The replica's log:\n%s", r.log)
		}
	})
	return r
}

// serve starts a replica and waits until it is ready.
func (w *world) serve(t *testing.T, flags ...string) *replica {
	t.Helper()
	r := w.start(t, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.Ready(ctx), "We should have a replica that is ready.")
	return r
}

// resources installs CRDs that prescribe nothing, from "Kind plural.group scope".
func (w *world) resources(t *testing.T, lines ...string) {
	t.Helper()
	var manifest strings.Builder
	for _, line := range lines {
		var kind, name, scope string
		_, err := fmt.Sscan(line, &kind, &name, &scope)
		require.NoError(t, err)
		plural, group, _ := strings.Cut(name, ".")
		fmt.Fprintf(&manifest, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s}
spec:
  group: %[2]s
  scope: %[3]s
  names: {kind: %[4]s, plural: %[5]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, name, group, scope, kind, plural)
	}
	w.apply(t, manifest.String())
	w.kubectl(t, "wait", "--for=condition=Established", "crd", "--all")
}

// vendor is the role that lets classbind read a group's classes.
func vendor(group string) string {
	return fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels: {classbind.io/aggregate-to-classbind: "true"}
rules:
- {apiGroups: [%[1]s], resources: ["*"], verbs: [list, watch]}
`, group)
}

// awaitClaims waits until claims of the kind are bound, as the API server sees
// it: it knows of a new webhook a little later than of the entry for it.
func (w *world) awaitClaims(t *testing.T, claimKind string) {
	t.Helper()
	k := &v1alpha1.ClaimKind{}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: claimKind}, k))
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady), "%v", k.Status.Conditions)
	}, patience, 20*time.Millisecond)
	mapping, err := w.RESTMapper().KindFor(schema.ParseGroupResource(claimKind).WithVersion(""))
	require.NoError(t, err)
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(mapping)
	probe.SetNamespace("default")
	probe.SetGenerateName("probe-")
	probe.SetAnnotations(map[string]string{v1alpha1.ClassSelectorAnnotation: "="})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := w.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		require.True(c, apierrors.IsInvalid(err), "%v", err)
	}, patience, 20*time.Millisecond, "We should see the API server call the webhook.")
}

// awaitClasses waits until so many classes of the kind are offered.
func (w *world) awaitClasses(t *testing.T, classKind string, n int) {
	t.Helper()
	k := &v1alpha1.ClassKind{}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: classKind}, k))
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady), "%v", k.Status.Conditions)
		require.EqualValues(c, n, k.Status.Classes)
	}, patience, 20*time.Millisecond)
}

// create an object and return it as stored, with the warnings about it.
func (w *world) create(t *testing.T, manifest string, o ...client.CreateOption) (*unstructured.Unstructured, []string, error) {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
	w.warnings.take()
	err := w.Create(t.Context(), object, o...)
	return object, w.warnings.take(), err
}

// classOf a claim is the KIND/NAME of its reference, or empty.
func classOf(claim *unstructured.Unstructured) string {
	ref, found, _ := unstructured.NestedStringMap(claim.Object, "spec", "classRef")
	if !found {
		return ""
	}
	return ref["kind"] + "/" + ref["name"]
}

// warnings that the API server sent since they were last taken.
type warnings struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeaderWithContext is called by the client.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = nil
	return text
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
