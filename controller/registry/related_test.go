package registry

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

const plansResource = "plans.example.org"

// forBubble has client-go handle no errors: it delays repeated ones by a clock that was read before the bubble began.
func forBubble(t *testing.T) {
	t.Helper()
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// relatedWorld is a replica that starts beside a controllertest.PlanServer.
type relatedWorld struct {
	*Registration
	t      *testing.T
	server *controllertest.PlanServer
	cache  *controllertest.Cached

	mu     sync.Mutex
	queued []string
}

func newRelatedWorld(t *testing.T) *relatedWorld {
	t.Helper()
	w := newStartingWorld(t)
	w.Inventory.Open()
	return w
}

// newStartingWorld is the same before its inventory is open.
func newStartingWorld(t *testing.T) *relatedWorld {
	t.Helper()
	forBubble(t)
	w := &relatedWorld{t: t, server: &controllertest.PlanServer{}, cache: &controllertest.Cached{}}
	w.server.Serve("p")
	r, err := NewRegistration(&rest.Config{Host: "http://in.a.bubble", QPS: -1, Transport: w.server}, w.cache, w.cache)
	require.NoError(t, err)
	w.Registration = r
	return w
}

// run requests what the controller would.
func (w *relatedWorld) run() {
	w.RelatedKinds.request(w.t.Context(), func(key string, _ time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queued = append(w.queued, key)
	})
}

// reconcile all that is requested, and wait for what follows.
func (w *relatedWorld) reconcile() (after []time.Duration) {
	w.t.Helper()
	w.mu.Lock()
	queued := w.queued
	w.queued = nil
	w.mu.Unlock()
	slices.Sort(queued)
	for _, key := range slices.Compact(queued) {
		result, err := w.RelatedKinds.reconcile(w.t.Context(), key)
		if err != nil {
			result.RequeueAfter = -1
		}
		after = append(after, result.RequeueAfter)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return after
}

func (w *relatedWorld) again(key string) {
	w.t.Helper()
	w.mu.Lock()
	w.queued = append(w.queued, key)
	w.mu.Unlock()
	w.reconcile()
}

// names registers a claim kind whose claims name a plan, in a version, and look at these fields.
func (w *relatedWorld) names(name, version string, fields ...string) {
	w.t.Helper()
	k := controllertest.NewClaimKind(name)
	k.UID = "5e1f"
	k.Generation = 1
	k.Spec.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: plansResource, Version: version, NameExpression: "claim.spec.planId"}}
	for _, f := range fields {
		k.Spec.Classes.Fits = append(k.Spec.Classes.Fits, v1beta1.Fit{Name: "F", Expression: v1beta1.Expression("class.metadata.name == related.plan." + f)})
	}
	if i := slices.IndexFunc(w.cache.ClaimKinds, func(o v1beta1.ClaimKind) bool { return o.Name == name }); i >= 0 {
		k.Generation = w.cache.ClaimKinds[i].Generation + 1
		w.cache.ClaimKinds = slices.Delete(w.cache.ClaimKinds, i, i+1)
	}
	w.cache.ClaimKinds = append(w.cache.ClaimKinds, *k)
	_, err := w.reconcileClaimKind(w.t.Context(), name)
	require.NoError(w.t, err)
	require.Empty(w.t, selector.NewClaimKind(k).Rules.InvalidExpressions())
}

func (w *relatedWorld) forget(name string) {
	w.t.Helper()
	w.cache.ClaimKinds = slices.DeleteFunc(w.cache.ClaimKinds, func(o v1beta1.ClaimKind) bool { return o.Name == name })
	_, err := w.reconcileClaimKind(w.t.Context(), name)
	require.NoError(w.t, err)
}

// fault of the claims of a kind; empty, they are bound.
func (w *relatedWorld) fault(name string) string {
	w.t.Helper()
	view := w.Inventory.Snapshot()[name]
	require.NotNil(w.t, view)
	if view.Fault == nil {
		return ""
	}
	return view.Fault.Text
}

// tier of a plan as the claim kind that looks at it sees it.
func (w *relatedWorld) tier(version, plan string) any {
	w.t.Helper()
	objects := w.Inventory.Snapshot()["as.example.org"].Related(rules.Key{Resource: plansResource, Version: version})
	if objects == nil {
		return "unknown"
	}
	o := objects.Find("team", plan)
	if o == nil {
		return nil
	}
	tier, _ := o.Lookup(fields.Path{"spec", "tier"})
	return tier
}

func (w *relatedWorld) end() {
	for _, k := range slices.Clone(w.cache.ClaimKinds) {
		w.forget(k.Name)
	}
	w.reconcile()
	assert.Empty(w.t, w.RelatedKinds.related, "We should forget what nobody needs.")
	synctest.Wait()
}

func TestRelatedIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a, b = "as.example.org", "bs.example.org"
		w := newRelatedWorld(t)
		w.names(a, "", "spec.tier")
		assert.Equal(t, v1beta1.ReasonNotSynced, w.RelatedKinds.RelatedState(a).Reason)
		assert.True(t, w.RelatedKinds.RelatedState(a).Pending(), "We should start only when we know what claims name.")
		w.run()
		assert.Equal(t, []time.Duration{0}, w.reconcile(), "We should watch what was needed before the controller began.")
		assert.Empty(t, w.fault(a))
		assert.Equal(t, "gold", w.tier("", "p"), "We should know what is listed.")
		assert.Equal(t, State{Reason: v1beta1.ReasonServed, Message: "the objects that claims name are known", Known: true}, w.RelatedKinds.RelatedState(a))

		metrics := prometheus.NewPedanticRegistry()
		require.NoError(t, metrics.Register(registrationMetrics{w.Registration}))
		scraped := controllertest.Scraped(t, metrics)
		assert.InDelta(t, 1, scraped["related_ready resource=plans.example.org"], 0)
		assert.InDelta(t, 1, scraped["related_objects resource=plans.example.org"], 0)

		w.server.Event("ADDED", "q", "iron")
		w.server.Event("MODIFIED", "p", "lead")
		synctest.Wait()
		assert.Equal(t, []any{"lead", "iron"}, []any{w.tier("", "p"), w.tier("", "q")}, "We should know what changed.")
		before := w.Inventory.Snapshot()[a]
		w.server.Event("MODIFIED", "p", "lead")
		synctest.Wait()
		assert.Same(t, before, w.Inventory.Snapshot()[a], "We should make no new view where nothing changed that is looked at.")
		w.server.Event("DELETED", "q", "iron")
		synctest.Wait()
		assert.Nil(t, w.tier("", "q"))

		first := w.RelatedKinds.related[rules.Key{Resource: plansResource}]
		w.names(b, "", "spec.size")
		assert.Empty(t, w.fault(a), "We should go on where nothing more is looked at.")
		assert.True(t, w.RelatedKinds.RelatedState(a).Known, "We should say so.")
		assert.False(t, w.RelatedKinds.RelatedState(b).Known)
		assert.Contains(t, w.fault(b), "not listed them yet", "We should not take for absent what we do not hold.")
		w.reconcile()
		assert.Empty(t, w.fault(b))
		assert.Equal(t, "lead", w.tier("", "p"), "We should hold what both look at.")
		w.RelatedKinds.publish(first, inventory.NewObjects(first.kind, true, nil), nil)
		assert.Equal(t, "lead", w.tier("", "p"), "We should not listen to a watch that was replaced.")

		now := w.RelatedKinds.related[rules.Key{Resource: plansResource}]
		w.again(plansResource)
		assert.Same(t, now, w.RelatedKinds.related[rules.Key{Resource: plansResource}], "We should not watch anew where nothing changed.")

		kind := w.Inventory.Snapshot()[a].Kind
		_, err := w.reconcileClaimKind(t.Context(), a)
		require.NoError(t, err)
		assert.Same(t, kind, w.Inventory.Snapshot()[a].Kind, "We should keep a claim kind that has not changed, with what its strategy remembers.")
		w.end()
		w.names(a, "", "spec.tier")
		require.Contains(t, w.fault(a), "not listed them yet", "We should hold nothing of what nobody needed.")
		assert.Equal(t, v1beta1.ReasonRelatedMissing, w.Inventory.Snapshot()[a].Fault.Reason)
		w.end()
	})
}

// TestNamespacesOfClassKinds proves that a claim kind follows Namespaces for as long as one of its class kinds looks at them.
func TestNamespacesOfClassKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "as.example.org"
		w := newRelatedWorld(t)
		w.run()
		w.names(name, "")
		watched := func() (all []string) {
			for key, k := range w.RelatedKinds.related {
				if k.kind != nil && key.Resource == "namespaces" {
					for _, p := range k.kind.Fields.Paths() {
						all = append(all, p.String())
					}
				}
			}
			return all
		}
		assert.Empty(t, watched(), "We should follow no Namespaces that nobody looks at.")
		classKind := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org", Generation: 1}}
		classKind.Spec.ClaimKinds = controllertest.Links(name)
		for _, step := range []struct {
			reason string
			text   v1beta1.Expression
			want   []string
		}{
			{
				reason: "We should follow what a class kind looks at.",
				text:   "namespaceObject.metadata.labels.tenant == class.metadata.name",
				want:   []string{"metadata.labels[tenant]"},
			},
			{
				reason: "We should follow what it looks at now.",
				text:   "namespaceObject.metadata.labels.zone == class.metadata.name",
				want:   []string{"metadata.labels[zone]"},
			},
			{
				reason: "We should follow them no longer than it looks.",
				text:   "claim.spec.zone == class.metadata.name",
			},
		} {
			classKind.Generation++
			classKind.Spec.Fits = []v1beta1.Fit{{Name: "Tenant", Expression: step.text}}
			w.cache.ClassKinds = []v1beta1.ClassKind{classKind}
			assert.Equal(t, []string{name}, w.claimKindsLookedAt(t.Context(), &classKind), "We should compile the claim kind again.")
			_, err := w.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, step.want, watched(), step.reason)
		}
		w.cache.ClassKinds = nil
		w.end()
	})
}

func TestRelatedIsNotKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		version string         // that the claim kind asks for
		served  string         // the version of plans
		refusal *metav1.Status // of plans
		after   time.Duration  // negative is an error
		fault   string         // empty, claims are bound
		state   string
		message string
		pending bool
	}{
		"NotInstalled": {
			reason: "We should take the objects of a resource that is not there for absent.",
			after:  RetryAfter,
			state:  v1beta1.ReasonNotInstalled, message: `the API server serves no "plans.example.org": to expressions, the related object is absent`,
		},
		"VersionNotServed": {
			reason: "We should not take objects for absent that are there in another version.", version: "v2",
			served: "v1", after: RetryAfter, fault: `the API server does not serve this version, "v2": set the version of the related`,
			state: v1beta1.ReasonVersionNotServed, message: `"plans.example.org/v2": the API server does not serve this version`,
		},
		"Forbidden": {
			reason: "We should say what admins can do.",
			served: "v1", refusal: controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden),
			fault: "label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true",
			state: v1beta1.ReasonNotPermitted, message: "label a ClusterRole", pending: true,
		},
		"Down": {
			reason: "We should wait for an API server that does not answer.",
			served: "v1", refusal: controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
			fault: "ServiceUnavailable", state: v1beta1.ReasonNotSynced, message: "does not list the objects of \"plans.example.org\"", pending: true,
		},
		"CRDNotServed": {
			reason: "We should wait for a CRD that is about to be served.",
			after:  RetryCRDAfter, fault: ErrCRDNotServed.Error(),
			state: v1beta1.ReasonNotSynced, message: ErrCRDNotServed.Error(), pending: false, // No longer, a minute later.
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const a = "as.example.org"
				w := newRelatedWorld(t)
				breaks := func(s *controllertest.PlanServer) { s.Version, s.Refusal = tc.served, tc.refusal }
				w.server.Set(breaks)
				if name == "CRDNotServed" {
					w.cache.CRDs = []string{plansResource}
				}
				w.run()
				w.names(a, tc.version, "spec.tier")
				assert.Equal(t, []time.Duration{tc.after}, w.reconcile(), tc.reason)
				check := func(refused bool) {
					t.Helper()
					if tc.fault == "" {
						assert.Empty(t, w.fault(a), tc.reason)
						assert.Nil(t, w.tier(tc.version, "p"))
					} else {
						assert.Contains(t, w.fault(a), tc.fault, tc.reason)
					}
					s := w.RelatedKinds.RelatedState(a)
					assert.Equal(t, tc.state, s.Reason, tc.reason)
					assert.Contains(t, s.Message, tc.message, tc.reason)
					assert.Equal(t, tc.fault == "" || refused, s.Known, tc.reason)
					assert.Equal(t, tc.pending, s.Pending(), tc.reason)
					w.RelatedKinds.eachRelated(func(_ string, of State, _ int) { assert.Equal(t, s, of, tc.reason) })
				}
				check(false)

				// It is mended, and broken again.
				w.server.Serve("p")
				if tc.version != "" {
					w.end()
					return
				}
				w.again(plansResource)
				assert.Empty(t, w.fault(a), "We should notice that it is mended.")
				assert.Equal(t, "gold", w.tier("", "p"))
				w.server.Set(breaks)
				if name == "NotInstalled" {
					w.again(plansResource)
					check(false)
				} else if tc.after == 0 {
					w.names(a, "", "spec.size")
					w.reconcile()
					w.names(a, "", "spec.tier")
					assert.Empty(t, w.fault(a), "We should go on with the last known objects.")
					assert.Equal(t, "gold", w.tier("", "p"))
					w.reconcile()
					s := w.RelatedKinds.RelatedState(a)
					assert.Equal(t, v1beta1.ReasonStale, s.Reason)
					assert.True(t, s.Known)
				}
				w.end()
			})
		})
	}
}

func TestRelatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = "as.example.org"
		w := newRelatedWorld(t)
		w.run()
		w.names(a, "", "spec.tier")
		read := func(namespace, name string) (any, error) {
			o, err := w.LiveReads.RelatedObject(t.Context(), "team", w.Inventory.Snapshot()[a].Kind.RelatedKinds()[0], namespace, name)
			if o == nil {
				return nil, err
			}
			tier, _ := o.Lookup(fields.Path{"spec", "tier"})
			return tier, err
		}
		got, err := read("team", "p")
		require.NoError(t, err)
		assert.Nil(t, got, "We should find nothing of a resource that is not served.")
		w.reconcile()
		w.server.Set(func(s *controllertest.PlanServer) { s.Plans["new"], s.Asked = "iron", nil })
		for name, want := range map[string]any{"new": "iron", "absent": nil} {
			got, err := read("team", name)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		w.server.Set(func(s *controllertest.PlanServer) { s.Asked = nil })
		for _, name := range []string{"", "..", "a/b", "a%2fb", strings.Repeat("x", 254)} {
			got, err := read("team", name)
			require.NoError(t, err)
			assert.Nil(t, got)
		}
		for _, namespace := range []string{"", "..", "a/b"} {
			got, err := read(namespace, "new")
			require.NoError(t, err)
			assert.Nil(t, got)
		}
		assert.Empty(t, w.server.Requests(), "We should ask the API server for no name that no object can have.")

		w.server.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		_, err = read("team", "new")
		require.ErrorContains(t, err, `cannot get an object of "plans.example.org": `, "We should not take a plan for absent because nobody answers.")

		w.server.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		_, err = read("team", "new")
		require.ErrorContains(t, err, "Forbidden", "We should not take a plan for absent that we may watch, and may not get.")
		w.RelatedKinds.related[rules.Key{Resource: plansResource}].watch.Observe(err)
		got, err = read("team", "new")
		require.NoError(t, err, "We should go by the last known objects where nothing else is to be had.")
		assert.Nil(t, got)
		assertNothingLeft(t, w.LiveReads.reads)
		w.end()
	})
}

// Many claims that name the same object at once read it few times.
func TestRelatedObjectIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const a = "as.example.org"
		w := newRelatedWorld(t)
		w.run()
		w.names(a, "", "spec.tier")
		w.reconcile()
		w.server.Set(func(s *controllertest.PlanServer) { s.Plans["new"], s.Asked = "iron", nil })
		w.server.Delay = time.Second
		kind := w.Inventory.Snapshot()[a].Related(rules.Key{Resource: plansResource}).Kind
		for range 100 {
			go func() {
				o, err := w.LiveReads.RelatedObject(t.Context(), "team", kind, "team", "new")
				assert.NoError(t, err)
				assert.NotNil(t, o)
			}()
		}
		time.Sleep(time.Minute)
		assert.Len(t, w.server.Requests(), 2, "We should read once, and once more for those who came meanwhile.")
		assertNothingLeft(t, w.LiveReads.reads)
		w.end()
	})
}

// A starting replica waits for what claims name, if they were bound before.
func TestOpeningAwaitsRelated(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		served string        // as it is remembered
		known  time.Duration // negative means never
		opens  time.Duration
		fault  bool
	}{
		"Known": {
			reason: "We should open once what claims name is known.",
			served: `{"versions":{"as.example.org":"v1"}}`,
			known:  10 * time.Second,
			opens:  10 * time.Second,
		},
		"NotKnown":  {reason: "We should let others be bound.", served: `{"versions":{"as.example.org":"v1"}}`, known: -1, opens: v1beta1.StartPatience, fault: true},
		"NotBefore": {reason: "We should not wait for what was not known before.", served: `{}`, known: -1, fault: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const a = "as.example.org"
				w := newStartingWorld(t)
				w.names(a, "", "spec.tier")
				w.cache.Guarding = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
					Name: v1beta1.ClassConfiguration, Annotations: map[string]string{v1beta1.MemoryAnnotation: tc.served},
				}}
				w.run()
				if tc.known >= 0 {
					time.AfterFunc(tc.known, func() {
						_, err := w.RelatedKinds.reconcile(t.Context(), plansResource)
						assert.NoError(t, err)
					})
				}
				began := time.Now()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- w.Opening.openWhenComplete(ctx) }()
				<-w.Opening.Opened()
				assert.InDelta(t, tc.opens, time.Since(began), float64(openingInterval), tc.reason)
				assert.Equal(t, tc.fault, w.fault(a) != "", tc.reason)
				stop()
				require.NoError(t, <-ended)
				w.end()
			})
		})
	}
}
