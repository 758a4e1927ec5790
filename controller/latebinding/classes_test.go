package latebinding

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func boundTo(class string) string {
	return fmt.Sprintf(`{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":%q}}`, class)
}

// TestClassCounts has a replica that does not lead, for each way to have claims watched.
func TestClassCounts(t *testing.T) {
	for name, change := range map[string]func(*v1beta1.ClaimKind){
		"BindLater": func(*v1beta1.ClaimKind) {},
		"LeastClaims": func(k *v1beta1.ClaimKind) {
			k.Spec.Choice.Strategy, k.Spec.WhenUnmatched = v1beta1.LeastClaims, v1beta1.Admit
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClaimServer(t)
			s.set(t, "team-a/one", boundTo("used"))
			s.set(t, "team-b/two", boundTo("used"))
			s.set(t, "team-b/three", boundTo("gone"))
			s.set(t, "team-b/none", `{"classSelector":{"matchLabels":{"tier":"none"}}}`)
			r := newLateReplica(t, s, lateClaimKind(change))
			r.registration.Inventory.SetClasses(labelled(r.golds, "used", "unused"))
			r.golds.ClaimKinds = []string{lateKind, "nobody.example.org"}
			used, unused, gone := r.golds.NewClass(&metav1.ObjectMeta{
				Name: "used",
			}, nil), r.golds.NewClass(&metav1.ObjectMeta{Name: "unused"}, nil), r.golds.NewClass(&metav1.ObjectMeta{Name: "gone"}, nil)
			of := func(c *inventory.Class) map[string]int64 {
				claims, missing := r.claims.OfClass(c)
				assert.NoError(t, missing)
				return claims
			}
			eventually(t, "We should list the claims.", func(c *assert.CollectT) {
				n, _ := r.claims.CountsOf(lateKind)
				assert.Equal(c, 3, n.Bound)
			})
			assert.Equal(t, map[string]int64{lateKind: 2}, of(used), "We should count the claims of all namespaces.")
			assert.Empty(t, of(unused), "We should name no claim kind without claims.")
			assert.Equal(t, map[string]int64{lateKind: 1}, of(gone), "We should know who would take a class of this name for theirs.")

			s.set(t, "team-b/none", boundTo("unused"))
			s.remove("team-a/one")
			eventually(t, "We should follow the claims.", func(c *assert.CollectT) {
				assert.Equal(c, map[string]int64{lateKind: 1}, of(unused))
				assert.Equal(c, map[string]int64{lateKind: 1}, of(used))
			})

			n, known, complete := r.claims.OfClasses(labelled(r.golds, "used", "unused"))
			assert.True(t, known && complete)
			assert.EqualValues(t, 2, n, "We should count no claim whose class is gone.")
			again := *r.kind
			again.Generation = 2
			s.refuse("list", 503)
			s.refuse("watch", 503) // A Reflector lists by a watch, where it can.
			r.follow(t, &again, r.recompiled(&again))
			assert.False(t, r.claims.countsFor(r.golds).known(), "We should not take what was counted before a change for what is now.")
		})
	}
}

func TestClassCountsIncomplete(t *testing.T) {
	s := newClaimServer(t)
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{})
	r.golds.ClaimKinds = []string{lateKind}
	incomplete := func(want bool, reason string) {
		t.Helper()
		_, known, complete := r.claims.OfClasses(labelled(r.golds))
		assert.False(t, known, reason)
		assert.Equal(t, want, !complete, reason)
	}
	require.NoError(t, r.claims.countsFor(r.golds).missing)
	r.claims.drop(lateKind)
	incomplete(true, "We should say that the claims are not listed yet.")
	r.claims.unwatched(lateKind, cluster.ErrUnsuitable)
	incomplete(false, "We should not wait for claims that cannot be listed.")
	require.ErrorIs(t, r.claims.countsFor(r.golds).missing, cluster.ErrUnsuitable, "We should say that there may be some.")
	r.claims.unwatched(lateKind, cluster.ErrNotInstalled)
	assert.Equal(t, kindCounts{}, r.claims.countsFor(r.golds), "We should know that there are none.")
	admit := lateClaimKind(func(k *v1beta1.ClaimKind) { k.Spec.WhenUnmatched = v1beta1.Admit })
	r.registration.Inventory.SetClaimKind(selector.NewClaimKind(admit))
	r.claims.drop(lateKind)
	assert.Equal(t, kindCounts{}, r.claims.countsFor(r.golds), "We should not wait for claims that nobody needs to watch.")
	r.golds.CountsClaims = true
	require.ErrorIs(t, r.claims.countsFor(r.golds).missing, errNotWatched, "We should say that the claims are about to be watched.")
}

func TestClassSeriesAreBounded(t *testing.T) {
	s := newClaimServer(t)
	names := make([]string, v1beta1.MaxClassSeries+50)
	for i := range names {
		names[i] = fmt.Sprintf("class-%03d", i)
		s.set(t, "team-a/"+names[i], boundTo(names[i]))
	}
	for i := range 7 {
		s.set(t, fmt.Sprintf("team-b/more-%d", i), boundTo("class-149"))
	}
	s.set(t, "team-a/dangling", boundTo("gone"))
	r := newLateReplica(t, s, lateClaimKind())
	r.golds.ClaimKinds = []string{lateKind}
	r.registration.Inventory.SetClasses(labelled(r.golds, names[:3]...))
	r.awaitCounts(t, ClaimCounts{Bound: len(names) + 8})
	require.NoError(t, r.claims.Metrics.Register())
	t.Cleanup(func() { metrics.Registry.Unregister(r.claims.Metrics) })
	series := func() map[string]float64 {
		all := controllertest.Scraped(t, metrics.Registry)
		for name := range all {
			if len(name) < 12 || name[:12] != "class_claims" {
				delete(all, name)
			}
		}
		return all
	}
	assert.Equal(t, map[string]float64{
		"class_claims class=class-000 class_kind=golds.example.org class_namespace=": 1,
		"class_claims class=class-001 class_kind=golds.example.org class_namespace=": 1,
		"class_claims class=class-002 class_kind=golds.example.org class_namespace=": 1,
	}, series(), "We should have a series for each class that there is, and for none that is gone.")

	r.registration.Inventory.SetClasses(labelled(r.golds, names...))
	all := series()
	assert.Len(t, all, v1beta1.MaxClassSeries+1, "We should have no more series.")
	assert.Subset(
		t, all, map[string]float64{"class_claims class=class-149 class_kind=golds.example.org class_namespace=": 8},
		"We should have those with the most claims.",
	)
	assert.Subset(t, all, map[string]float64{"class_claims class= class_kind=golds.example.org class_namespace=": 50}, "We should have the others together.")
	assert.Contains(t, all, "class_claims class=class-098 class_kind=golds.example.org class_namespace=", "We should go by the name among equals.")
	assert.NotContains(t, all, "class_claims class=class-099 class_kind=golds.example.org class_namespace=", "We should go by the name among equals.")
}

func TestLimitedClassSeriesAreBounded(t *testing.T) {
	s := newClaimServer(t)
	r := newLateReplica(t, s, lateClaimKind())
	spec := v1beta1.ClassKindSpec{Capacity: []v1beta1.Capacity{{Name: v1beta1.ClaimsQuantity}, {Name: "memory"}}}
	kind := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: r.golds.Name}, Spec: spec}, r.golds.GroupVersionKind, r.golds.Namespaced)
	kind.ClaimKinds = []string{lateKind}
	var classes []*inventory.Class
	add := func(name string, annotations map[string]string) {
		classes = append(classes, kind.NewClass(&metav1.ObjectMeta{Name: name, Annotations: annotations}, nil))
	}
	for i := range v1beta1.MaxClassSeries + 10 {
		add(fmt.Sprintf("class-%03d", i), map[string]string{v1beta1.CapacityAnnotation: "10"})
	}
	add("unlimited", nil)
	add("memory", map[string]string{v1beta1.CapacityAnnotation + "-memory": "10"})
	r.registration.Inventory.SetClasses(inventory.NewClasses(kind, classes))
	rooms := map[string]selector.Room{
		"class-105": {{Used: 9, Reserved: 2}},
		"class-104": {{Used: 9}},
		"unlimited": {{Used: 99}},
		"memory":    {{Used: 9}, {Used: 20}},
	}
	view := r.registration.Inventory.Snapshot()[lateKind]
	view.Kind.Room = func(_ string, c *inventory.Class) selector.Room { return rooms[c.Name] }
	calls := 0
	r.claims.limitedClasses(v1beta1.MaxClassSeries, func(top []limitedClass) {
		calls++
		require.Len(t, top, v1beta1.MaxClassSeries, "We should have no more series.")
		assert.Equal(t, "memory memory", top[0].Name+" "+top[0].quantity, "We should have first the class of which the greatest share is taken.")
		assert.Equal(t, "class-105 claims", top[1].Name+" "+top[1].quantity)
		assert.EqualValues(t, 11, top[1].taken, "We should count what is reserved.")
		assert.Equal(t, "class-104", top[2].Name)
		assert.Equal(t, "class-000", top[3].Name, "We should go by the name among equals.")
	})
	assert.Equal(t, 1, calls)
	r.claims.limitedClasses(1000, func(all []limitedClass) {
		require.Len(t, all, v1beta1.MaxClassSeries+11, "We should leave out a class without a limit.")
	})
}

func TestClaimMetrics(t *testing.T) {
	claims := &Claims{registration: &registry.Registration{Inventory: selector.NewInventory()}, kinds: map[string]*watchedClaims{}}
	m := NewMetrics(claims)
	count := func(binds bool) {
		w := &claimWatch{}
		w.published.Store(&claimSummary{counts: ClaimCounts{Bound: 7, Waiting: 3, Left: 1}, synced: true, binds: binds})
		claims.kinds["claims.example.org"] = &watchedClaims{watch: w}
	}
	require.NoError(t, m.Register())
	t.Cleanup(func() { metrics.Registry.Unregister(m) })
	assert.Empty(t, controllertest.Scraped(t, metrics.Registry), "We should count nothing while we watch no claims.")

	count(true)
	want := map[string]float64{
		"claims claim_kind=claims.example.org state=bound":                7,
		"claims claim_kind=claims.example.org state=waiting":              3,
		"claims claim_kind=claims.example.org state=left":                 1,
		"late_bindings_total claim_kind=claims.example.org outcome=bound": 0, "late_bindings_total claim_kind=claims.example.org outcome=changed": 0,
		"late_bindings_total claim_kind=claims.example.org outcome=failed": 0, "late_bindings_total claim_kind=claims.example.org outcome=panicked": 0,
	}
	assert.Equal(t, want, controllertest.Scraped(t, metrics.Registry), "We should have all outcomes before there is any binding.")

	count(false)
	delete(want, "claims claim_kind=claims.example.org state=waiting")
	delete(want, "claims claim_kind=claims.example.org state=left")
	assert.Equal(t, want, controllertest.Scraped(t, metrics.Registry), "We should leave it to the leader to say how many wait.")

	m.tried("claims.example.org", lateBound)
	m.tried("claims.example.org", lateBound)
	m.tried("claims.example.org", lateFailed)
	clear(claims.kinds)
	assert.Equal(t, map[string]float64{
		"late_bindings_total claim_kind=claims.example.org outcome=bound": 2, "late_bindings_total claim_kind=claims.example.org outcome=changed": 0,
		"late_bindings_total claim_kind=claims.example.org outcome=failed": 1, "late_bindings_total claim_kind=claims.example.org outcome=panicked": 0,
	}, controllertest.Scraped(t, metrics.Registry), "We should keep counters when we watch no claims any more.")
}
