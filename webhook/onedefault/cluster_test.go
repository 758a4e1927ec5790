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
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	fakecoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/leasetest"
)

var (
	claims    = inventory.Seat{ClaimKind: "claims.example.org"}
	leaseName = LeaseName(claims)
)

// TestLeaseOfAPartition is read by people, who cannot read a hash.
func TestLeaseOfAPartition(t *testing.T) {
	s := claims
	s.Namespace, s.Partition = "team", strings.Repeat("Ä\n", 1000)
	l := held(me, pending("1", "10", 0))
	encoded := encode(s, l)
	text := encoded.Annotations[v1beta1.SeatAnnotation]
	assert.True(t, strings.HasPrefix(text, `claim kind "claims.example.org" in namespace "team", partition "Ä\\nÄ\\n`),
		"We should say which seat it is: %s", text)
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
		"NoIdentity":     {"We should not take an empty holder for none.", identity(""), `""`},
		"NoKind":         {"We should ask of which kind the holder is.", identity("me"), `"me"`},
		"EmptyKind":      {"We should ask of which kind the holder is.", identity("/me"), `"/me"`},
		"EmptyName":      {"We should ask for the name of the holder.", identity("golds.example.org/"), `"golds.example.org/"`},
		"EmptyNamespace": {"We should ask for the namespace of the holder.", identity("golds.example.org//me"), `"golds.example.org//me"`},
		"TooManyParts":   {"We should not guess what the parts of a holder are.", identity("golds.example.org/team/me/too"), `"golds.example.org/team/me/too"`},
		"NoUID": {
			"We should not take another class of that name for the holder.",
			func(l *coordinationv1.Lease) { delete(l.Annotations, v1beta1.HolderUIDAnnotation) }, holder,
		},
		"NoPending": {
			"We should not guess what may be in flight.", func(l *coordinationv1.Lease) { delete(l.Annotations, v1beta1.HolderPendingAnnotation) },
			holder,
		},
		"NothingPending": {"We should not take a Lease for free that names a holder.", pendingText("[]"), holder},
		"Unreadable":     {"We should not guess what may be in flight.", pendingText(`[{"id":`), holder},
		"NoID":           {"We should be able to distinguish writes.", pendingText(`[{"from":"10"}]`), holder},
		"LongID":         {"We should read nothing longer than we write.", pendingText(`[{"id":"` + strings.Repeat("A", v1beta1.MaxUIDBytes+1) + `"}]`), holder},
		"OddID":          {"We should read nothing that is longer when we write it.", pendingText(`[{"id":"<<<<"}]`), holder},
		"OddBase":        {"We should read nothing that is longer when we write it.", pendingText(`[{"id":"1","from":"<<<<"}]`), holder},
		"OddUID":         {"We should take no text for a uid.", func(l *coordinationv1.Lease) { l.Annotations[v1beta1.HolderUIDAnnotation] = "a b" }, holder},
		"Crowded": {
			"We should read no more than we write.", pendingText("[" + strings.Repeat(`{"id":"1"},`, v1beta1.MaxPendingDefaults) + `{"id":"2"}]`),
			holder,
		},
		"SomebodyElsesOnly": {
			"We should not take the Lease of a leader for ours.",
			func(l *coordinationv1.Lease) { identity("classbind-7d9f_5e1f")(l); l.Annotations = nil }, `"classbind-7d9f_5e1f"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLease()
			tc.edit(l)
			l.Namespace = "classbind-system"
			got, err := decode(l)
			require.EqualError(
				t, err, "somebody else changed it (holderIdentity "+tc.quoted+"): kubectl delete lease "+leaseName+" --namespace classbind-system",
				tc.reason,
			)
			assert.Zero(t, got, tc.reason)
		})
	}
	l := newLease()
	identity(strings.Repeat("x", 1<<20))(l)
	_, err := decode(l)
	assert.Less(t, len(err.Error()), 1000, "We should not log what somebody wrote there at full length.")
}

// newCluster has the Lease, if there is one. Every operation but the reading of another Lease fails with err.
func newCluster(l *coordinationv1.Lease, err error) (*Cluster, *leasetest.Leases) {
	leases := leasetest.New()
	if l != nil {
		leases.Put(l)
	}
	leases.Before = func(context.Context, string, *coordinationv1.Lease) error { return err }
	return &Cluster{Leases: leases, Sightings: NewSightings(), Window: window}, leases
}

var forbidden = apierrors.NewForbidden(leasetest.Resource, "claims.example.org", errors.New("no rule"))

func TestClusterWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		stored        bool
		version       string // that was read
		err           error
		free          bool
		done          string
		want, written bool // a Lease in the end
	}{
		"Free":            {reason: "We should delete a Lease that is as good as none.", stored: true, version: "1", free: true, done: "delete", written: true},
		"FreeConflict":    {reason: "We should say that another wrote it meanwhile.", stored: true, version: "0", free: true, done: "delete", want: true},
		"FreeDeleted":     {reason: "We should say that another deleted it meanwhile.", version: "1", free: true, done: "delete"},
		"Create":          {reason: "We should create a Lease that there is not.", done: "create", want: true, written: true},
		"Update":          {reason: "We should write over the version that was read.", stored: true, version: "1", done: "update", want: true, written: true},
		"CreatedBefore":   {reason: "We should say that another created it meanwhile.", stored: true, done: "create", want: true},
		"UpdatedBefore":   {reason: "We should say that another wrote it meanwhile.", stored: true, version: "0", done: "update", want: true},
		"DeletedBefore":   {reason: "We should say that an admin deleted it meanwhile.", version: "1", done: "update"},
		"NoNamespace":     {reason: "We should not start over for ever where our own namespace is gone.", err: apierrors.NewNotFound(leasetest.Resource, "x")},
		"CreateForbidden": {reason: "We should not start over for ever where we may not create it.", err: forbidden},
		"FreeForbidden":   {reason: "We should not start over for ever where we may not delete it.", version: "1", free: true, err: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			stored := newLease()
			if !tc.stored {
				stored = nil
			}
			cluster, leases := newCluster(stored, tc.err)
			lease := held(me, pending("1", "", 0))
			if tc.free {
				lease = lease.without("1")
			}
			lease.Version = tc.version
			written, err := cluster.write(t.Context(), claims, lease)
			require.ErrorIs(t, err, tc.err, tc.reason)
			assert.Equal(t, tc.written, written, tc.reason)
			if tc.err == nil {
				assert.Equal(t, []string{tc.done + " " + leaseName}, leases.Done, tc.reason)
			}
			assert.Equal(t, tc.want, leases.All[leaseName] != nil, tc.reason)
		})
	}
}

// TestTooManySeats proves that a user who moves a default class through partitions fills neither etcd nor our memory, and refuses no one else.
func TestTooManySeats(t *testing.T) {
	cluster, leases := newCluster(nil, nil)
	of := func(n int) inventory.Seat {
		return inventory.Seat{ClaimKind: claims.ClaimKind, Partition: strconv.Itoa(n)}
	}
	// take a seat for a class of a kind and a namespace.
	take := func(seat inventory.Seat, kind, namespace string) error {
		l := Lease{Holder: Holder{Class{Kind: kind, Namespace: namespace, Name: "me"}, "me-1"}, Pending: []Pending{pending("1", "", 0)}}
		if stored := leases.All[LeaseName(seat)]; stored != nil {
			l.Version = stored.ResourceVersion
		}
		_, err := cluster.write(t.Context(), seat, l)
		return err
	}
	const golds, silvers = "golds.example.org", "silvers.example.org"
	for n := range v1beta1.MaxSeatLeases {
		require.NoError(t, take(of(n), golds, "team"), "We should count what we write ourselves.")
	}
	require.ErrorContains(
		t, take(of(-1), golds, "team"), `"golds.example.org" classes in namespace "team" are, or were, the default of 1000 partitions`,
		"We should record no more.",
	)
	require.NoError(t, take(of(-2), silvers, "team"))
	require.Error(t, take(of(-2), golds, "team"), "We should count a Lease that another share had.")
	require.Error(t, take(inventory.Seat{ClaimKind: claims.ClaimKind, Namespace: "team"}, golds, "team"), "We should count the seats of namespaces.")
	assert.Len(t, leases.All, v1beta1.MaxSeatLeases+1)

	require.NoError(t, take(claims, golds, "team"), "We should go on for the seats of all.")
	require.NoError(t, take(of(1), golds, "team"), "We should go on for seats that the share has.")
	require.NoError(t, take(of(-3), golds, "other"), "We should leave room for another namespace.")
	require.NoError(t, take(of(-4), golds, ""), "We should leave room for no namespace.")
	_, err := cluster.write(t.Context(), of(5), Lease{Version: leases.All[LeaseName(of(5))].ResourceVersion})
	require.NoError(t, err)
	require.NoError(t, take(of(-1), golds, "team"), "We should go on once a Lease is deleted.")
	require.NoError(t, take(of(6), silvers, "team"), "We should let another share take a Lease.")
	require.NoError(t, take(of(-5), golds, "team"), "We should count it for that one.")
}

// TestCollect deletes a Lease only if it is as good as none, and only the version that was read.
func TestCollect(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		free    bool
		live    Live
		liveErr error
		after   time.Duration
		taken   bool
		deletes bool
	}{
		"Free":        {reason: "We should delete a Lease that an older release has left free.", free: true, deletes: true},
		"Gone":        {reason: "We should delete the Lease of a class that is gone, once its write is over.", after: window, deletes: true},
		"MayComeBack": {reason: "We should keep a Lease whose write may be in flight.", live: Live{UID: "me-1", Version: "10"}, after: window - time.Second},
		"Default": {
			reason: "We should keep the Lease of a default for ever.",
			live:   Live{UID: "me-1", Version: "11", Seats: []inventory.Seat{claims}},
			after:  time.Hour,
		},
		"DefaultElsewhere": {
			reason:  "We should delete the Lease of a class that has moved away.",
			live:    Live{UID: "me-1", Version: "11", Seats: seats("elsewhere.example.org")},
			deletes: true,
		},
		"Unreadable": {reason: "We should keep the Lease of a class that we cannot read.", liveErr: forbidden, after: time.Hour},
		"Taken":      {reason: "We should keep a Lease that was taken meanwhile.", after: window, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stored := newLease()
				if tc.free {
					stored.Spec.HolderIdentity = nil
				}
				cluster, leases := newCluster(stored, nil)
				cluster.Live = func(context.Context, Class) (Live, error) {
					if tc.taken {
						leases.Put(stored)
					}
					return tc.live, tc.liveErr
				}
				_, err := cluster.lease(t.Context(), leaseName)
				require.NoError(t, err)
				time.Sleep(tc.after)
				require.ErrorIs(t, cluster.Collect(t.Context(), leaseName), tc.liveErr, tc.reason)
				assert.Equal(t, tc.deletes, leases.All[leaseName] == nil, tc.reason)
			})
		})
	}
}

// listed makes the Reflector list the Leases, and then watch them.
type listed struct {
	coordinationclient.LeaseInterface
}

// IsWatchListSemanticsUnSupported is asked by the Reflector.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

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
		leases := listed{(&fakecoordinationv1.FakeCoordinationV1{Fake: f}).Leases("classbind-system")}
		cluster := &Cluster{Leases: leases, Sightings: NewSightings(), Window: window}
		left := func() []time.Duration {
			l, err := cluster.lease(ctx, leaseName)
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
		assert.Equal(
			t, []time.Duration{time.Second}, left(),
			"We should count from the moment at which we saw the Lease written, not from that at which somebody asks.",
		)
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
		l, err := cluster.lease(t.Context(), leaseName)
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
