package latebinding

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

const lateKind = "claims.example.org"

func uidOf(n int) types.UID {
	return types.UID(fmt.Sprintf("%08x-1111-4222-8333-444444444444", n))
}

// lateClaimKind returns a claim kind with BindLater.
func lateClaimKind(change ...func(*v1alpha1.ClaimKind)) *v1alpha1.ClaimKind {
	k := controllertest.NewClaimKind(lateKind)
	k.UID, k.Generation = "5e1f", 1
	k.Spec.Paths.ClassSelector = ".spec.classSelector"
	k.Spec.ClassRefFormat, k.Spec.Strategy, k.Spec.WhenUnmatched = v1alpha1.ObjectReference, v1alpha1.WeightedRandom, v1alpha1.BindLater
	for _, f := range change {
		f(k)
	}
	return k
}

// labelled returns classes, each given as a name and then key=value.
func labelled(kind *selector.ClassKind, classes ...string) *selector.Classes {
	all := make([]*selector.Class, len(classes))
	for i, text := range classes {
		fields := strings.Fields(text)
		m := &metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			m.Labels[key] = value
		}
		all[i] = kind.NewClass(m, nil)
	}
	return selector.NewClasses(kind, all)
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
	kind         *v1alpha1.ClaimKind
	golds        *selector.ClassKind
	binder       *Binder
}

func newLateReplica(t testing.TB, s *claimServer, k *v1alpha1.ClaimKind, change ...func(*Binder)) *lateReplica {
	t.Helper()
	events, err := eventsclient.NewForConfig(s.config())
	require.NoError(t, err)
	reader := &controllertest.Cached{ClaimKinds: []v1alpha1.ClaimKind{*k}}
	registration, err := registry.NewRegistration(s.config(), reader, reader)
	require.NoError(t, err)
	claims, err := NewClaims(registration, reader, s.config(), "classbind-system", v1alpha1.DefaultLateMemory)
	require.NoError(t, err)
	r := &lateReplica{claims: claims, registration: registration, kind: k, golds: controllertest.NewClassKind("golds.example.org", "Gold")}
	compiled := selector.NewClaimKind(k)
	if compiled.Strategy.Counted {
		compiled.Tally = registration.Tally(k.Name)
	}
	registration.Inventory.SetClaimKind(compiled)
	registration.Inventory.SetClasses(labelled(r.golds))
	registration.Inventory.Open()
	r.binder = &Binder{Claims: r.claims, Events: NewEvents(events, "here"), Namespaces: namespaces{}, Rate: 100_000, Decider: &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now}, interval: lateRound / 20, retry: lateRetry / 20}
	for _, f := range change {
		f(r.binder)
	}
	served, err := r.claims.follow(t.Context(), k, cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true})
	require.NoError(t, err)
	require.True(t, served)
	t.Cleanup(func() { r.claims.drop(k.Name) })
	return r
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
		assert.Equal(c, map[string]ClaimCounts{lateKind: want}, r.claims.allCounts())
	})
}

const wantsGold = `{"classSelector":{"matchLabels":{"tier":"gold"}}}`

// TestLateBinding has claims wait for a class in every way, and then adds the class.
func TestLateBinding(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/no-opinion", `{}`)
	s.set(t, "team-a/silver", `{"classSelector":{"matchLabels":{"tier":"silver"}}}`)
	s.set(t, "team-a/explicit", `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"mine"}}`)
	s.set(t, "team-a/static", `{"resourceRef":{"name":"db"},"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/null", `{"classRef":null,"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/malformed", `{"classSelector":{"matchExpressions":[{"key":"tier","operator":"Foo"}]}}`)
	s.set(t, "team-a/ends", wantsGold, func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) })
	s.set(t, "kube-system/ours-not", wantsGold)
	s.set(t, "classbind-system/nor-ours", wantsGold)
	s.set(t, "other/not-selected", wantsGold)
	k := lateClaimKind(func(k *v1alpha1.ClaimKind) {
		k.Spec.NamespaceSelector = v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}}
	})
	r := newLateReplica(t, s, k, func(b *Binder) { b.Namespaces = namespaces{"team-a": {"team": "a"}, "other": {"team": "b"}} })
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 5})

	golds := []string{"gold-1 tier=gold", "gold-2 tier=gold", "gold-3 tier=gold"}
	r.registration.Inventory.SetClasses(labelled(r.golds, golds...))
	r.awaitCounts(t, ClaimCounts{Bound: 3, Waiting: 3})
	view := r.registration.Inventory.Snapshot()[lateKind]
	drawn := func(name string) string {
		claim := view.Kind.Read("team-a", name, map[string]any{"spec": map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}}}})
		require.Empty(t, claim.Problems)
		return previewed(t, view, claim.Claim).Class.Name
	}
	assert.Equal(t, map[string]string{
		"team-a/waits": drawn("waits"), "team-a/null": drawn("null"), "team-a/explicit": "mine",
		"team-a/no-opinion": "", "team-a/silver": "", "team-a/static": "", "team-a/malformed": "", "team-a/ends": "",
		"kube-system/ours-not": "", "classbind-system/nor-ours": "", "other/not-selected": "",
	}, s.classes(), "We should bind the claims that are ours to bind and have a class, to the one that they would have got at admission.")

	r.registration.Inventory.SetClasses(controllertest.NewClasses(r.golds, map[string][]string{"main": {"default", "true"}}))
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: 2})
	assert.Equal(t, "main", s.classes()["team-a/no-opinion"], "We should bind a claim without an opinion when there is a default class.")

	s.set(t, "team-a/late", wantsGold)
	s.set(t, "team-a/silver", wantsGold)
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: 3})
	r.registration.Inventory.SetClasses(labelled(r.golds, golds...))
	r.awaitCounts(t, ClaimCounts{Bound: 6, Waiting: 1})
	s.set(t, "team-a/later", wantsGold)
	r.awaitCounts(t, ClaimCounts{Bound: 7, Waiting: 1})
	s.remove("team-a/later")
	s.remove("team-a/malformed")
	r.awaitCounts(t, ClaimCounts{Bound: 6})

	for claim, n := range s.patches {
		assert.Equal(t, 1, n, "We should write %s once.", claim)
	}
	eventually(t, "We should say to which class each claim was bound.", func(c *assert.CollectT) {
		notes := s.notes(v1alpha1.EventBoundToClass)
		assert.Len(c, notes, 6)
		assert.Equal(c, "bound to Gold/"+drawn("waits")+", of 3 candidates", notes["team-a/waits"])
	})
}

// TestLateBindingOfWhatHasChanged writes claims that have changed since they were seen.
func TestLateBindingOfWhatHasChanged(t *testing.T) {
	s := newClaimServer(t)
	for i := range 4 {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: 4})
	s.mu.Lock()
	s.deaf = true
	s.mu.Unlock()
	s.set(t, "team-a/claim-0", `{"classRef":{"name":"mine"}}`)
	s.set(t, "team-a/claim-1", `{"classSelector":{"matchLabels":{"tier":"silver"}}}`)
	s.set(t, "team-a/claim-2", `{"note":"changed","classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.mu.Lock() // Deleted and created again under the same name.
	s.claims["team-a/claim-3"] = nil
	s.mu.Unlock()
	s.set(t, "team-a/claim-3", `{"resourceRef":{"name":"db"}}`)
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.lead(t)
	eventually(t, "We should try to write what we have seen.", func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, s.tried(), 4)
	})
	assert.Equal(t, map[string]string{"team-a/claim-0": "mine", "team-a/claim-1": "", "team-a/claim-2": "", "team-a/claim-3": ""}, s.classes(),
		"We should write no claim that is not any more what we have seen.")
	s.hear()
	eventually(t, "We should look again at what has changed.", func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"team-a/claim-0": "mine", "team-a/claim-1": "", "team-a/claim-2": "gold", "team-a/claim-3": ""}, s.classes())
	})
	assert.Equal(t, map[string]int{"team-a/claim-2": 1}, s.patches, "We should write only that one, once.")
}

// TestLeaderDies ends a term half way, and another replica goes on.
func TestLeaderDies(t *testing.T) {
	s := newClaimServer(t)
	const claims = 300
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.delay = time.Millisecond
	first, second := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = 100 }), newLateReplica(t, s, lateClaimKind())
	second.awaitCounts(t, ClaimCounts{Waiting: claims})
	for _, r := range []*lateReplica{first, second} {
		r.registration.Inventory.SetClasses(labelled(r.golds, "gold-1 tier=gold", "gold-2 tier=gold"))
	}
	end := first.lead(t)
	eventually(t, "We should begin.", func(c *assert.CollectT) { assert.Greater(c, s.bound(), 100) })
	// A leader that does not know that its term is over goes on for a moment beside the next.
	second.lead(t)
	end()
	second.awaitCounts(t, ClaimCounts{Bound: claims})
	assert.Equal(t, claims, s.bound(), "We should bind all claims in the end.")
	for claim, n := range s.patches {
		assert.Equal(t, 1, n, "We should write %s once.", claim)
	}
}

// TestNamespacesUnreadable has a cache of namespaces that fills late.
func TestNamespacesUnreadable(t *testing.T) {
	s := newClaimServer(t)
	known := namespaces{}
	for i := range 10 {
		s.set(t, fmt.Sprintf("team-%d/waits", i), wantsGold)
		known[fmt.Sprintf("team-%d", i)] = map[string]string{"team": strconv.Itoa(i % 2)}
	}
	k := lateClaimKind(func(k *v1alpha1.ClaimKind) {
		k.Spec.NamespaceSelector = v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "0"}}
		k.Spec.Strategy = v1alpha1.LeastClaims
	})
	cache := lateCache{known, &atomic.Int64{}, &atomic.Int64{}}
	r := newLateReplica(t, s, k, func(b *Binder) { b.Namespaces = cache })
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.awaitCounts(t, ClaimCounts{Waiting: 10})
	r.lead(t)
	eventually(t, "We should say what we cannot read.", func(c *assert.CollectT) {
		require.ErrorContains(c, r.claims.LateProblem(lateKind), "cannot read the labels of namespaces: ")
		n, _ := r.claims.CountsOf(lateKind)
		assert.Equal(c, 10, n.Waiting, "We should not take what we cannot read for what is not selected.")
		assert.NoError(c, r.claims.Problem(lateKind), "We should count the claims all the same.")
	})
	assert.Less(t, cache.reads.Load(), int64(5), "We should wait for one read alone in each round.")
	cache.filled.Store(1)
	r.awaitCounts(t, ClaimCounts{Bound: 5})
	assert.NoError(t, r.claims.LateProblem(lateKind), "We should say that all is well.")
}

// TestRefusalIsOver checks that a refusal ends when no claim waits, though none was written.
func TestRefusalIsOver(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.refuse("patch", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.lead(t)
	eventually(t, "We should say that we may not.", func(c *assert.CollectT) { assert.Error(c, r.claims.LateProblem(lateKind)) })
	s.remove("team-a/waits")
	r.awaitCounts(t, ClaimCounts{})
	assert.NoError(t, r.claims.LateProblem(lateKind), "We should not go on about a claim that has gone.")
}

// TestCountedThoughNotWritable has an API server that cannot patch the claims.
func TestCountedThoughNotWritable(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/bound", `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`)
	r := newLateReplica(t, s, lateClaimKind(func(k *v1alpha1.ClaimKind) { k.Spec.Strategy = v1alpha1.LeastClaims }))
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	claims := metav1.APIResource{Name: "claims", Kind: "Claim", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}
	serve := func() {
		serving, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{"/apis/example.org": controllertest.APIGroup("v1"), "/apis/example.org/v1": controllertest.APIResources(claims)}), r.claims.reader, nil)
		require.NoError(t, err)
		serving.Inventory = r.registration.Inventory
		r.claims.registration = serving
	}
	serve()
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 1})
	r.claims.binder.Store(r.binder) // The term has begun.
	reconcile := func() ctrl.Result {
		result, err := r.claims.reconcile(t.Context(), lateKind)
		require.NoError(t, err)
		return result
	}
	assert.Equal(t, registry.RetryAfter, reconcile().RequeueAfter, "We should look again.")
	require.NoError(t, r.claims.Problem(lateKind), "We should go on counting.")
	late := r.claims.LateProblem(lateKind)
	require.ErrorIs(t, late, cluster.ErrUnsuitable)
	require.ErrorContains(t, late, `"patch"`, "We should say what is missing.")
	r.binder.round(t.Context(), r.claims.watches()[lateKind], true, lateAsking)
	assert.Empty(t, r.binder.writers, "We should queue nothing that we cannot write.")

	claims.Verbs = append(claims.Verbs, "patch")
	serve()
	assert.Zero(t, reconcile())
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 2})
}

// TestTermsOverlap has a term end late, or fail to begin, while the next one runs.
func TestTermsOverlap(t *testing.T) {
	s := newClaimServer(t)
	r := newLateReplica(t, s, lateClaimKind())
	reader, ok := r.claims.reader.(*controllertest.Cached)
	require.True(t, ok)
	reader.ListErr = errors.New("the cache has stopped")
	require.Error(t, r.binder.Start(t.Context()))
	assert.False(t, r.claims.leading(), "We should not lead after a term that could not begin.")
	assert.Empty(t, r.binder.writers, "We should leave nothing behind.")
	reader.ListErr = nil

	next := *r.binder
	old := r.lead(t)
	eventually(t, "We should lead.", func(c *assert.CollectT) { assert.True(c, r.claims.leading()) })
	r.binder = &next
	r.lead(t)
	w := r.claims.watches()[lateKind]
	eventually(t, "We should begin the next term.", func(c *assert.CollectT) {
		assert.True(c, r.claims.binder.Load() == &next) //nolint:testifylint // Same would print a binder that runs.
	})
	old()
	assert.True(t, r.claims.leading(), "We should not end the next term with the last.")
	eventually(t, "We should serve the next term.", func(c *assert.CollectT) {
		w.own(func(s *claimState) {
			assert.True(c, s.binder == &next) //nolint:testifylint // Same would print a binder that runs.
		})
	})
}

// TestLateBindingRefused has the right to list the claims, but not to write them.
func TestLateBindingRefused(t *testing.T) {
	s := newClaimServer(t)
	for i := range 50 {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.refuse("patch", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.lead(t)
	eventually(t, "We should say that we may not, and name no claim.", func(c *assert.CollectT) {
		why := r.claims.LateProblem(lateKind)
		assert.True(c, apierrors.IsForbidden(why))
		assert.EqualError(c, why, "claims.example.org is forbidden: the API server does not let classbind patch any")
	})
	assert.Never(t, func() bool { return s.tried() > lateWorkers }, lateRound, lateRound/10, "We should not try one claim after the other where none may be written.")

	s.refuse("patch", 0)
	w := r.claims.watches()[lateKind]
	assert.Positive(t, w.pause(time.Now()), "We should try again after a while.")
	w.own(func(s *claimState) {
		s.paused = time.Time{} // It is over.
		s.unmatch()
	})
	r.awaitCounts(t, ClaimCounts{Bound: 50})
	assert.NoError(t, r.claims.LateProblem(lateKind), "We should say that all is well.")
}

// TestLateBindingDenied has another webhook deny a few claims, with any code, and then none.
func TestLateBindingDenied(t *testing.T) {
	s := newClaimServer(t)
	codes := []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusBadRequest}
	for i, code := range codes {
		team := fmt.Sprintf("team-%d", i)
		s.deny(team, code)
		for j := range 10 {
			s.set(t, fmt.Sprintf("%s/claim-%d", team, j), `{"classSelector":{}}`)
			s.set(t, fmt.Sprintf("team-a/claim-%d-%d", i, j), `{"classSelector":{}}`)
		}
	}
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold"))
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 40, Waiting: 40})
	require.NoError(t, r.claims.LateProblem(lateKind), "We should go on with the others.")
	eventually(t, "We should have tried all.", func(c *assert.CollectT) { assert.GreaterOrEqual(c, s.tried(), 80) })
	for i := range codes {
		s.deny(fmt.Sprintf("team-%d", i), 0)
	}
	r.awaitCounts(t, ClaimCounts{Bound: 80}) // Though none of the claims has changed.
}

func TestWhyNotWritten(t *testing.T) {
	denied := func(message string) error { // By a webhook, in kube-apiserver's words.
		status := apierrors.NewForbidden(schema.GroupResource{}, "", nil).ErrStatus
		status.Message = `admission webhook "other" denied the request: ` + message
		return apierrors.FromObject(&status)
	}
	claims, kind := schema.GroupResource{Group: "example.org", Resource: "claims"}, schema.GroupKind{Group: "example.org", Kind: "Claim"}
	for name, tc := range map[string]struct {
		reason                 string
		err                    error
		outdated, unauthorized bool
	}{
		"TestFails":    {"We should know that the claim has changed.", apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false), true, false},
		"Gone":         {"We should know that the claim has gone.", apierrors.NewNotFound(claims, "db"), true, false},
		"Invalid":      {"We should try again what the schema refuses: it may change.", apierrors.NewInvalid(kind, "db", field.ErrorList{field.Required(field.NewPath("spec"), "")}), false, false},
		"Conflict":     {"We should try again where two writes met.", apierrors.NewConflict(claims, "db", errors.New("changed")), false, false},
		"Unauthorized": {"We should know that we may write no claim.", apierrors.NewForbidden(claims, "db", errors.New(`User "classbind" cannot patch resource "claims" in API group "example.org" in the namespace "team-a"`)), false, true},
		"Denied":       {"We should take a webhook's word for one claim alone.", apierrors.NewForbidden(claims, "db", errors.New(`admission webhook "other" denied the request`)), false, false},
		"Denied403":    {"We should know a webhook's word by whatever it quotes.", denied(`claims.example.org "db" is forbidden: User "classbind" cannot patch resource "claims" in API group "example.org"`), false, false},
		"Quoted":       {"We should know a policy's word by whatever it quotes.", apierrors.NewForbidden(claims, "db", errors.New(`ValidatingAdmissionPolicy 'other' denied request: "db" is forbidden: User "classbind" cannot patch resource "claims"`)), false, false},
		"ClusterScope": {"We should know that we may write no claim.", apierrors.NewForbidden(claims, "db", errors.New(`User "system:serviceaccount:a:b" cannot patch resource "claims" in API group "example.org" at the cluster scope: no`)), false, true},
		"Unreachable":  {"We should try again where there is no answer.", errors.New("connection refused"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("cannot write: %w", tc.err)
			assert.Equal(t, [2]bool{tc.outdated, tc.unauthorized}, [2]bool{isOutdated(err), isUnauthorized(err)}, tc.reason)
		})
	}
}

// TestClaimsOnTheWayIn lists in pages if the API server streams no list, and retries if it refuses.
func TestClaimsOnTheWayIn(t *testing.T) {
	s := newClaimServer(t)
	const claims = 1200
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.refuse("watchlist", http.StatusUnprocessableEntity)
	s.refuse("list", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind(func(k *v1alpha1.ClaimKind) { k.Spec.Strategy = v1alpha1.LeastClaims }))
	eventually(t, "We should say that we may not list the claims.", func(c *assert.CollectT) {
		_, known := r.claims.CountsOf(lateKind)
		assert.False(c, known)
		assert.True(c, apierrors.IsForbidden(r.claims.LateProblem(lateKind)))
		assert.True(c, apierrors.IsForbidden(r.claims.Problem(lateKind)))
	})
	require.NoError(t, r.claims.Ready(time.Now()), "We should not hold up a replica for what we are refused.")
	s.refuse("list", 0)
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	assert.Equal(t, claims/v1alpha1.LateListPage, s.pages, "We should list by pages.")
	eventually(t, "We should say that all is well.", func(c *assert.CollectT) { assert.NoError(c, r.claims.LateProblem(lateKind)) })
}

// TestNoMatchingClass sends one event for each claim that stays unbound, over two terms.
func TestNoMatchingClass(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/malformed", `{"classSelector":"gold"}`)
	s.set(t, "kube-system/ours-not", wantsGold)
	for range 2 {
		r := newLateReplica(t, s, lateClaimKind())
		r.awaitCounts(t, ClaimCounts{Waiting: 2})
		r.lead(t)
		w := r.claims.watches()[lateKind]
		eventually(t, "We should see to the watch.", func(c *assert.CollectT) {
			w.own(func(s *claimState) { assert.NotNil(c, s.view) })
		})
		view := r.binder.view(w)
		r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now())
		assert.Zero(t, r.binder.Events.queue.len(), "We should wait for a while before we say that a claim waits.")
		for range 2 {
			r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now().Add(noticeDelay+time.Second))
		}
		eventually(t, "We should say it.", func(c *assert.CollectT) {
			assert.Equal(c, map[string]string{
				"team-a/waits":     `no class for this claim of "claims.example.org" matches the selector "tier=gold" (among 0 classes of golds.example.org): change the selector, or create or label a class; it will be bound when a class matches`,
				"team-a/malformed": `spec.classSelector: Invalid value: "gold": must be an object, a label selector`,
			}, s.notes(v1alpha1.EventNoMatchingClass))
		})
	}
}

// TestNoMatchingClassIsSentInTheEnd has the event fail, and a class come and go, first.
func TestNoMatchingClassIsSentInTheEnd(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.refuse("create", http.StatusInternalServerError)
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: 1})
	r.lead(t)
	w := r.claims.watches()[lateKind]
	eventually(t, "We should see to the watch.", func(c *assert.CollectT) {
		w.own(func(s *claimState) { assert.NotNil(c, s.view) })
	})
	later := time.Now()
	notify := func(view *selector.View) {
		later = later.Add(noticeDelay + time.Second)
		r.binder.Events.notifyWaiting(t.Context(), w, view, later)
	}
	notify(selector.NewView(w.kind, []*selector.Classes{labelled(r.golds, "gold tier=gold")})) // No round asks for this one.
	view := r.binder.view(w)
	eventually(t, "We should try to say it, in vain, again and again.", func(c *assert.CollectT) {
		notify(view)
		assert.Greater(c, s.creations(), 2)
	})
	s.refuse("create", 0)
	eventually(t, "We should say it when it can be said.", func(c *assert.CollectT) {
		notify(view)
		assert.Len(c, s.notes(v1alpha1.EventNoMatchingClass), 1)
	})
	n := s.creations()
	notify(view)
	notify(view)
	assert.Zero(t, r.binder.Events.queue.len())
	assert.Equal(t, n, s.creations(), "We should say it once.")
}

// TestEventsRate has more events to send than a burst may have.
func TestEventsRate(t *testing.T) {
	s := newClaimServer(t)
	const claims, rate = 300, 50
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = rate })
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	w := r.claims.watches()[lateKind]
	begin := time.Now()
	r.lead(t)
	eventually(t, "We should begin to say that there is no class.", func(c *assert.CollectT) {
		if view := r.binder.view(w); view != nil {
			r.binder.Events.notifyWaiting(t.Context(), w, view, time.Now().Add(noticeDelay+time.Second))
		}
		assert.Greater(c, s.creations(), 2*rate+5)
	})
	assert.LessOrEqual(t, float64(s.creations()), 2*rate+rate*time.Since(begin).Seconds()+eventWorkers, "We should keep to the rate.")
}

// TestLateBindingRate binds more claims than a burst may have.
func TestLateBindingRate(t *testing.T) {
	s := newClaimServer(t)
	const claims, rate = 500, 200
	for i := range claims {
		s.set(t, fmt.Sprintf("team-%d/claim-%d", i%10, i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = rate })
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	begin := time.Now()
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: claims})
	assert.GreaterOrEqual(t, time.Since(begin), (claims-2*rate)*time.Second/rate, "We should keep to the rate.")
}

// BenchmarkLateBinding measures what late binding adds to the cost of the API server.
func BenchmarkLateBinding(b *testing.B) {
	const claims = 5000
	for b.Loop() {
		b.StopTimer()
		s := newClaimServer(b)
		for i := range claims {
			s.set(b, fmt.Sprintf("team-%d/claim-%d", i%10, i), wantsGold)
		}
		r := newLateReplica(b, s, lateClaimKind())
		r.awaitCounts(b, ClaimCounts{Waiting: claims})
		r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
		b.StartTimer()
		end := r.lead(b)
		r.awaitCounts(b, ClaimCounts{Bound: claims})
		end()
	}
	b.ReportMetric(float64(claims*b.N)/b.Elapsed().Seconds(), "claims/s")
}

// TestLeastClaimsCounted checks that the tally has the bound claims of the watch.
func TestLeastClaimsCounted(t *testing.T) {
	s := newClaimServer(t)
	bound := func(name, class string) {
		s.set(t, "team-a/"+name, fmt.Sprintf(`{"classRef":{"apiVersion":"example.org/v2","kind":"Gold","name":%q}}`, class))
	}
	bound("one", "gold-1")
	bound("two", "gold-1")
	bound("three", "gold-2")
	s.set(t, "team-a/none", wantsGold)
	r := newLateReplica(t, s, lateClaimKind(func(k *v1alpha1.ClaimKind) {
		k.Spec.Strategy, k.Spec.WhenUnmatched = v1alpha1.LeastClaims, v1alpha1.Admit
	}))
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold-1 tier=gold", "gold-2 tier=gold"))
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	require.NoError(t, r.claims.Ready(time.Now()))
	n := 0
	choose := func(class, reason string) selector.Decision {
		t.Helper()
		n++
		view := r.registration.Inventory.Snapshot()[lateKind]
		claim := view.Kind.Read("team-a", "new-"+strconv.Itoa(n), map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}})
		require.Empty(t, claim.Problems)
		d := previewed(t, view, claim.Claim)
		if class != "" {
			assert.Equal(t, class, d.Class.Name, reason)
		}
		return d
	}
	d := choose("gold-2", "We should choose the class with the fewest claims.")
	_, err := r.binder.Decider.Decide(t.Context(), d.View, d.Claim, selector.Admit)
	require.NoError(t, err)
	bound("four", "gold-2")
	r.awaitCounts(t, ClaimCounts{Bound: 4})
	choose("gold-1", "We should count the claim that was given a class a moment ago: two to three.")
	bound("new-1", "gold-2")
	r.awaitCounts(t, ClaimCounts{Bound: 5})
	s.remove("team-a/four")
	s.remove("team-a/three")
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	choose("gold-2", "We should count a claim once that is stored, and not one that is deleted.")

	again := *r.kind
	again.Generation = 2
	_, err = r.claims.follow(t.Context(), &again, cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true})
	require.NoError(t, err)
	r.awaitCounts(t, ClaimCounts{Bound: 3})
	choose("gold-2", "We should count no claim twice after a change of the registration.")
	r.claims.drop(lateKind)
	seen := map[string]bool{}
	for range 50 {
		seen[choose("", "").Class.Name] = true
	}
	assert.Len(t, seen, 2, "We should count nothing that is watched no more.")
}

func namespacesOf(t testing.TB, s v1alpha1.NamespaceSelector) *selector.Namespaces {
	t.Helper()
	n, err := selector.NewNamespaces(s, "classbind-system")
	require.NoError(t, err)
	return n
}

// newLateWatch returns a watch of claims, with a binder.
func newLateWatch(t testing.TB, change ...func(*v1alpha1.ClaimKind)) *claimWatch {
	t.Helper()
	k := selector.NewClaimKind(lateClaimKind(change...))
	k.Tally = &selector.Tally{}
	w := newClaimWatch(t.Context(), k, cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Claim"}, Namespaced: true}, namespacesOf(t, v1alpha1.NamespaceSelector{}), func() {})
	t.Cleanup(w.stop)
	w.state.useBinder(&Binder{}, time.Now())
	return w
}

// claimJSON returns a claim with this uid, of team-a by default.
func claimJSON(uid int, spec string, namespace ...string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.org/v1","kind":"Claim","metadata":{"namespace":%q,"name":"a-claim-of-some-length-%d","uid":%q,"resourceVersion":"1234567%d","annotations":{"note":%q}},"spec":%s}`,
		append(namespace, "team-a")[0], uid, uidOf(uid), uid, strings.Repeat("x", 100), spec)
}

func addClaim(t testing.TB, w *claimWatch, raw []byte) {
	t.Helper()
	seen, err := w.read(raw)
	require.NoError(t, err)
	require.NoError(t, w.Add(seen))
}

// heap is the heap that is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	m := runtime.MemStats{}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // It is far from that.
}

// TestClaimMemory measures the memory that a claim takes.
func TestClaimMemory(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	many := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	for name, tc := range map[string]struct {
		reason string
		later  v1alpha1.WhenUnmatched
		spec   string // with %d for a number
		claims int
		most   int64
	}{
		"Waiting":      {"We should hold little of a claim that waits.", v1alpha1.BindLater, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`, 10_000, 600},
		"Bound":        {"We should hold little of a claim that is bound.", v1alpha1.BindLater, `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold-%d"}}`, 10_000, 600},
		"WaitsForNone": {"We should hold nothing of a claim that is not bound later.", v1alpha1.Admit, `{"classSelector":{"matchLabels":{"tier":"gold-%d"}}}`, 10_000, 150},
		"Long":         {"We should hold a long selector as its text alone.", v1alpha1.BindLater, `{"classSelector":{"matchExpressions":[{"key":"tier","operator":"In","values":["%d",` + many(`"gold"`, 10_000) + `]}]}}`, 20, 65_000},
		"Malformed":    {"We should not hold what is wrong with it as long as an author likes.", v1alpha1.BindLater, `{"classSelector":{"%d` + long + `":{}}}`, 20, 30_000},
		"Dense":        {"We should hold of no selector more than this.", v1alpha1.BindLater, `{"classSelector":{"matchExpressions":[{"key":"tier-%d","operator":"Exists"},` + many(`{"key":"a","operator":"Exists"}`, 500) + `]}}`, 100, 2_500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLateWatch(t, func(k *v1alpha1.ClaimKind) { k.Spec.Strategy, k.Spec.WhenUnmatched = v1alpha1.LeastClaims, tc.later })
			before := heap()
			for i := range tc.claims {
				addClaim(t, w, claimJSON(i, fmt.Sprintf(tc.spec, i%50), fmt.Sprintf("team-%d", i%10)))
			}
			each := (heap() - before) / int64(tc.claims)
			n, _ := w.counts()
			t.Logf("%d bytes for each of %d", each, n.Bound+n.Waiting)
			assert.Less(t, each, tc.most, tc.reason)
			runtime.KeepAlive(w)
		})
	}
}

func TestLateClaimsAreGrouped(t *testing.T) {
	w := newLateWatch(t)
	add := func(uid int, selector string) { addClaim(t, w, claimJSON(uid, `{"classSelector":`+selector+`}`)) }
	for i := range 100 {
		add(i, fmt.Sprintf(`{"matchLabels":{"tier":"%d"}}`, i%4))
	}
	require.Len(t, w.state.room.namespaces["team-a"].groups, 4, "We should hold each selector once.")
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	view := func(classes ...string) *selector.View {
		return selector.NewView(w.kind, []*selector.Classes{labelled(golds, classes...)})
	}
	none := view()
	assert.Empty(t, w.due(t.Context(), none), "We should find nothing to bind without classes.")
	assert.Empty(t, w.state.room.namespaces["team-a"].lines[lineFresh])
	one := view("one tier=1")
	assert.Len(t, w.due(t.Context(), one), 25, "We should find the claims of the selector that matches now.")
	assert.Empty(t, w.due(t.Context(), one), "We should give out no claim twice for the same classes.")
	assert.Empty(t, w.due(t.Context(), view("one tier=1", "uno tier=1")), "We should give out no claim twice for more classes.")
	two := view("one tier=1", "two tier=2")
	assert.Len(t, w.due(t.Context(), two), 25, "We should find those of the other selector, and only those.")
	add(1000, `{"matchLabels":{"tier":"1"}}`)
	assert.Len(t, w.due(t.Context(), two), 1, "We should find a claim that comes later.")
	w.state.missed(waitingAttempt{uid: uidOf(1)})
	assert.Len(t, w.due(t.Context(), two), 26, "We should find again the claims for which a class was missed.")
	assert.Empty(t, w.due(t.Context(), none))
	assert.Len(t, w.due(t.Context(), two), 51, "We should find again the claims whose class has gone and come.")
}

// TestAskingEnds has more groups of claims than one round can ask about.
func TestAskingEnds(t *testing.T) {
	w := newLateWatch(t)
	const groups = 50
	for i := range groups {
		addClaim(t, w, claimJSON(i, fmt.Sprintf(`{"classSelector":{"matchExpressions":[{"key":"none-%d","operator":"DoesNotExist"}]}}`, i)))
	}
	view := selector.NewView(w.kind, []*selector.Classes{labelled(controllertest.NewClassKind("golds.example.org", "Gold"), "gold")})
	over, end := context.WithCancel(t.Context())
	end()
	found := map[types.UID]bool{}
	for i := range groups {
		for _, item := range w.due(over, view) {
			found[item.uid] = true
		}
		assert.Len(t, found, i+1, "We should ask no more when the time is over, and yet go on in each round.")
	}
	assert.Empty(t, w.due(t.Context(), view))
}

// TestReadyWaitsForCounts checks that a replica that starts waits long enough, and no longer.
func TestReadyWaitsForCounts(t *testing.T) {
	s := newClaimServer(t)
	k := lateClaimKind(func(k *v1alpha1.ClaimKind) { k.Spec.Strategy = v1alpha1.LeastClaims })
	r := newLateReplica(t, s, k)
	now := time.Now()
	unwatched, err := NewClaims(r.registration, r.claims.reader, s.config(), "", v1alpha1.DefaultLateMemory)
	require.NoError(t, err)
	require.ErrorIs(t, unwatched.Ready(now), errNotWatched, "We should wait until the claims are counted.")
	assert.True(t, NotYet(unwatched.Problem(lateKind)), "We should say that we do not watch yet.")
	require.NoError(t, unwatched.Ready(now.Add(registry.RefusalGrace)), "We should not wait for ever.")
	r.awaitCounts(t, ClaimCounts{})
	require.NoError(t, r.claims.Ready(now), "We should be ready when they are.")
	r.claims.drop(lateKind)
	require.NoError(t, r.claims.Ready(now), "We should not cease to be ready for a kind that is registered later.")
}

func previewed(t *testing.T, view *selector.View, claim selector.Claim) selector.Decision {
	t.Helper()
	d, err := preview(t.Context(), view, claim)
	require.NoError(t, err)
	return d
}
