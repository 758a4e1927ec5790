package latebinding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

const lateKind = "claims.example.org"

// claimResource is how the API server serves the claims.
var claimResource = cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true}

func uidOf(n int) types.UID {
	return types.UID(fmt.Sprintf("%08x-1111-4222-8333-444444444444", n))
}

// lateClaimKind returns a claim kind with BindLater.
func lateClaimKind(change ...func(*v1beta1.ClaimKind)) *v1beta1.ClaimKind {
	k := controllertest.NewClaimKind(lateKind)
	k.UID, k.Generation = "5e1f", 1
	k.Spec.Selector.Path = ".spec.classSelector"
	k.Spec.Reference.Form, k.Spec.Choice.Strategy, k.Spec.WhenUnmatched = v1beta1.ObjectReference, v1beta1.WeightedRandom, v1beta1.BindLater
	for _, f := range change {
		f(k)
	}
	return k
}

// labelled returns classes, each given as a name and then key=value.
func labelled(kind *inventory.ClassKind, classes ...string) *inventory.Classes {
	all := make([]*inventory.Class, len(classes))
	for i, text := range classes {
		fields := strings.Fields(text)
		m := &metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			m.Labels[key] = value
		}
		all[i] = kind.NewClass(m, nil)
	}
	return inventory.NewClasses(kind, all)
}

// namespaces are a reader of their labels. No others exist.
type namespaces map[string]map[string]string

func (n namespaces) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	found, ok := n[k.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, k.Name)
	}
	o.SetLabels(found)
	return nil
}

func (namespaces) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("unexpected")
}

// lateCache is a cache that may be filled later. Until then, reads wait until their context ends.
type lateCache struct {
	client.Reader
	filled, reads *atomic.Int64
}

func (u lateCache) Get(ctx context.Context, k client.ObjectKey, o client.Object, options ...client.GetOption) error {
	u.reads.Add(1)
	if u.filled.Load() == 0 {
		<-ctx.Done()
		return apierrors.NewTimeoutError("failed waiting for Informer to sync", 0)
	}
	return u.Reader.Get(ctx, k, o, options...)
}

// lateReplica is what a replica has to bind claims later.
type lateReplica struct {
	claims       *Claims
	registration *registry.Registration
	reader       *controllertest.Cached
	kind         *v1beta1.ClaimKind
	golds        *inventory.ClassKind
	binder       *Binder
}

func newLateReplica(t testing.TB, s *claimServer, k *v1beta1.ClaimKind, change ...func(*Binder)) *lateReplica {
	t.Helper()
	events, err := eventsclient.NewForConfig(s.config())
	require.NoError(t, err)
	reader := &controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}}
	registration, err := registry.NewRegistration(s.config(), reader, reader)
	require.NoError(t, err)
	claims, err := NewClaims(registration, reader, s.config(), "classbind-system")
	require.NoError(t, err)
	r := &lateReplica{claims: claims, registration: registration, reader: reader, kind: k, golds: controllertest.NewClassKind("golds.example.org", "Gold")}
	compiled := selector.NewClaimKind(k)
	compiled.Tally = registration.Tallies.Tally(compiled)
	registration.Inventory.SetClaimKind(compiled)
	registration.Inventory.SetClasses(labelled(r.golds))
	registration.Inventory.Open()
	r.binder = &Binder{
		Claims:     r.claims,
		Events:     events,
		Instance:   "here",
		Namespaces: namespaces{},
		Rate:       100_000,
		Decider:    &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now},
		interval:   lateRound / 20,
		retry:      lateRetry / 20,
	}
	for _, f := range change {
		f(r.binder)
	}
	r.follow(t, k, compiled)
	t.Cleanup(func() { r.claims.drop(k.Name) })
	return r
}

// kindBinder is like the one that runs, for the same watch.
func (r *lateReplica) kindBinder(t testing.TB) *kindBinder {
	t.Helper()
	return r.binder.newKindBinder(t.Context(), r.claims.watches()[lateKind])
}

// follow watches the claims of a kind as it was compiled.
func (r *lateReplica) follow(t testing.TB, k *v1beta1.ClaimKind, compiled *selector.ClaimKind) {
	t.Helper()
	served, err := r.claims.follow(t.Context(), k, compiled, claimResource)
	require.NoError(t, err)
	require.True(t, served)
}

// recompiled is a claim kind as it is compiled after a change.
func (r *lateReplica) recompiled(k *v1beta1.ClaimKind, classKinds ...*v1beta1.ClassKind) *selector.ClaimKind {
	compiled := selector.NewClaimKind(k, classKinds...)
	compiled.Serial, compiled.Tally = 1, r.registration.Tallies.Tally(compiled)
	return compiled
}

// lead leads for a term, which ends with the test or before.
func (r *lateReplica) lead(t testing.TB) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	b := r.binder
	go func() { done <- b.Start(ctx) }()
	end = func() {
		cancel()
		if done != nil {
			assert.NoError(t, <-done, "We should see the term end well.")
			done = nil
		}
	}
	t.Cleanup(end)
	return end
}

func (r *lateReplica) awaitCounts(t testing.TB, want ClaimCounts) {
	t.Helper()
	eventually(t, "We should count the claims.", func(c *assert.CollectT) {
		n, known := r.claims.CountsOf(lateKind)
		assert.True(c, known)
		assert.Equal(c, want, n)
	})
}

const wantsGold = `{"classSelector":{"matchLabels":{"tier":"gold"}}}`

func namespacesOf(t testing.TB, s v1beta1.LabelSelector) *claim.Namespaces {
	t.Helper()
	n, err := claim.NewNamespaces(s, "classbind-system")
	require.NoError(t, err)
	return n
}

// newLateWatch returns a watch of claims, with a binder.
func newLateWatch(t testing.TB, change ...func(*v1beta1.ClaimKind)) *claimWatch {
	t.Helper()
	k := selector.NewClaimKind(lateClaimKind(change...))
	k.Tally = &selector.Tally{}
	return newLateWatchOf(t, k)
}

func newLateWatchOf(t testing.TB, k *selector.ClaimKind) *claimWatch {
	t.Helper()
	w := newClaimWatch(t.Context(), k, claimResource, namespacesOf(t, v1beta1.LabelSelector{}), func() {})
	t.Cleanup(w.stop)
	w.state.useBinder(&Binder{})
	return w
}

// claimJSON returns a claim with this uid, of team-a by default.
func claimJSON(uid int, spec string, namespace ...string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.org/v1","kind":"Claim","metadata":{"namespace":%q,"name":"a-claim-of-some-length-%d",`+
		`"uid":%q,"resourceVersion":"1234567%d","annotations":{"note":%q}},"spec":%s}`,
		append(namespace, "team-a")[0], uid, uidOf(uid), uid, strings.Repeat("x", 100), spec)
}

func addClaim(t testing.TB, w *claimWatch, raw []byte) {
	t.Helper()
	seen, err := w.read(raw)
	require.NoError(t, err)
	w.Put(seen)
}

func previewed(t *testing.T, view *selector.View, c claim.Claim) selector.Decision {
	t.Helper()
	d, err := new(selector.Decider).Decide(t.Context(), view, claim.Intake{Claim: c}, selector.Mode{Stored: true, DryRun: true})
	require.NoError(t, err)
	return d
}
