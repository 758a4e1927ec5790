package onedefault

import (
	"context"
	"errors"
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
	fakecoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestLeaseIsReadAsItWasWritten(t *testing.T) {
	written := time.Date(2026, 11, 21, 1, 2, 3, 456789000, time.UTC)
	object := func(version, identity, base string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org", ResourceVersion: version, Annotations: map[string]string{"classbind.io/holder-uid": "me-1"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity, RenewTime: &metav1.MicroTime{Time: written}, LeaseDurationSeconds: new(int32(90))},
		}
		if base != "" {
			l.Annotations["classbind.io/holder-base"] = base
		}
		return l
	}
	team := Class{Kind: "silvers.example.org", Namespace: "team", Name: "me"}
	for name, tc := range map[string]struct {
		reason string
		lease  Lease
		want   *coordinationv1.Lease
	}{
		"New": {
			reason: "We should require no version of a Lease that there is not.",
			lease:  Lease{Holder: Holder{Class: me, UID: "me-1"}, Written: written, Window: window},
			want:   object("", "golds.example.org/me", ""),
		},
		"Created": {
			reason: "We should record no base of a class that is created.",
			lease:  Lease{Version: "7", Holder: Holder{Class: me, UID: "me-1"}, Written: written, Window: window},
			want:   object("7", "golds.example.org/me", ""),
		},
		"Updated": {
			reason: "We should record the base of a class that is updated.",
			lease:  Lease{Version: "7", Holder: Holder{Class: me, UID: "me-1", Base: "10"}, Written: written, Window: window},
			want:   object("7", "golds.example.org/me", "10"),
		},
		"Namespaced": {
			reason: "We should record the namespace of a class that has one.",
			lease:  Lease{Version: "7", Holder: Holder{Class: team, UID: "me-1"}, Written: written, Window: window},
			want:   object("7", "silvers.example.org/team/me", ""),
		},
		"Free": {
			reason: "We should leave nothing of a holder in a Lease that is put back as it was, free.",
			lease:  Lease{Version: "7"},
			want:   &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org", ResourceVersion: "7"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, encode("claims.example.org", tc.lease), tc.reason)
			got, err := decode(tc.want)
			require.NoError(t, err)
			assert.Equal(t, tc.lease, got, "We should read what we wrote.")
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	identity := func(text string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &text }
	}
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
		"NoUID":             {"We should not take another class of that name for the holder.", func(l *coordinationv1.Lease) { l.Annotations = nil }, `"golds.example.org/me"`},
		"NoRenewTime":       {"We should not guess since when it may be in flight.", func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, `"golds.example.org/me"`},
		"NoDuration":        {"We should not guess until when it may be in flight.", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, `"golds.example.org/me"`},
		"SomebodyElsesOnly": {"We should not take the Lease of a leader for ours.", func(l *coordinationv1.Lease) { identity("classbind-7d9f_5e1f")(l); l.Annotations = nil }, `"classbind-7d9f_5e1f"`},
	} {
		t.Run(name, func(t *testing.T) {
			l := encode("claims.example.org", Lease{Version: "7", Holder: Holder{Class: me, UID: "me-1", Base: "10"}, Written: epoch, Window: window})
			_, err := decode(l)
			require.NoError(t, err)
			tc.edit(l)
			l.Namespace = "classbind-system"
			got, err := decode(l)
			require.EqualError(t, err, "it is not as classbind writes it (holderIdentity "+tc.quoted+"): kubectl delete lease claims.example.org --namespace classbind-system", tc.reason)
			assert.Zero(t, got, tc.reason)
		})
	}
}

// newCluster answers every request with the Lease or the error, and records it.
func newCluster(l *coordinationv1.Lease, err error) (*Cluster, *clienttesting.Fake) {
	f := &clienttesting.Fake{}
	f.AddReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, l, err })
	return &Cluster{Leases: (&fakecoordinationv1.FakeCoordinationV1{Fake: f}).Leases("classbind-system"), Sightings: &Sightings{}}, f
}

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	notFound     = apierrors.NewNotFound(leases, "claims.example.org")
	forbidden    = apierrors.NewForbidden(leases, "claims.example.org", errors.New("no rule"))
	conflict     = apierrors.NewConflict(leases, "claims.example.org", errors.New("it was changed"))
	alreadyThere = apierrors.NewAlreadyExists(leases, "claims.example.org")
)

func TestClusterLease(t *testing.T) {
	held := Lease{Version: "7", Holder: Holder{Class: me, UID: "me-1", Base: "10"}, Written: epoch, Window: window}
	malformed := encode("claims.example.org", held)
	malformed.Annotations = nil
	for name, tc := range map[string]struct {
		reason string
		object *coordinationv1.Lease
		err    error
		want   Lease
		text   string // of an error
	}{
		"Held":      {reason: "We should read who holds it.", object: encode("claims.example.org", held), want: held},
		"NotThere":  {reason: "We should take a Lease that there is not for a free one.", err: notFound},
		"Malformed": {reason: "We should not take a Lease for free that we do not understand.", object: malformed, text: "kubectl delete lease"},
		"Forbidden": {reason: "We should not take a Lease for free that we may not read.", err: forbidden, text: "no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, f := newCluster(tc.object, tc.err)
			got, err := cluster.Lease(t.Context(), "claims.example.org")
			assert.Equal(t, tc.want, got, tc.reason)
			if tc.text == "" {
				require.NoError(t, err, tc.reason)
			} else {
				require.ErrorContains(t, err, tc.text, tc.reason)
			}
			require.Len(t, f.Actions(), 1)
			get := f.Actions()[0].(clienttesting.GetAction)
			assert.Equal(t, []string{"get", "classbind-system", "claims.example.org"}, []string{get.GetVerb(), get.GetNamespace(), get.GetName()},
				"We should read the Lease that has the claim kind's name, in our own namespace.")
		})
	}
}

func TestClusterWriteLease(t *testing.T) {
	type want struct {
		verb, version string
		err           error
	}
	for name, tc := range map[string]struct {
		reason  string
		version string // of the Lease that was read
		err     error
		want    want
	}{
		"Create":          {"We should create a Lease that there is not, and say its version.", "", nil, want{verb: "create", version: "8"}},
		"Update":          {"We should write over the version that was read, and say the new one.", "7", nil, want{verb: "update", version: "8"}},
		"CreatedBefore":   {"We should say that another created it meanwhile.", "", alreadyThere, want{verb: "create", err: ErrConflict}},
		"UpdatedBefore":   {"We should say that another wrote it meanwhile.", "7", conflict, want{verb: "update", err: ErrConflict}},
		"DeletedBefore":   {"We should say that an admin deleted it meanwhile.", "7", notFound, want{verb: "update", err: ErrConflict}},
		"NoNamespace":     {"We should not start over for ever where our own namespace is gone.", "", notFound, want{verb: "create", err: notFound}},
		"CreateForbidden": {"We should not start over for ever where we may not create it.", "", forbidden, want{verb: "create", err: forbidden}},
		"UpdateForbidden": {"We should not start over for ever where we may not write it.", "7", forbidden, want{verb: "update", err: forbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, f := newCluster(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}, tc.err)
			lease := Lease{Version: tc.version, Holder: Holder{Class: me, UID: "me-1"}, Written: epoch, Window: window}
			version, err := cluster.WriteLease(t.Context(), "claims.example.org", lease)
			require.ErrorIs(t, err, tc.want.err, tc.reason)
			require.Len(t, f.Actions(), 1)
			assert.Equal(t, tc.want, want{f.Actions()[0].GetVerb(), version, tc.want.err}, tc.reason)
			assert.Equal(t, "classbind-system", f.Actions()[0].GetNamespace(), "We should write in our own namespace.")
			written := f.Actions()[0].(interface{ GetObject() runtime.Object }).GetObject()
			assert.Equal(t, encode("claims.example.org", lease), written, "We should write what is asked, with the version that was read.")
		})
	}
}

func TestClusterClass(t *testing.T) {
	want := Live{UID: "other-1", Version: "10", Default: true}
	failure := errors.New("connection refused")
	cluster := &Cluster{Live: func(_ context.Context, claimKind string, c Class) (Live, error) {
		assert.Equal(t, "claims.example.org", claimKind)
		assert.Equal(t, other, c)
		return want, failure
	}}
	got, err := cluster.Class(t.Context(), "claims.example.org", other)
	require.ErrorIs(t, err, failure)
	assert.Equal(t, want, got, "We should ask for the class as the claim kind sees it.")
}

// TestSightings has a writer whose clock is a day ahead.
func TestSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		held := Lease{Version: "7", Holder: Holder{Class: me, UID: "me-1"}, Written: start.Add(24 * time.Hour), Window: window}
		stored := encode("claims.example.org", held)
		f := &clienttesting.Fake{}
		f.AddReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, stored.DeepCopy(), nil })
		cluster := &Cluster{Leases: (&fakecoordinationv1.FakeCoordinationV1{Fake: f}).Leases("classbind-system"), Sightings: &Sightings{}}
		written := func() time.Duration {
			l, err := cluster.Lease(t.Context(), "claims.example.org")
			require.NoError(t, err)
			return l.Written.Sub(start)
		}
		assert.Zero(t, written(), "We should not believe that it will be written tomorrow.")
		time.Sleep(window)
		assert.Zero(t, written(), "We should count from when we first saw it, and so for no more than a window.")
		stored.ResourceVersion = "8"
		assert.Equal(t, window, written(), "We should count anew when it is written again.")
		stored.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(-time.Hour)}
		assert.Equal(t, -time.Hour, written(), "We should believe a clock that is not ahead.")
	})
}
