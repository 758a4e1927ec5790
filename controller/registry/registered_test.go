package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// watching is a watch to which the API server answered with an error, or nil.
func watching(err error) *classWatch {
	w := &classWatch{stop: func() {}}
	w.Observe(err)
	return w
}

// watchedKind is a kind that is watched.
func watchedKind(kind *inventory.ClassKind, w *classWatch, classes *inventory.Classes, synced bool) *registered {
	return &registered{kind: kind, synced: synced, followed: followed[*inventory.Classes, *inventory.Class]{watch: w, objects: classes}}
}

// notFollowed is a kind that is not watched since then.
func notFollowed(why error, since time.Time) *registered {
	r := unfollowed(why)
	r.since = since
	return r
}

func TestState(t *testing.T) {
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	golds.Revision = inventory.Revision{UID: "5e1f", Generation: 7}
	none := controllertest.NewClasses(golds, nil)
	since := time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "golds"}, "", errors.New("no rule"))
	const permit = "golds.example.org is forbidden: no rule: apply the ClusterRole of the registration, or run: kubectl create clusterrole " +
		"classbind-golds.example.org --verb=get,list,watch " +
		"--resource=golds.example.org && kubectl label clusterrole classbind-golds.example.org classbind.io/aggregate-to-classbind=true"
	watched := func(reason, message string, none *inventory.Classes) State {
		no := reason == v1beta1.ReasonNotPermitted
		return State{Reason: reason, Message: message, Known: none != nil, Classes: none, Revision: golds.Revision, Refused: no}
	}
	watch := func(err error, classes *inventory.Classes, synced bool) *registered {
		return watchedKind(golds, watching(err), classes, synced)
	}
	const (
		notSynced, notPermitted, stale = v1beta1.ReasonNotSynced, v1beta1.ReasonNotPermitted, v1beta1.ReasonStale

		notListed = "the API server does not list the classes: "
		lastKnown = "the last known classes are offered, because the API server no longer answers: "
	)
	for name, tc := range map[string]struct {
		reason string
		kind   *registered
		want   State
	}{
		"Unknown": {"We should say that we have not looked yet.", nil, State{Reason: notSynced, Message: "not looked up yet"}},
		"NotInstalled": {
			"We should say that there is no such resource, and what would help.",
			notFollowed(cluster.ErrNotInstalled, time.Time{}),
			State{Reason: v1beta1.ReasonNotInstalled, Message: cluster.ErrNotInstalled.Error()},
		},
		"NotServed": {
			"We should not say that it is not installed while its CRD is.",
			notFollowed(ErrCRDNotServed, since),
			State{Reason: notSynced, Message: ErrCRDNotServed.Error(), Refused: true, Since: since},
		},
		"Unsuitable": {
			"We should say which verbs are missing.", notFollowed(fmt.Errorf("%w: no watch", cluster.ErrUnsuitable), time.Time{}),
			State{Reason: v1beta1.ReasonUnsuitable, Message: "the resource cannot be used: no watch"},
		},
		"NotLookedUp":  {"We should say why it could not be looked up.", notFollowed(refused, time.Time{}), State{Reason: notSynced, Message: "connection refused"}},
		"NotAnswered":  {"We should say that the first list is under way.", watch(nil, nil, false), watched(notSynced, notListed+"it has not answered yet", nil)},
		"NotSynced":    {"We should say why the first list failed.", watch(refused, nil, false), watched(notSynced, notListed+"connection refused", nil)},
		"NotPermitted": {"We should say how to permit it.", watch(forbidden, nil, false), watched(notPermitted, permit, nil)},
		"Served":       {"We should say that all is well.", watch(nil, none, true), watched(v1beta1.ReasonServed, "the classes are offered to claims", none)},
		"Stale":        {"We should say that we offer what we last knew, and why.", watch(refused, none, true), watched(stale, lastKnown+"connection refused", none)},
		"ChangedAndNotAnswered": {
			"We should offer what was known before a change of the registration until the API server answers for it.",
			watch(nil, none, false), watched(stale, lastKnown+"it has not answered yet", none),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &ClassKinds{kinds: map[string]*registered{}}
			if tc.kind != nil {
				r.kinds[golds.Name] = tc.kind
				if tc.kind.watch != nil {
					tc.want.Since, _ = tc.kind.watch.LastError()
				}
			}
			assert.Equal(t, tc.want, r.State(golds.Name), tc.reason)
		})
	}
}

// TestPublishPanics checks that a panic leaves no lock behind: the replica would hang.
func TestPublishPanics(t *testing.T) {
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	from := &registered{}
	r := &ClassKinds{kinds: map[string]*registered{golds.Name: from}} // Without its inventory.
	require.Panics(t, func() { r.publish(from, controllertest.NewClasses(golds, nil), nil) })
	assert.True(t, r.mu.TryLock(), "We should go on with the other classes.")
}

// TestSameClassKind has the changes after which classes are read again.
func TestSameClassKind(t *testing.T) {
	type registration struct {
		classKind *v1beta1.ClassKind
		found     cluster.Resource
		claimKind *v1beta1.ClaimKind
	}
	kind := func(change func(*registration)) *inventory.ClassKind {
		r := &registration{
			&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org", UID: "5e1f", Generation: 7}},
			cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}},
			controllertest.NewClaimKind("claims.example.org"),
		}
		change(r)
		return inventory.NewClassKind(r.classKind, r.found.GroupVersionKind, r.found.Namespaced, r.claimKind)
	}
	for reason, tc := range map[string]struct {
		change func(*registration)
		want   bool
	}{
		"We should go on when only the status changed.": {
			func(r *registration) { r.classKind.ResourceVersion, r.classKind.Status.Classes = "1001", 3 }, true,
		},
		"We should notice a change of the spec.":                  {func(r *registration) { r.classKind.Generation = 8 }, false},
		"We should notice another registration of the same name.": {func(r *registration) { r.classKind.UID = "c0ffee" }, false},
		"We should notice another preferred version.":             {func(r *registration) { r.found.Version = "v2" }, false},
		"We should notice another kind of the same plural.":       {func(r *registration) { r.found.Kind = "Au" }, false},
		"We should notice another scope.":                         {func(r *registration) { r.found.Namespaced = true }, false},
		"We should notice another claim kind.": {
			func(r *registration) { r.classKind.Spec.ClaimKinds = controllertest.Links("b.example.org") }, false,
		},
		"We should notice that claims look at other fields.":      {func(r *registration) { r.claimKind.Spec.Choice.Score = "class.spec.size" }, false},
		"We should go on where the claim kind looks at no class.": {func(r *registration) { r.claimKind.Spec.WhenUnmatched = v1beta1.BindLater }, true},
	} {
		as := kind(func(*registration) {})
		assert.Equal(t, tc.want, as.Same(kind(tc.change)), reason)
		assert.Equal(t, tc.want, kind(tc.change).Same(as), reason)
	}
}

func TestSerial(t *testing.T) {
	r := newRegistration(&controllertest.Cached{}, nil, cluster.Resolver{}, nil)
	k := controllertest.NewClaimKind("claims.example.org")
	golds := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}
	compiled, paths, kept := 0, Paths{}, (*selector.ClaimKind)(nil)
	r.OnRegistered(t.Context(), func(string) { compiled++ })
	for i, step := range []struct {
		reason   string
		change   func()
		serial   uint64
		compiled int
	}{
		{"We should begin.", func() {}, 1, 1},
		{"We should compile nothing again that is the same.", func() { golds.Generation++ }, 1, 1},
		{"We should compile nothing again where only the status changed.", func() {
			k.Status.Version, k.Status.Conditions = "v1", []metav1.Condition{{Type: v1beta1.ConditionLateBinding, Status: metav1.ConditionFalse}}
		}, 1, 1},
		{"We should go on with the claims where only the schema changed.", func() { paths.Check.SelectorAbsent = true }, 1, 2},
		{
			"We should only tell that the schema cannot be read, and keep what the strategy remembers.",
			func() { paths.Err, kept = errors.New("no answer"), r.Inventory.ClaimKind(k.Name) }, 1, 3,
		},
		{"We should read the claims again where a class kind looks at other fields.", func() {
			golds.Spec.Fits = []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.size > 1"}}
		}, 2, 4},
		{"We should read their Namespaces where a class kind looks at these.", func() {
			golds.Spec.Fits[0].Expression += " && namespaceObject.metadata.name == 'a'"
		}, 3, 5},
		{"We should read them again where the registration changed.", func() { k.Generation++ }, 4, 6},
	} {
		step.change()
		r.register(selector.NewClaimKind(k.DeepCopy(), golds.DeepCopy()), paths)
		if paths.Err != nil && step.serial == 1 {
			assert.Same(t, kept, r.Inventory.ClaimKind(k.Name), step.reason)
		}
		assert.Equal(t, step.serial, r.Inventory.ClaimKind(k.Name).Serial, "%s (%d)", step.reason, i)
		assert.Equal(t, step.compiled, compiled, "%s (%d)", step.reason, i)
		assert.Equal(t, i > 1, r.Inventory.ClaimKind(k.Name).CannotBindLater.Load(), "We should report what the status says of late binding (%d).", i)
	}
}

// TestFollow changes a registration while the API server answers, refuses and denies.
func TestFollow(t *testing.T) {
	forBubble(t)
	synctest.Test(t, func(t *testing.T) {
		server := &controllertest.PlanServer{}
		client, err := newClassClient(&rest.Config{Host: "http://in.a.bubble", QPS: -1, Transport: server})
		require.NoError(t, err)
		changes, again := make(chan struct{}, 1), make(chan string, 1)
		r := newRegistration(nil, nil, cluster.Resolver{}, client)
		r.ClassKinds.requeued.Add(t.Context(), func(classKind string) { again <- classKind })
		r.ClassKinds.changed.Add(t.Context(), func(*inventory.ClassKind) {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
		r.Inventory.SetClaimKind(selector.NewClaimKind(controllertest.NewClaimKind(claims)))
		r.Inventory.Open()
		kind := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: plans, UID: "5e1f", Generation: 1}}
		kind.Spec.ClaimKinds = controllertest.Links(claims)
		kind.Spec.Default, kind.Spec.Weight = v1beta1.Source{Annotation: "default"}, v1beta1.Source{Annotation: "weight"}
		found := cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Plan"}, Namespaced: true}
		defer r.ClassKinds.drop(plans)
		// until waits in the bubble's time, which costs nothing.
		until := func(reason, message string) {
			t.Helper()
			late := time.After(time.Minute)
			for s := r.ClassKinds.State(plans); s.Reason != reason || !strings.Contains(s.Message, message); s = r.ClassKinds.State(plans) {
				select {
				case <-changes:
				case <-late:
					require.Failf(t, "We should notice within a minute", "wanted %s, %q; got %s, %q", reason, message, s.Reason, s.Message)
				}
			}
		}
		offered := func() (names []string) {
			for _, x := range r.Inventory.Snapshot()[claims].Classes {
				for _, c := range x.All() {
					names = append(names, c.Name)
				}
			}
			return names
		}

		follow := func() bool {
			return r.ClassKinds.follow(t.Context(), inventory.NewClassKind(kind, found.GroupVersionKind, found.Namespaced))
		}
		server.Serve("old")
		require.True(t, follow(), "We should begin to watch.")
		until(v1beta1.ReasonServed, "")
		assert.Equal(t, []string{"old"}, offered(), "We should offer what the API server lists.")

		first := r.ClassKinds.kinds[plans]
		require.True(t, follow())
		assert.Same(t, first, r.ClassKinds.kinds[plans], "We should not watch anew where nothing changed.")

		server.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		kind.Generation = 2
		require.True(t, follow())
		until(v1beta1.ReasonStale, "the last known classes are offered")
		until(v1beta1.ReasonStale, "kubectl create clusterrole")
		assert.Equal(t, []string{"old"}, offered(), "We should take no class away before the API server has answered for the new registration.")
		assert.Equal(t, inventory.Revision{UID: "5e1f", Generation: 2}, r.ClassKinds.State(plans).Revision, "We should say what we watch for.")

		r.ClassKinds.publish(first, controllertest.NewClasses(first.kind, map[string][]string{"late": nil}), nil)
		assert.Equal(t, []string{"old"}, offered(), "We should not listen to a watch that was replaced.")
		assert.False(t, r.ClassKinds.kinds[plans].synced, "We should not take a replaced watch's word for the new one's.")

		kind.Generation = 3
		require.True(t, follow())
		assert.Equal(t, []string{"old"}, offered(), "We should keep what is offered over two changes, of which the first was never answered.")

		server.Serve("new")
		until(v1beta1.ReasonServed, "")
		assert.Equal(t, []string{"new"}, offered(), "We should offer what is listed once it is.")

		server.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		kind.Generation = 4
		require.True(t, follow())
		until(v1beta1.ReasonStale, string(metav1.StatusReasonNotFound))
		synctest.Wait()
		require.Len(t, again, 1, "We should look a resource up again, once, that is not there for the watch.")
		assert.Equal(t, plans, <-again)
		assert.False(t, follow(), "We should say that the resource is not there for the watch.")
		assert.Equal(t, []string{"new"}, offered(), "We should leave it to the look-up to say that a resource is gone.")

		r.ClassKinds.drop(plans)
		assert.Empty(t, offered(), "We should offer no class of a kind that is not registered any more.")
	})
}

// TestWait has claims that no known class matches while the API server answers the watch, and while it does not.
func TestWait(t *testing.T) {
	forBubble(t)
	synctest.Test(t, func(t *testing.T) {
		server := &controllertest.PlanServer{}
		client, err := newClassClient(&rest.Config{Host: "http://in.a.bubble", QPS: -1, Transport: server})
		require.NoError(t, err)
		r := newRegistration(nil, nil, cluster.Resolver{}, client)
		r.Inventory.SetClaimKind(selector.NewClaimKind(controllertest.NewClaimKind(claims)))
		r.Inventory.Open()
		kind := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: plans}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(claims)}}
		server.Serve()
		require.True(t, r.ClassKinds.follow(t.Context(), inventory.NewClassKind(kind, schema.GroupVersionKind{
			Group:   "example.org",
			Version: "v1",
			Kind:    "Plan",
		}, true)))
		defer r.ClassKinds.drop(plans)
		synctest.Wait()
		server.Requests()
		d := &selector.Decider{Waits: r.Inventory.Waits, Broken: r.ClassKinds.Broken}
		decide := func(namespace string, asks labels.Selector) (selector.Decision, time.Duration, error) {
			began := time.Now()
			got, err := d.Decide(t.Context(), r.Inventory.Snapshot()[claims], claim.Intake{
				Claim: claim.Claim{Namespace: namespace, Name: "a", Selector: asks},
			}, selector.Mode{})
			return got, time.Since(began), err
		}
		nothing := labels.SelectorFromSet(labels.Set{"tier": "nowhere"})

		for i := range 1000 {
			go func() {
				got, _, err := decide(fmt.Sprint("team-", i%3), nothing)
				assert.NoError(t, err)
				assert.Equal(t, selector.WaitNone, got.Waited)
			}()
			time.Sleep(time.Millisecond + time.Microsecond)
		}
		time.Sleep(time.Second)
		assert.Empty(t, server.Requests(), "We should ask the API server nothing for claims that nothing matches.")

		time.AfterFunc(100*time.Millisecond, func() { server.Event("ADDED", "new", "gold") })
		got, took, err := decide("team", labels.Everything())
		require.NoError(t, err)
		require.NotNil(t, got.Class, "We should bind a claim to the class that its watch shows meanwhile.")
		assert.Equal(t, 100*time.Millisecond, took)

		server.Cut(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		time.Sleep(time.Second)
		_, _, err = decide("team", nothing)
		require.ErrorContains(t, err, `the API server no longer reports the classes of "plans.example.org": `, "We should not say that there is none.")
		got, _, err = decide("team", labels.Everything())
		assert.True(t, err == nil && got.Class != nil, "We should bind the others to what was last known.")
		server.Serve("new")
		time.Sleep(10 * time.Second)
		_, took, err = decide("team", nothing)
		require.NoError(t, err, "We should answer once the API server does.")
		assert.Equal(t, v1beta1.MaxClassWait, took)
	})
}

// TestWithdraw takes kinds out for various reasons, and notes who is notified.
func TestWithdraw(t *testing.T) {
	const name = "golds.example.org"
	golds := controllertest.NewClassKind(name, "Gold")
	refused := errors.New("connection refused")
	withdraw := func(err error) func(*Registration) { return func(r *Registration) { r.ClassKinds.withdraw(name, err) } }
	unanswered := func(err error) func(*Registration) {
		return func(r *Registration) { r.ClassKinds.unanswered(name, nil, err) }
	}
	drop := func(r *Registration) { r.ClassKinds.drop(name) }
	type want struct {
		reason           string // of the state
		offered, stopped bool
		notified         []*inventory.ClassKind
	}
	unwatched, ofGolds := []*inventory.ClassKind{{Name: name}}, []*inventory.ClassKind{golds}
	const notInstalled, notSynced = v1beta1.ReasonNotInstalled, v1beta1.ReasonNotSynced
	for tcName, tc := range map[string]struct {
		reason  string
		watched bool
		before  error // for which it is not watched
		do      func(*Registration)
		want    want
	}{
		"LeaveWatched": {
			"We should stop the watch, take the classes out, and tell all claim kinds that had them.",
			true, nil, withdraw(cluster.ErrNotInstalled),
			want{reason: notInstalled, stopped: true, notified: ofGolds},
		},
		"LeaveUnknown": {
			"We should report that we have looked.", false, nil, withdraw(cluster.ErrNotInstalled), want{reason: notInstalled, notified: unwatched},
		},
		"LeaveAgain": {"We should not report anything twice.", false, cluster.ErrNotInstalled, withdraw(cluster.ErrNotInstalled), want{reason: notInstalled}},
		"DropWatched": {
			"We should stop the watch, take the classes out, and tell all claim kinds that had them.",
			true, nil, drop,
			want{reason: notSynced, stopped: true, notified: ofGolds},
		},
		"DropUnwatched": {"We should forget why there is no watch.", false, cluster.ErrNotInstalled, drop, want{reason: notSynced, notified: unwatched}},
		"UnansweredWatched": {
			"We should go on with what is watched, and have the status written.",
			true, nil, unanswered(refused),
			want{reason: v1beta1.ReasonServed, offered: true, notified: unwatched},
		},
		"UnansweredUnknown": {
			"We should say why we cannot tell yet, and have the status written.",
			false, nil, unanswered(ErrCRDNotServed),
			want{reason: notSynced, notified: unwatched},
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			got := want{}
			r := newRegistration(nil, nil, cluster.Resolver{}, nil)
			r.Inventory.SetClaimKind(selector.NewClaimKind(controllertest.NewClaimKind("claims.example.org")))
			r.Inventory.Open()
			switch {
			case tc.watched:
				entry := watchedKind(golds, watching(nil), nil, false)
				entry.watch.stop = func() { got.stopped = true }
				r.ClassKinds.kinds[name] = entry
				r.ClassKinds.publish(entry, controllertest.NewClasses(golds, map[string][]string{"a": nil}), nil)
			case tc.before != nil:
				r.ClassKinds.kinds[name] = unfollowed(tc.before)
			}
			r.ClassKinds.changed.Add(t.Context(), func(k *inventory.ClassKind) { got.notified = append(got.notified, k) })

			tc.do(r)
			got.reason = r.ClassKinds.State(name).Reason
			got.offered = r.Inventory.Snapshot()["claims.example.org"].Len() > 0
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestPublishNotifiesTheClaimKindsBefore(t *testing.T) {
	before, after := controllertest.NewClassKind("golds.example.org", "Gold"), controllertest.NewClassKind("golds.example.org", "Gold")
	before.ClaimKinds, after.ClaimKinds = []string{"old.example.org"}, []string{"new.example.org"}
	entry := watchedKind(after, nil, controllertest.NewClasses(before, nil), false)
	r := newRegistration(nil, nil, cluster.Resolver{}, nil)
	r.ClassKinds.kinds[after.Name] = entry
	var notified []string
	r.ClassKinds.changed.Add(t.Context(), func(k *inventory.ClassKind) { notified = append(notified, k.ClaimKinds...) })
	r.ClassKinds.publish(entry, controllertest.NewClasses(after, nil), nil)
	assert.Equal(t, []string{"old.example.org", "new.example.org"}, notified, "We should have the status written of claim kinds that the classes served before.")
}

// The plans are the classes here.
const claims, plans = "claims.example.org", plansResource

// newInvalidWorld returns a function that registers plans as classes, and waits.
func newInvalidWorld(t *testing.T) (
	w *relatedWorld, classKind func(generation int64, offerWhen v1beta1.Expression, claimKinds ...string),
) {
	t.Helper()
	w = newRelatedWorld(t)
	w.cache.ClaimKinds = []v1beta1.ClaimKind{*controllertest.NewClaimKind(claims)}
	_, err := w.reconcileClaimKind(t.Context(), claims)
	require.NoError(t, err)
	return w, func(generation int64, offerWhen v1beta1.Expression, claimKinds ...string) {
		t.Helper()
		k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: plans, UID: "7a", Generation: generation}}
		k.Spec.ClaimKinds, k.Spec.OfferWhen = controllertest.Links(claimKinds...), offerWhen
		w.cache.ClassKinds = []v1beta1.ClassKind{k}
		_, err := w.ClassKinds.reconcile(t.Context(), plans)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

// A class kind whose expressions do not compile is not offered, and takes no classes away in silence.
func TestInvalidClassKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, classKind := newInvalidWorld(t)
		classKind(1, "class.", claims)
		state := w.ClassKinds.State(plans)
		assert.Equal(t, v1beta1.ReasonInvalidExpression, state.Reason)
		assert.Contains(t, state.Message, "spec.offerWhen: line 1, column 7", "We should say what is wrong, and where.")
		assert.Empty(t, w.fault(claims), "We should go on without classes that were never offered.")

		classKind(2, "", claims)
		assert.Equal(t, v1beta1.ReasonServed, w.ClassKinds.State(plans).Reason, "We should offer the classes once that is mended.")

		classKind(3, "class.", claims)
		assert.Nil(t, w.ClassKinds.State(plans).Classes)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should bind no claim without classes that were offered before.")
		classKind(4, "class.other.", claims)
		assert.Contains(t, w.fault(claims), "column 13", "We should say what is wrong now.")
		classKind(5, "class.other.", "others.example.org")
		assert.Empty(t, w.fault(claims), "We should go on without classes that are not to be offered any more.")
		classKind(6, "class.", claims)
		assert.NotEmpty(t, w.fault(claims))

		w.cache.ClassKinds = nil
		_, err := w.ClassKinds.reconcile(t.Context(), plans)
		require.NoError(t, err)
		assert.Empty(t, w.fault(claims), "We should go on when it is deleted.")
		w.end()
	})
}

// TestIgnoredClassKind has an admin go on without the classes of a kind, while they can be listed and while they cannot.
func TestIgnoredClassKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, classKind := newInvalidWorld(t)
		defer w.end()
		defer w.ClassKinds.drop(plans)
		ignore := func(value string) {
			w.cache.ClassKinds[0].Annotations = map[string]string{v1beta1.IgnoredAnnotation: value}
			_, err := w.ClassKinds.reconcile(t.Context(), plans)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		offered := func() int { return w.Inventory.Snapshot()[claims].Len() }
		w.server.Serve("gold")
		classKind(1, "", claims)
		known := offered()
		assert.Equal(t, 1, known)
		ctx, stop := context.WithCancel(t.Context())
		w.ClassKinds.OnChange(ctx, func(*inventory.ClassKind) {
			view := w.Inventory.Snapshot()[claims]
			assert.True(t, view.Fault != nil || view.Len() > 0 || len(view.Unread) > 0, "We should never bind a claim without them in silence.")
		})

		ignore("false")
		assert.Equal(t, known, offered(), "We should ignore nothing that no admin has us ignore.")
		w.server.Refuse(http.StatusInternalServerError, "the conversion webhook is down\x1b")
		ignore("true")
		assert.Zero(t, offered(), "We should offer them to nobody, though we know them.")
		assert.Empty(t, w.fault(claims))
		assert.Contains(t, w.Inventory.Snapshot()[claims].UnreadText(), `"`+plans+`" (Ignored)`)
		state := w.ClassKinds.State(plans)
		assert.Equal(t, v1beta1.ReasonIgnored, state.Reason)
		assert.Contains(t, state.Message, "run: kubectl annotate classkind "+plans+" classbind.io/ignored-")
		assert.False(t, state.Pending(), "A replica that starts should not wait for them.")
		assert.False(t, state.gone(), "We should remember that they were served.")
		assert.Equal(t, v1beta1.ReasonIgnored, w.ProbeClasses(t.Context(), &w.cache.ClassKinds[0]).Reason, "We should say so at apply.")

		ignore("")
		for _, part := range []string{`"` + plans + `"`, `the conversion webhook is down\x1b`, "kubectl annotate classkind " + plans + " classbind.io/ignored=true"} {
			assert.Contains(t, w.fault(claims), part, "We should bind no claim once they are to be offered and cannot be listed, and say why.")
		}
		ignore("true")
		assert.Empty(t, w.fault(claims))
		w.server.Serve("gold")
		ignore("")
		stop()
		assert.Equal(t, 1, offered(), "We should offer them again.")
		assert.Empty(t, w.fault(claims))
		assert.Empty(t, w.Inventory.Snapshot()[claims].Unread)
	})
}

// Claims are not bound without classes that were offered before, whatever the API server says meanwhile.
func TestInvalidClassKindStaysMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, classKind := newInvalidWorld(t)
		classKind(1, "", claims)
		require.Equal(t, v1beta1.ReasonServed, w.ClassKinds.State(plans).Reason)
		w.ClassKinds.OnChange(t.Context(), func(*inventory.ClassKind) {
			assert.True(t, w.fault(claims) != "" || len(w.Inventory.Snapshot()[claims].Classes) > 0, "We should have the classes, or the fault.")
		})
		classKind(2, "class.", claims)

		w.ClassKinds.unanswered(plans, []string{claims}, errors.New("connection refused"))
		classKind(3, "class.", claims)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should remember it while the API server does not answer.")

		w.server.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		classKind(4, "", claims)
		assert.NotEmpty(t, w.fault(claims), "We should bind no claim before the classes are known again.")
		classKind(5, "class.", claims)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should remember it while the classes are not listed.")
		w.end()
	})
}
