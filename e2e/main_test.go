// Package e2e tests classbind as it is deployed, by the manifests of deploy/ and with a real API server that calls it. It does so in one of
// two ways. By itself it starts control planes, and runs the command beside them, as a process with the rights of its ServiceAccount. With
// $IMAGE it uses the cluster of $KUBECONFIG, in which it installs classbind in pods; there, tests that need a control plane of their own
// are skipped.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

// scratch is a folder for the time of the tests, and command the built one, which there is not where classbind runs in pods.
var scratch, command string

func TestMain(m *testing.M) {
	flag.Parse() // prepare asks for -short.
	os.Exit(func() int {
		err := prepare()
		defer func() { _ = os.RemoveAll(scratch) }()
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			return 1
		}
		code := m.Run()
		if slow := slowAnswers.Load(); slow > maxSlowAnswers {
			fmt.Fprintf(os.Stderr, "error: %d requests were sent again because a webhook was slow, and the machine was not: at most %d may be\n", slow, maxSlowAnswers)
			code = max(code, 1)
		}
		if err := sharing.end(code != 0); err != nil {
			fmt.Fprintln(os.Stderr, "error: the shared world did not end well:", err)
			code = 1
		}
		return code
	}())
}

func prepare() (err error) {
	if scratch, err = os.MkdirTemp("", "classbind-e2e-"); err != nil {
		return err
	}
	if inPods() {
		return checkPodsEnvironment()
	}
	command, err = classbind.Build(context.Background(), scratch, raceFlags()...)
	return err
}

// raceFlags have the server report its data races, in its exit status, where there is the C compiler that this needs. It is five times
// slower with them, so make test does without. The tests themselves are built without, as all else that shares packages with Kubernetes.
func raceFlags() []string {
	if testing.Short() {
		return nil
	}
	_ = os.Unsetenv("CGO_ENABLED") // It is 0 for the tests.
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		return nil
	}
	return []string{"-race"}
}

// world is a cluster with deploy applied.
type world struct {
	client.Client

	// Kubectl runs kubectl as the admin. The error has standard error in it.
	Kubectl kubectlFunc
	config  *rest.Config
	deploy  string

	// plane is ours, and the kubeconfig that of classbind's ServiceAccount there. There are neither where classbind runs in pods.
	plane      *controlplane.ControlPlane
	kubeconfig string
	// command that runs, if it is not the one that all tests share.
	command string
	// anybody is answered by the replicas to come, as where the API server cannot be made to present a certificate.
	anybody bool
}

// newWorld is for one test, which may do with it as it likes.
func newWorld(t testing.TB, o controlplane.Options) *world {
	notInPods(t, "It needs a control plane of its own, with classbind as a process beside it.")
	w := must(startWorld(t.Context(), o))(t)
	t.Cleanup(func() { assert.NoError(t, w.plane.Stop()) })
	return w
}

// servedWorld is newWorld with a replica.
func servedWorld(t testing.TB, o controlplane.Options, flags ...string) (*world, *replica) {
	w := newWorld(t, o)
	return w, w.serve(t, flags...)
}

func startWorld(ctx context.Context, o controlplane.Options) (*world, error) {
	o.Progress = os.Stderr
	plane, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &world{Kubectl: patiently(plane.Kubectl), config: plane.Config, plane: plane}
	if err := w.setUp(ctx); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return w, nil
}

// testedComponents are those that a world without pods has.
var testedComponents = []string{"flow-schemas", "policies", "priority"}

func (w *world) setUp(ctx context.Context) (err error) {
	if w.deploy, err = classbind.Deploy(ctx); err != nil {
		return err
	}
	kubeconfigs, err := classbind.Install(ctx, w.plane, w.deploy, testedComponents...)
	if err != nil {
		return err
	}
	w.kubeconfig = kubeconfigs[0]
	return w.connect()
}

func (w *world) connect() (err error) {
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next, attemptAgain} })
	w.Client, err = newClient(config)
	return err
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = warnings{}
	return client.New(config, client.Options{Scheme: scheme})
}

// sharing is the world of the tests that only add to it, each in API groups of
// its own, and, if it is not in pods, of the one replica in it.
var sharing shared

type shared struct {
	once    sync.Once
	world   *world
	replica *replica
	err     error
}

// sharedWorld is of a test that runs beside the others there.
func sharedWorld(t *testing.T) *world {
	t.Parallel()
	return theSharedWorld(t)
}

// theSharedWorld is started for the first test that asks for it.
func theSharedWorld(t *testing.T) *world {
	sharing.once.Do(func() {
		// The context of a test ends with it.
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		defer cancel()
		if inPods() {
			sharing.world, sharing.err = installed(ctx)
			return
		}
		if sharing.world, sharing.err = startWorld(ctx, controlplane.Options{Audit: true}); sharing.err != nil {
			return
		}
		if sharing.replica, sharing.err = sharing.world.run(); sharing.err != nil {
			return
		}
		sharing.err = sharing.replica.Ready(ctx)
	})
	require.NoError(t, sharing.err, "We should have classbind, and it should be ready.")
	if sharing.replica != nil {
		sharing.replica.logFailure(t)
	}
	return sharing.world
}

// sharedReplica is of a test that counts for which claims of a kind the API server has called the one replica.
func sharedReplica(t *testing.T) (w *world, asked func(claimKind string) int) {
	notInPods(t, "It reads the metrics of the one replica.")
	return sharedWorld(t), func(claimKind string) int {
		return sharing.count(t, "classbind_decisions_total", map[string]string{"claim_kind": claimKind})
	}
}

// count adds up the counters of the replica that have these labels.
func (s *shared) count(t *testing.T, name string, labels map[string]string) int {
	return must(sumOf(must(s.replica.Metrics(t.Context()))(t), name, labels))(t)
}

// sumOf adds up the counters of this name that have these labels.
func sumOf(metrics []byte, name string, labels map[string]string) (n int, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	for _, m := range families[name].GetMetric() {
		others := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
			want, matters := labels[l.GetName()]
			return matters && l.GetValue() != want
		})
		if !others {
			n += int(m.GetCounter().GetValue())
		}
	}
	return n, err
}

func (s *shared) end(failed bool) error {
	var errs []error
	if s.replica != nil {
		errs = append(errs, s.replica.Stop())
	}
	switch {
	case s.world == nil:
	case s.world.plane != nil:
		errs = append(errs, s.world.plane.Stop())
	case failed:
		fmt.Fprintf(os.Stderr, "The logs of the shared pods:\n%s\n", s.world.podLogs(context.Background()))
	}
	return errors.Join(errs...)
}

func (w *world) kubectl(t testing.TB, args ...string) string {
	out, _, err := w.Kubectl(t.Context(), nil, args...)
	require.NoError(t, err)
	return out
}

// apply does what kubectl apply --server-side --force-conflicts does, without a process of its own, which takes half a second.
// A resource that has just become established may not be served yet. It waits until CRDs are established.
func (w *world) apply(t testing.TB, manifest string) {
	var crds []string
	for _, object := range documents(t, manifest) {
		eventually(t, func(c *attempt) {
			mapping := must(w.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version))(c)
			if object.GetNamespace() == "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				object.SetNamespace("default")
			}
			err := w.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner("kubectl"))
			if !apierrors.IsNotFound(err) {
				assert.NoError(t, err)
				return
			}
			require.NoError(c, err)
		})
		if object.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, object.GetName())
		}
	}
	w.awaitCRDs(t, crds...)
}

// patch merges a change into an object, without the process of kubectl, which takes half a second. In a namespace, it is in default.
func (w *world) patch(t testing.TB, resource, name, change string) error {
	return w.Patch(t.Context(), w.named(t, resource, name), client.RawPatch(types.MergePatchType, []byte(change)))
}

// remove does the same to delete it.
func (w *world) remove(t testing.TB, resource, name string) {
	require.NoError(t, w.Delete(t.Context(), w.named(t, resource, name)))
}

// named is an object of a resource, <plural>.<group>, without anything in it.
func (w *world) named(t testing.TB, resource, name string) *unstructured.Unstructured {
	kind := must(w.RESTMapper().KindFor(schema.ParseGroupResource(resource).WithVersion("")))(t)
	object := object(kind.Group, kind.Kind, name)
	object.SetGroupVersionKind(kind)
	if must(w.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version))(t).Scope.Name() == meta.RESTScopeNameNamespace {
		object.SetNamespace("default")
	}
	return object
}

// annotate an object by a change as kubectl annotate takes it: key=value, or key-.
func (w *world) annotate(t testing.TB, resource, name, change string) error {
	return w.patch(t, resource, name, metadataPatch("annotations", change))
}

func (w *world) label(t testing.TB, resource, name, change string) error {
	return w.patch(t, resource, name, metadataPatch("labels", change))
}

func metadataPatch(field, change string) string {
	if key, value, set := strings.Cut(change, "="); set {
		return fmt.Sprintf(`{"metadata":{%q:{%q:%q}}}`, field, key, value)
	}
	return fmt.Sprintf(`{"metadata":{%q:{%q:null}}}`, field, strings.TrimSuffix(change, "-"))
}

type replica struct {
	*classbind.Process
	log *progress.Log
}

// run a replica, which the caller stops. It answers the API server alone.
func (w *world) run(flags ...string) (*replica, error) {
	r := &replica{log: &progress.Log{}}
	if !w.anybody {
		flags = append(w.plane.Clients.Flags(), flags...)
	}
	var err error
	r.Process, err = classbind.Start(cmp.Or(w.command, command), w.kubeconfig, r.log, flags...)
	return r, err
}

// caller of the webhooks is who has the API server's certificate, if it has one, and takes any that it is shown.
func (w *world) caller() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // It is the answers that are tested.
	files := podClients
	if w.plane != nil {
		files = w.plane.Clients
	}
	if files == "" {
		return config, nil
	}
	certificate, err := files.Certificate()
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

// start a replica; when the test ends it must end well, which it does not after a data race.
func (w *world) start(t testing.TB, flags ...string) *replica {
	r := must(w.run(flags...))(t)
	r.logFailure(t)
	t.Cleanup(func() { assert.NoError(t, r.Stop(), "We should see the replica end well.") })
	return r
}

// logFailure shows the end of what the replica logs from now on until the test ends, if it fails.
func (r *replica) logFailure(t testing.TB) {
	const lines = 200
	begin := len(r.log.String())
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		log := strings.SplitAfter(r.log.String()[begin:], "\n")
		t.Logf("The last of %d lines that the replica logged:\n%s", len(log), strings.Join(log[max(0, len(log)-lines):], ""))
	})
}

func (w *world) serve(t testing.TB, flags ...string) *replica {
	r := w.start(t, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.Ready(ctx), "We should have a replica that is ready.")
	return r
}

// audited are the events in the audit log of the first API server. The last may be half written.
func (w *world) audited(t *testing.T) (events []auditv1.Event) {
	log := must(os.Open(w.plane.AuditLog))(t)
	defer func() { _ = log.Close() }()
	for all := json.NewDecoder(log); all.More(); {
		e := auditv1.Event{}
		err := all.Decode(&e)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		require.NoError(t, err)
		events = append(events, e)
	}
	return events
}

var vendor, claimKind, classKind, serving = classbind.Vendor, classbind.ClaimKind, classbind.ClassKind, classbind.Serving

// long leaves a test to make test-all, because it takes long or its own control plane.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it.")
	}
}

// create an object and return it as stored, with the warnings about it.
func (w *world) create(t testing.TB, manifest string, o ...client.CreateOption) (*unstructured.Unstructured, []string, error) {
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
	var text []string
	err := w.Create(context.WithValue(t.Context(), warnings{}, &text), object, o...)
	return object, text, err
}

func (w *world) created(t testing.TB, manifest string, o ...client.CreateOption) *unstructured.Unstructured {
	object, _ := w.warned(t, manifest, o...)
	return object
}

// warned creates an object, and creates it again if its chooser answers too late, or is not asked because of that: the machine is busy.
func (w *world) warned(t testing.TB, manifest string, o ...client.CreateOption) (object *unstructured.Unstructured, text []string) {
	err, late := error(nil), false
	eventually(t, func(c *attempt) {
		object, text, err = w.create(t, manifest, o...)
		all := strings.Join(text, "\n")
		if late = strings.Contains(all, "(Timeout)") || late && strings.Contains(all, "CircuitOpen)"); late {
			err = client.IgnoreNotFound(w.Delete(t.Context(), object))
		}
		require.False(c, late && err == nil, all)
	}, "We should have the answer of a chooser in time.")
	require.NoError(t, err)
	return object, text
}

// refuses to create an object, for a reason that has this text, and returns the reason.
func (w *world) refuses(t testing.TB, manifest, text string, why ...any) string {
	_, _, err := w.create(t, manifest)
	require.ErrorContains(t, err, text, why...)
	return err.Error()
}

// warnings go to the caller whose context has a place for them.
type warnings struct{}

// HandleWarningHeaderWithContext is called by the client.
func (warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if to, ok := ctx.Value(warnings{}).(*[]string); ok {
		*to = append(*to, text)
	}
}

// patience is how long anything may take that should take a moment. Nothing waits for it but
// a test that fails, so it suits a machine that others keep busy.
const patience = 3 * time.Minute

// attempt of a check. It collects what is not so yet.
type attempt = assert.CollectT

func eventually(t testing.TB, is func(c *attempt), why ...any) {
	require.EventuallyWithT(t, is, patience, 20*time.Millisecond, why...)
}

// must is the result of a function that must not fail: must(os.ReadFile(name))(t).
func must[T any](result T, err error) func(t require.TestingT, why ...any) T {
	return func(t require.TestingT, why ...any) T {
		require.NoError(t, err, why...)
		return result
	}
}

// output of a command that must not fail.
func output(t testing.TB, cmd *exec.Cmd) string {
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
	return string(out)
}

func notInPods(t testing.TB, why string) {
	if inPods() {
		t.Skip(why)
	}
}

const (
	// attempts of a request that the API server gave up because a webhook was slow, and the time between them.
	attempts     = 20
	attemptEvery = 500 * time.Millisecond
)

// slowWebhook reports whether the API server refused a request because it waited too long for an
// answer of a webhook. It stored nothing, and does so at once on a machine that is less busy.
func slowWebhook(text string) bool {
	if !strings.Contains(text, "failed calling webhook") {
		return false
	}
	for _, cause := range []string{"context deadline exceeded", "Client.Timeout exceeded", "TLS handshake timeout"} {
		if strings.Contains(text, cause) {
			return true
		}
	}
	return false
}

// patient sends a request again after slowWebhook, as a user would, if again is true.
type patient struct {
	next  http.RoundTripper
	again func(ctx context.Context, answer string) bool
}

// RoundTrip is that of the transport which is next.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := p.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusInternalServerError || attempt == attempts || r.Body != nil && r.GetBody == nil {
			return response, nil
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		if !slowWebhook(string(body)) || !p.again(r.Context(), string(body)) {
			return response, nil
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// slowAnswers are how many requests were sent again on a machine that was not busy. More than maxSlowAnswers fail the run: the replicas were
// slow then, and not the machine.
var slowAnswers atomic.Int64

const maxSlowAnswers = 2

// attemptAgain after a while, unless no one waits for the answer.
func attemptAgain(ctx context.Context, answer string) bool {
	var load float64
	text, err := os.ReadFile("/proc/loadavg") // How many threads wanted to run in the last minute.
	_, _ = fmt.Sscan(string(text), &load)
	countSlowAnswer(err != nil || load > float64(goruntime.GOMAXPROCS(0)), answer)
	pause(ctx, attemptEvery)
	return ctx.Err() == nil
}

// countSlowAnswer, unless the machine is busy: then it says nothing of the replicas.
func countSlowAnswer(busy bool, answer string) {
	if !busy {
		slowAnswers.Add(1)
		fmt.Fprintln(os.Stderr, "A webhook was slow, and the machine was not:", answer)
	}
}

// TestSlowAnswersAreCounted has a webhook that times out once. No other test runs beside it.
func TestSlowAnswersAreCounted(t *testing.T) {
	before, asked := slowAnswers.Load(), 0
	defer slowAnswers.Store(before)
	countSlowAnswer(true, "")
	assert.Equal(t, before, slowAnswers.Load(), "We should not count what the machine is slow at.")
	countSlowAnswer(false, "(only a test)")
	assert.Equal(t, before+1, slowAnswers.Load(), "We should count what the replicas are slow at.")
	_, _, err := patiently(func(context.Context, io.Reader, ...string) (string, string, error) {
		if asked++; asked == 1 {
			return "", "", errors.New(`failed calling webhook "a": context deadline exceeded`)
		}
		return "", "", nil
	})(t.Context(), nil)
	require.NoError(t, err, "We should ask again.")
	require.Equal(t, 2, asked)
}

// lateness of the machine, from now on: the returned function ends the measurement, and says by how much a goroutine that sleeps was woken
// too late at most. Bounds of time are stretched by it.
func lateness(t testing.TB) (worst func() time.Duration) {
	const beat = 10 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	most := make(chan time.Duration, 1)
	go func() {
		late := time.Duration(0)
		for ctx.Err() == nil {
			began := time.Now()
			pause(ctx, beat)
			late = max(late, time.Since(began)-beat)
		}
		most <- late
	}()
	return func() time.Duration { stop(); return <-most }
}

type kubectlFunc func(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error)

// patiently runs kubectl again after slowWebhook.
func patiently(kubectl kubectlFunc) kubectlFunc {
	return func(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
		var input []byte
		if stdin != nil {
			if input, err = io.ReadAll(stdin); err != nil {
				return "", "", err
			}
		}
		for attempt := 1; ; attempt++ {
			stdout, stderr, err = kubectl(ctx, bytes.NewReader(input), args...)
			if err == nil || attempt == attempts || !slowWebhook(err.Error()) || !attemptAgain(ctx, err.Error()) {
				return stdout, stderr, err
			}
		}
	}
}

var minorVersion = regexp.MustCompile(`Kubernetes v1\.(\d+)\.`)

// minor is that of the Kubernetes 1.x whose control planes are started here.
var minor = sync.OnceValues(func() (int, error) {
	dir, err := assets.Dir(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(filepath.Join(dir, "kube-apiserver"), "--version").Output() //nolint:gosec // It is the one under test.
	if err != nil {
		return 0, err
	}
	found := minorVersion.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("cannot read the version of kube-apiserver: %q", out)
	}
	return strconv.Atoi(string(found[1]))
})

func policiesServed(t testing.TB) bool {
	if inPods() {
		return true // The drivers start the newest release.
	}
	m := must(minor())(t)
	return m >= 36
}

func needsPolicies(t testing.TB) {
	if !policiesServed(t) {
		t.Skip("It needs MutatingAdmissionPolicy, which Kubernetes serves as v1 since 1.36.")
	}
}

func concurrently(t *testing.T, n int, do func(i int) error) {
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	require.NoError(t, all.Wait())
}
