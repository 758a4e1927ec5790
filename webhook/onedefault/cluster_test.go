package onedefault

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	fakecoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

var (
	claims    = inventory.Seat{ClaimKind: "claims.example.org"}
	leaseName = LeaseName(claims)
)

func TestLeaseIsReadAsItWasWritten(t *testing.T) {
	object := func(version, identity, pending string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: leaseName, ResourceVersion: version, Annotations: map[string]string{"classbind.io/holder-uid": "me-1", "classbind.io/holder-pending": pending}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity},
		}
	}
	team := Class{Kind: "silvers.example.org", Namespace: "team", Name: "me"}
	for name, tc := range map[string]struct {
		reason string
		lease  Lease
		want   *coordinationv1.Lease
	}{
		"New": {reason: "We should require no version of a Lease that there is not.", lease: Lease{Holder: Holder{me, "me-1"}, Pending: []Pending{pending("1", "", 0)}}, want: object("", "golds.example.org/me", `[{"id":"1"}]`)},
		"Several": {
			reason: "We should record all writes in flight, and from what each updates.",
			lease:  Lease{Version: "7", Holder: Holder{me, "me-1"}, Pending: []Pending{pending("1", "10", 0), pending("2", "11", 0)}},
			want:   object("7", "golds.example.org/me", `[{"id":"1","from":"10"},{"id":"2","from":"11"}]`),
		},
		"Namespaced": {reason: "We should record the namespace of a class that has one.", lease: Lease{Version: "7", Holder: Holder{team, "me-1"}, Pending: []Pending{pending("1", "", 0)}}, want: object("7", "silvers.example.org/team/me", `[{"id":"1"}]`)},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := encode(claims, tc.lease)
			assert.Equal(t, tc.want, encoded, tc.reason)
			got, err := decode(tc.want)
			require.NoError(t, err)
			assert.Equal(t, tc.lease, got, "We should read what we wrote.")
		})
	}
}

// TestLeaseOfAPartition is read by people, who cannot read a hash.
func TestLeaseOfAPartition(t *testing.T) {
	s := claims
	s.Namespace, s.Partition = "team", strings.Repeat("Ä\n", 1000)
	l := held(me, pending("1", "10", 0))
	encoded := encode(s, l)
	text := encoded.Annotations[v1beta1.SeatAnnotation]
	assert.True(t, strings.HasPrefix(text, `claim kind "claims.example.org" in namespace "team", partition "Ä\\nÄ\\n`), "We should say which seat it is: %s", text)
	assert.Less(t, len(text), 300, "We should not copy a partition of any length.")
	got, err := decode(encoded)
	require.NoError(t, err)
	assert.Equal(t, l, got, "We should read what we wrote.")
}

// newLease of me, which is updated.
func newLease() *coordinationv1.Lease { return encode(claims, held(me, pending("1", "10", 0))) }

func TestDecodeRefuses(t *testing.T) {
	identity := func(text string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &text }
	}
	pendingText := func(text string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations[v1beta1.HolderPendingAnnotation] = text }
	}
	const holder = `"golds.example.org/me"`
	for name, tc := range map[string]struct {
		reason string
		edit   func(*coordinationv1.Lease)
		quoted string
	}{
		"NoIdentity":        {"We should not take an empty holder for none.", identity(""), `""`},
		"NoKind":            {"We should ask of which kind the holder is.", identity("me"), `"me"`},
		"EmptyKind":         {"We should ask of which kind the holder is.", identity("/me"), `"/me"`},
		"EmptyName":         {"We should ask for the name of the holder.", identity("golds.example.org/"), `"golds.example.org/"`},
		"EmptyNamespace":    {"We should ask for the namespace of the holder.", identity("golds.example.org//me"), `"golds.example.org//me"`},
		"TooManyParts":      {"We should not guess what the parts of a holder are.", identity("golds.example.org/team/me/too"), `"golds.example.org/team/me/too"`},
		"NoUID":             {"We should not take another class of that name for the holder.", func(l *coordinationv1.Lease) { delete(l.Annotations, v1beta1.HolderUIDAnnotation) }, holder},
		"NoPending":         {"We should not guess what may be in flight.", func(l *coordinationv1.Lease) { delete(l.Annotations, v1beta1.HolderPendingAnnotation) }, holder},
		"NothingPending":    {"We should not take a Lease for free that names a holder.", pendingText("[]"), holder},
		"Unreadable":        {"We should not guess what may be in flight.", pendingText(`[{"id":`), holder},
		"NoID":              {"We should be able to tell writes apart.", pendingText(`[{"from":"10"}]`), holder},
		"LongID":            {"We should read nothing longer than we write.", pendingText(`[{"id":"` + strings.Repeat("A", v1beta1.MaxUIDBytes+1) + `"}]`), holder},
		"OddID":             {"We should read nothing that is longer when we write it.", pendingText(`[{"id":"<<<<"}]`), holder},
		"OddBase":           {"We should read nothing that is longer when we write it.", pendingText(`[{"id":"1","from":"<<<<"}]`), holder},
		"OddUID":            {"We should take no text for a uid.", func(l *coordinationv1.Lease) { l.Annotations[v1beta1.HolderUIDAnnotation] = "a b" }, holder},
		"Crowded":           {"We should read no more than we write.", pendingText("[" + strings.Repeat(`{"id":"1"},`, v1beta1.MaxPendingDefaults) + `{"id":"2"}]`), holder},
		"SomebodyElsesOnly": {"We should not take the Lease of a leader for ours.", func(l *coordinationv1.Lease) { identity("classbind-7d9f_5e1f")(l); l.Annotations = nil }, `"classbind-7d9f_5e1f"`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLease()
			tc.edit(l)
			l.Namespace = "classbind-system"
			got, err := decode(l)
			require.EqualError(t, err, "somebody else changed it (holderIdentity "+tc.quoted+"): kubectl delete lease "+leaseName+" --namespace classbind-system", tc.reason)
			assert.Zero(t, got, tc.reason)
		})
	}
	l := newLease()
	identity(strings.Repeat("x", 1<<20))(l)
	_, err := decode(l)
	assert.Less(t, len(err.Error()), 1000, "We should not log what somebody wrote there at full length.")
}

// listed makes the Reflector list the Leases, and then watch them.
type listed struct {
	coordinationclient.LeaseInterface
}

// IsWatchListSemanticsUnSupported is asked by the Reflector.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

func fakeLeases(f *clienttesting.Fake) coordinationclient.LeaseInterface {
	return listed{(&fakecoordinationv1.FakeCoordinationV1{Fake: f}).Leases("classbind-system")}
}

// newCluster answers every request with the Lease or the error, and records requests.
func newCluster(l *coordinationv1.Lease, err error) (*Cluster, *clienttesting.Fake) {
	f := &clienttesting.Fake{}
	f.AddReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, l, err })
	return &Cluster{Leases: fakeLeases(f), Sightings: NewSightings(), Window: window}, f
}

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	notFound     = apierrors.NewNotFound(leases, "claims.example.org")
	forbidden    = apierrors.NewForbidden(leases, "claims.example.org", errors.New("no rule"))
	conflict     = apierrors.NewConflict(leases, "claims.example.org", errors.New("it was changed"))
	alreadyThere = apierrors.NewAlreadyExists(leases, "claims.example.org")
)

func TestClusterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time stands still.
		malformed := newLease()
		malformed.Annotations = nil
		for name, tc := range map[string]struct {
			reason string
			object *coordinationv1.Lease
			err    error
			want   Lease
			text   string // of an error
		}{
			"Held":      {reason: "We should read who holds it, and take it for new.", object: newLease(), want: held(me, pending("1", "10", window))},
			"NotThere":  {reason: "We should take a Lease that there is not for a free one.", err: notFound},
			"Malformed": {reason: "We should not take a Lease for free that we do not understand.", object: malformed, text: "kubectl delete lease"},
			"Forbidden": {reason: "We should not take a Lease for free that we may not read.", err: forbidden, text: "no rule"},
		} {
			cluster, f := newCluster(tc.object, tc.err)
			got, err := cluster.Lease(t.Context(), claims)
			assert.Equal(t, tc.want, got, "%s: %s", name, tc.reason)
			if tc.text == "" {
				require.NoError(t, err, "%s: %s", name, tc.reason)
			} else {
				require.ErrorContains(t, err, tc.text, "%s: %s", name, tc.reason)
			}
			require.Len(t, f.Actions(), 1)
			get := f.Actions()[0].(clienttesting.GetAction)
			assert.Equal(t, []string{"get", "classbind-system", leaseName}, []string{get.GetVerb(), get.GetNamespace(), get.GetName()},
				"We should read the Lease of the seat, in our own namespace.")
		}
	})
}

func TestClusterWriteLease(t *testing.T) {
	type want struct {
		verb string
		err  error
	}
	for name, tc := range map[string]struct {
		reason  string
		version string // of the Lease that was read
		err     error
		free    bool
		want    want
	}{
		"Free":            {"We should delete a Lease that is as good as none.", "7", nil, true, want{verb: "delete"}},
		"FreeConflict":    {"We should say that another wrote it meanwhile.", "7", conflict, true, want{verb: "delete", err: ErrConflict}},
		"FreeDeleted":     {"We should say that another deleted it meanwhile.", "7", notFound, true, want{verb: "delete", err: ErrConflict}},
		"FreeForbidden":   {"We should not start over for ever where we may not delete it.", "7", forbidden, true, want{verb: "delete", err: forbidden}},
		"Create":          {"We should create a Lease that there is not.", "", nil, false, want{verb: "create"}},
		"Update":          {"We should write over the version that was read.", "7", nil, false, want{verb: "update"}},
		"CreatedBefore":   {"We should say that another created it meanwhile.", "", alreadyThere, false, want{verb: "create", err: ErrConflict}},
		"UpdatedBefore":   {"We should say that another wrote it meanwhile.", "7", conflict, false, want{verb: "update", err: ErrConflict}},
		"DeletedBefore":   {"We should say that an admin deleted it meanwhile.", "7", notFound, false, want{verb: "update", err: ErrConflict}},
		"NoNamespace":     {"We should not start over for ever where our own namespace is gone.", "", notFound, false, want{verb: "create", err: notFound}},
		"CreateForbidden": {"We should not start over for ever where we may not create it.", "", forbidden, false, want{verb: "create", err: forbidden}},
		"UpdateForbidden": {"We should not start over for ever where we may not write it.", "7", forbidden, false, want{verb: "update", err: forbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, f := newCluster(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}, tc.err)
			lease := held(me, pending("1", "", 0))
			if tc.free {
				lease = lease.without("1")
			}
			lease.Version, lease.UID = tc.version, "lease-1"
			require.ErrorIs(t, cluster.WriteLease(t.Context(), claims, lease), tc.want.err, tc.reason)
			require.Len(t, f.Actions(), 1)
			assert.Equal(t, tc.want.verb, f.Actions()[0].GetVerb(), tc.reason)
			assert.Equal(t, "classbind-system", f.Actions()[0].GetNamespace(), "We should write in our own namespace.")
			if deletion, ok := f.Actions()[0].(clienttesting.DeleteActionImpl); ok {
				assert.Equal(t, leaseName, deletion.Name)
				assert.Equal(t, &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.Version}, deletion.DeleteOptions.Preconditions,
					"We should delete what was read alone.")
				return
			}
			encoded := encode(claims, lease)
			written := f.Actions()[0].(interface{ GetObject() runtime.Object }).GetObject()
			assert.Equal(t, encoded, written, "We should write what is asked, with the version that was read.")
		})
	}
}

// TestTooManySeats proves that whoever moves a default class through partitions fills neither etcd nor our memory, and refuses nobody else.
func TestTooManySeats(t *testing.T) {
	cluster, f := newCluster(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}, nil)
	of := func(n int) inventory.Seat {
		return inventory.Seat{ClaimKind: claims.ClaimKind, Partition: strconv.Itoa(n)}
	}
	by := func(kind, namespace string) Lease {
		holder := Holder{Class{Kind: kind, Namespace: namespace, Name: "me"}, "me-1"}
		return Lease{Holder: holder, Pending: []Pending{pending("1", "", 0)}}
	}
	greedy := by("golds.example.org", "team")
	for n := range v1beta1.MaxSeatLeases {
		require.NoError(t, cluster.WriteLease(t.Context(), of(n), greedy), "We should count what we write ourselves.")
	}
	f.ClearActions()
	err := cluster.WriteLease(t.Context(), of(-1), greedy)
	require.ErrorContains(t, err, `"golds.example.org" classes in namespace "team" are, or were, the default of 1000 partitions`, "We should record no more.")
	foreign := of(-2)
	later := by("silvers.example.org", "team")
	require.NoError(t, cluster.WriteLease(t.Context(), foreign, later))
	f.ClearActions()
	greedy.Version = "7"
	require.Error(t, cluster.WriteLease(t.Context(), foreign, greedy), "We should count a Lease that another share had.")
	in := inventory.Seat{ClaimKind: claims.ClaimKind, Namespace: "team"}
	require.Error(t, cluster.WriteLease(t.Context(), in, greedy), "We should count the seats of namespaces.")
	assert.Empty(t, f.Actions())

	require.NoError(t, cluster.WriteLease(t.Context(), claims, greedy), "We should go on for the seats of all.")
	require.NoError(t, cluster.WriteLease(t.Context(), of(1), greedy), "We should go on for seats that the share has.")
	for reason, l := range map[string]Lease{"another namespace": by("golds.example.org", "other"), "no namespace": by("golds.example.org", ""), "another kind": by("silvers.example.org", "team")} {
		require.NoError(t, cluster.WriteLease(t.Context(), of(-1), l), "We should leave room for %s.", reason)
	}
	require.NoError(t, cluster.WriteLease(t.Context(), of(5), Lease{Version: "8"}))
	greedy.Version = ""
	require.NoError(t, cluster.WriteLease(t.Context(), of(-1), greedy), "We should go on once a Lease is deleted.")
	require.NoError(t, cluster.WriteLease(t.Context(), of(6), later), "We should let another share take a Lease.")
	require.NoError(t, cluster.WriteLease(t.Context(), of(-3), greedy), "We should count it for that one.")
}

// TestCollect deletes a Lease only if it is as good as none, and only the version that was read.
func TestCollect(t *testing.T) {
	elsewhere := []inventory.Seat{{ClaimKind: "elsewhere.example.org"}}
	conflicting := func(f *clienttesting.Fake) {
		f.PrependReactor("delete", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict })
	}
	for name, tc := range map[string]struct {
		reason  string
		free    bool
		live    Live
		liveErr error
		after   time.Duration
		change  func(*clienttesting.Fake)
		deletes bool
		err     error
	}{
		"Free":             {reason: "We should delete a Lease that an older release has left free.", free: true, deletes: true},
		"Gone":             {reason: "We should delete the Lease of a class that is gone, once its write is over.", after: window, deletes: true},
		"MayComeBack":      {reason: "We should keep a Lease whose write may be in flight.", live: Live{UID: "me-1", Version: "10"}, after: window - time.Second},
		"Default":          {reason: "We should keep the Lease of a default for ever.", live: Live{UID: "me-1", Version: "11", Seats: []inventory.Seat{claims}}, after: time.Hour},
		"DefaultElsewhere": {reason: "We should delete the Lease of a class that has moved away.", live: Live{UID: "me-1", Version: "11", Seats: elsewhere}, deletes: true},
		"Unreadable":       {reason: "We should keep the Lease of a class that we cannot read.", liveErr: forbidden, after: time.Hour, err: forbidden},
		"Taken":            {reason: "We should keep a Lease that was taken meanwhile.", after: window, change: conflicting, deletes: true, err: ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stored := newLease()
				stored.UID, stored.ResourceVersion = "lease-1", "7"
				if tc.free {
					stored.Spec.HolderIdentity = nil
				}
				cluster, f := newCluster(stored, nil)
				if tc.change != nil {
					tc.change(f)
				}
				cluster.Live = func(context.Context, Class) (Live, error) { return tc.live, tc.liveErr }
				_, err := cluster.Lease(t.Context(), claims)
				require.NoError(t, err)
				time.Sleep(tc.after)
				f.ClearActions()
				deleted, err := cluster.Collect(t.Context(), leaseName)
				require.ErrorIs(t, err, tc.err, tc.reason)
				assert.Equal(t, tc.deletes && tc.err == nil, deleted, tc.reason)
				if !tc.deletes {
					assert.Len(t, f.Actions(), 1, tc.reason)
					return
				}
				require.Len(t, f.Actions(), 2, tc.reason)
				uid, version := types.UID("lease-1"), "7"
				assert.Equal(t, &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
					f.Actions()[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions, tc.reason)
			})
		})
	}
}

// TestSightings counts from what this replica has seen, whatever the clocks of others are.
func TestSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stored, f, events := newLease(), &clienttesting.Fake{}, apiwatch.NewFake()
		f.AddReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, stored.DeepCopy(), nil })
		f.AddReactor("list", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			fields := a.(clienttesting.ListAction).GetListRestrictions().Fields.String()
			assert.Equal(t, "metadata.name!=classbind-leader", fields, "We should not watch the leader.")
			return true, &coordinationv1.LeaseList{}, nil
		})
		f.AddWatchReactor("leases", clienttesting.DefaultWatchReactor(events, nil))
		cluster := &Cluster{Leases: fakeLeases(f), Sightings: NewSightings(), Window: window}
		left := func() []time.Duration {
			l, err := cluster.Lease(ctx, claims)
			require.NoError(t, err)
			var all []time.Duration
			for _, p := range l.Pending {
				all = append(all, p.Left)
			}
			return all
		}
		write := func(all ...Pending) {
			stored = encode(claims, held(me, all...))
		}
		go cluster.Sightings.Watch(ctx, cluster.Leases)
		synctest.Wait()

		events.Add(stored)
		synctest.Wait()
		time.Sleep(window - time.Second)
		assert.Equal(t, []time.Duration{time.Second}, left(), "We should count from the moment at which we saw the Lease written, not from that at which somebody asks.")
		write(pending("1", "10", 0), pending("2", "10", 0))
		assert.Equal(t, []time.Duration{time.Second, window}, left(), "We should count each write for itself, and one that we see for the first time from now.")
		time.Sleep(time.Hour)
		assert.Equal(t, []time.Duration{0, 0}, left(), "We should let a window end.")

		write(pending("2", "10", 0))
		assert.Equal(t, []time.Duration{0}, left())
		assert.Len(t, cluster.Sightings.leases[leaseName].first, 1, "We should forget a write that the Lease does not record any more.")
		events.Modify(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("spoilt")}})
		synctest.Wait()
		assert.Equal(t, []time.Duration{0}, left(), "We should leave a Lease that was spoilt to whoever reads it.")
		events.Delete(stored)
		synctest.Wait()
		assert.Empty(t, cluster.Sightings.leases, "We should forget a Lease that is gone.")

		events.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "of-somebody-else"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("somebody")}})
		synctest.Wait()
		assert.Empty(t, cluster.Sightings.leases, "We should not look at the Leases of others.")
		cancel()
		synctest.Wait()
	})
}

func TestStoredClasses(t *testing.T) {
	cluster, _ := newCluster(newLease(), nil)
	landed := func() bool {
		l, err := cluster.Lease(t.Context(), claims)
		require.NoError(t, err)
		return l.Landed
	}
	cluster.Sightings.Stored(Holder{me, "me-0"})
	cluster.Sightings.Stored(Holder{other, "me-1"})
	assert.False(t, landed(), "We should ask for the class and the uid.")
	cluster.Sightings.Stored(Holder{me, "me-1"})
	assert.True(t, landed(), "We should remember a class that we saw stored.")
	for i := range v1beta1.MaxStoredDefaults {
		cluster.Sightings.Stored(Holder{me, types.UID("later-" + strings.Repeat("i", i))})
	}
	assert.False(t, landed(), "We should remember no more than we have room for.")
}
