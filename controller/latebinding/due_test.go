package latebinding

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func TestLateClaimsAreGrouped(t *testing.T) {
	w := newLateWatch(t)
	add := func(uid int, selector string) { addClaim(t, w, claimJSON(uid, `{"classSelector":`+selector+`}`)) }
	for i := range 100 {
		add(i, fmt.Sprintf(`{"matchLabels":{"tier":"%d"}}`, i%4))
	}
	require.Len(t, w.state.room.namespaces["team-a"].groups, 4, "We should hold each selector once.")
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	view := func(classes ...string) *selector.View {
		return selector.NewView(w.kind, []*inventory.Classes{labelled(golds, classes...)})
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
	w.state.missed(waitingAttempt{seenVersion: seenVersion{uid: uidOf(1)}})
	assert.Len(t, w.due(t.Context(), two), 26, "We should find again the claims for which a class was missed.")
	assert.Empty(t, w.due(t.Context(), none))
	assert.Len(t, w.due(t.Context(), two), 51, "We should find again the claims whose class has gone and come.")
}

func TestAskingEnds(t *testing.T) {
	w := newLateWatch(t)
	const groups = 50
	for i := range groups {
		addClaim(t, w, claimJSON(i, fmt.Sprintf(`{"classSelector":{"matchExpressions":[{"key":"none-%d","operator":"DoesNotExist"}]}}`, i)))
	}
	view := selector.NewView(w.kind, []*inventory.Classes{labelled(controllertest.NewClassKind("golds.example.org", "Gold"), "gold")})
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

func TestClaimsOverflow(t *testing.T) {
	const claims = 100
	s := newClaimServer(t)
	for i := range claims {
		s.set(t, fmt.Sprintf("evil/claim-%d", i), selecting(i, 4000))
	}
	s.set(t, "evil/wants-gold", wantsGold)
	s.set(t, "honest/claim", wantsGold)
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: claims + 2})
	w := r.claims.watches()[lateKind]
	w.own(func(s *claimState) { s.resize(2000) })
	r.lead(t)
	eventually(t, "We should read each of them once.", func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.GreaterOrEqual(c, s.reads, claims)
	})
	w.own(func(s *claimState) { assert.Less(t, s.room.used, int64(2000)) })
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold", "seven only-000007="+strings.Repeat("x", 60)))
	r.awaitCounts(t, ClaimCounts{Bound: 3, Waiting: claims - 1})
	bound := s.classes()
	assert.Equal(t, []string{"gold", "gold", "seven"}, []string{bound["evil/wants-gold"], bound["honest/claim"], bound["evil/claim-7"]}, "We should bind the claims that we have to read, too.")
	s.set(t, "evil/claim-8", selecting(7, 4000))
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: claims - 2})
	r.binder.Events.notifyWaiting(t.Context(), w, r.binder.view(w), time.Now().Add(noticeDelay+time.Second))
	eventually(t, "We should tell why they wait.", func(c *assert.CollectT) {
		assert.Equal(c, noteOverflow, s.notes(v1beta1.EventNoMatchingClass)["evil/claim-9"])
	})
}

// TestWrote checks for which versions of a claim that was read again and written no other write is tried.
func TestWrote(t *testing.T) {
	version := func(v int, spec string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"namespace":"team-a","name":"db","uid":%q,"resourceVersion":"%d"},"spec":%s}`, uidOf(1), v, spec)
	}
	bound := version(6, `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`)
	for name, tc := range map[string]struct {
		reason string
		shown  [][]byte // by the watch, from its reading at version 5 to the end of the write
		waits  bool
	}{
		"NotShown":    {"We should wait for the watch.", nil, false},
		"Read":        {"We should wait for the watch to show what was written.", [][]byte{version(5, wantsGold)}, false},
		"Bound":       {"We should leave alone what is bound.", [][]byte{version(5, wantsGold), bound}, false},
		"BoundNoMore": {"We should bind again a claim whose reference was taken off.", [][]byte{bound, version(7, wantsGold)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLateWatch(t)
			w.state.resize(1)
			addClaim(t, w, version(4, wantsGold))
			attempt, waits, _ := w.waits(uidOf(1))
			require.True(t, waits && attempt.unread)
			attempt.version, attempt.ask = "5", "=tier=gold" // As if it was read again.
			for _, raw := range tc.shown {
				addClaim(t, w, raw)
			}
			w.state.wrote(attempt)
			_, waits, _ = w.waits(uidOf(1))
			assert.Equal(t, tc.waits, waits, tc.reason)
		})
	}
}

// addCrowd adds 1,000 claims of one namespace, and then one of each of three others.
func addCrowd(t *testing.T, w *claimWatch) {
	t.Helper()
	for i := range 1000 {
		addClaim(t, w, claimJSON(i, selecting(i, 20), "evil"))
	}
	for i := range 3 {
		addClaim(t, w, claimJSON(10_000+i, wantsGold, fmt.Sprint("honest-", i)))
	}
}

func TestUnreadTakeTurns(t *testing.T) {
	w := newLateWatch(t)
	w.state.resize(1)
	addCrowd(t, w)
	view := selector.NewView(w.kind, nil)
	seen := map[string]int{}
	for _, item := range w.due(t.Context(), view) {
		seen[item.namespace]++
	}
	assert.Equal(t, map[string]int{"evil": v1beta1.LateReads - 3, "honest-0": 1, "honest-1": 1, "honest-2": 1}, seen, "We should take turns.")
	all := map[string]int{}
	for range 2000 / v1beta1.LateReads {
		for _, item := range w.due(t.Context(), view) {
			all[string(item.uid)]++
		}
	}
	assert.Len(t, all, 1000-(v1beta1.LateReads-3), "We should come to all.")
	for uid, n := range all {
		assert.Equal(t, 1, n, "We should read %s once for a view.", uid)
	}
	assert.Empty(t, w.due(t.Context(), view))
	assert.Len(t, w.due(t.Context(), selector.NewView(w.kind, nil)), v1beta1.LateReads, "We should read them again for another.")
}

func TestAskingTakesTurns(t *testing.T) {
	w := newLateWatch(t)
	addCrowd(t, w)
	first := map[string]bool{}
	questions, _ := w.state.unasked(selector.NewView(w.kind, nil))
	for _, q := range questions[:4] {
		first[q.namespace] = true
	}
	assert.Len(t, first, 4, "We should ask for one of each namespace first.")
}

func TestFullClaimsWaitForRoom(t *testing.T) {
	used := int64(5)
	classKind := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: &v1beta1.Capacity{}}}
	kind := selector.NewClaimKind(lateClaimKind(), classKind)
	kind.Tally, kind.Room = &selector.Tally{}, func(string, *inventory.Class) selector.Room { return selector.Room{Used: used} }
	w := newLateWatchOf(t, kind)
	for i := range 100 {
		addClaim(t, w, claimJSON(i, wantsGold))
	}
	addClaim(t, w, claimJSON(100, `{"classSelector":{"matchLabels":{"tier":"none"}}}`))
	golds := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	gold := labelled(golds, "gold tier=gold")
	gold.Find("", "gold").Capacity.Total = 5
	view := selector.NewView(kind, []*inventory.Classes{gold})
	assert.Empty(t, w.due(t.Context(), view), "We should give out no claim that no class has room for.")
	used = 0
	assert.Empty(t, w.due(t.Context(), view), "We should ask nothing while nothing has changed.")
	require.True(t, w.state.room.askFull(1))
	w.state.dirty = true
	asked, _ := w.state.unasked(view)
	assert.Len(t, asked, 1, "We should ask again about the claims that wait for room, and no others.")
	w.state.dirty = true
	assert.Len(t, w.due(t.Context(), view), 100)
	_, waits, _ := w.waits(uidOf(2))
	assert.True(t, waits)
	w.state.missed(waitingAttempt{seenVersion: seenVersion{uid: uidOf(1)}})
	_, waits, _ = w.waits(uidOf(2))
	assert.False(t, waits, "We should try no other claim once one of them got no class.")
	used = 5
	assert.Empty(t, w.due(t.Context(), view))
	assert.False(t, w.state.room.askFull(1))
	assert.Empty(t, w.due(t.Context(), view))
}

func TestBoundClaimsUse(t *testing.T) {
	classKind := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: &v1beta1.Capacity{}, ClaimKinds: []v1beta1.ClaimKindLink{{Name: lateKind}}}}
	kind := selector.NewClaimKind(lateClaimKind(func(k *v1beta1.ClaimKind) { k.Spec.Classes.Usage = "claim.spec.size" }), classKind)
	kind.Tally = &selector.Tally{}
	w := newLateWatchOf(t, kind)
	golds := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	classes := labelled(golds, "gold")
	snapshot := selector.Snapshot{lateKind: selector.NewView(kind, []*inventory.Classes{classes})}
	room := func() selector.Room { return snapshot.Room("team-a", classes.Find("", "gold")) }
	bound := func(uid int, size string) {
		addClaim(t, w, claimJSON(uid, `{"size":`+size+`,"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"gold"}}`))
	}
	bound(1, `5`)
	bound(2, `"1Ki"`)
	bound(3, `"much"`)
	assert.Equal(t, selector.Room{Used: 1030, NamespaceUsed: 1030}, room(), "A claim whose usage cannot be told should count as 1.")
	freed := snapshot.Freed(snapshot[lateKind])
	bound(1, `5`)
	assert.Equal(t, freed, snapshot.Freed(snapshot[lateKind]), "Nothing should be free because a claim changed.")
	bound(1, `7`)
	bound(2, `1`)
	assert.Equal(t, selector.Room{Used: 9, NamespaceUsed: 9}, room())
	assert.Greater(t, snapshot.Freed(snapshot[lateKind]), freed)
	for uid := range 4 {
		w.Remove(&claimSeen{seenVersion: seenVersion{uid: uidOf(uid)}})
	}
	assert.Equal(t, selector.Room{}, room(), "A claim that is gone should use nothing.")
}
