package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/assets"
)

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

// slowWebhook says that the API server refused a request because it waited too long for an
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

// patient sends a request again after slowWebhook, as a user would.
type patient struct{ next http.RoundTripper }

func newPatient(next http.RoundTripper) http.RoundTripper { return patient{next} }

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
		if !slowWebhook(string(body)) || !attemptAgain(r.Context()) {
			return response, nil
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// attemptAgain after a while, unless nobody waits for the answer.
func attemptAgain(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(attemptEvery):
		return true
	}
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
			if err == nil || attempt == attempts || !slowWebhook(err.Error()) || !attemptAgain(ctx) {
				return stdout, stderr, err
			}
		}
	}
}

var minorVersion = regexp.MustCompile(`Kubernetes v1\.(\d+)\.`)

// minor is that of the Kubernetes 1.x of which control planes are started here.
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

func object(group, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	o.SetName(name)
	return o
}

func concurrently(t *testing.T, n int, do func(i int) error) {
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	require.NoError(t, all.Wait())
}

// register Claim and Class of a group, with the spec of the ClaimKind, and wait until claims are bound and these classes are offered.
func (w *world) register(t *testing.T, group, spec string, classes ...string) {
	claims, kind := "claims."+group, "classes."+group
	w.resources(t, "Claim "+claims+" Namespaced", "Class "+kind+" Cluster")
	w.apply(t, lateVendor(group)+claimKind(claims, spec)+classKind(kind, "{claimKinds: [{name: "+claims+"}]}")+strings.Join(classes, ""))
	w.awaitClaims(t, claims)
	w.awaitClasses(t, kind, len(classes))
}

// binds a claim that is created to a class; empty, to none.
func (w *world) binds(t testing.TB, manifest, class, reason string, o ...client.CreateOption) *unstructured.Unstructured {
	claim, _, err := w.create(t, manifest, o...)
	require.NoError(t, err, reason)
	assert.Equal(t, class, classOf(claim), reason)
	return claim
}

func (w *world) awaitBound(t testing.TB, manifest, class, reason string) {
	eventually(t, func(c *attempt) {
		claim, _, err := w.create(t, manifest, client.DryRunAll)
		require.NoError(c, err)
		require.Equal(c, class, classOf(claim))
	}, reason)
}

func (w *world) awaitRefused(t testing.TB, manifest, text, reason string) {
	eventually(t, func(c *attempt) {
		_, _, err := w.create(t, manifest, client.DryRunAll)
		require.ErrorContains(c, err, text)
	}, reason)
}

func (w *world) awaitKind(t testing.TB, name, reason string, check func(*attempt, *v1beta1.ClaimKind)) {
	k := &v1beta1.ClaimKind{}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Name: name}, k))
		check(c, k)
	}, reason)
}
