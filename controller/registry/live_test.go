package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

// hanging is an API server that does not answer.
type hanging struct {
	client.Reader
	asked atomic.Int32
}

func (h *hanging) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	h.asked.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

func TestRegisteredIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		r := newRegistration(&controllertest.Cached{}, h, cluster.Resolver{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		var late, refused atomic.Int32
		count := func(err error) {
			if assert.ErrorContains(t, err, "forged"); strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				late.Add(1)
			} else if assert.ErrorContains(t, err, "too many wait; try again in a moment") {
				refused.Add(1)
			}
		}
		for i := range 100 {
			all.Go(func() {
				_, err := r.LiveReads.ClaimKind(ctx, fmt.Sprint("forged", i, ".example.org"))
				count(err)
			})
			all.Go(func() {
				_, err := r.LiveReads.ClassKind(ctx, fmt.Sprint("forged", i, ".example.org"))
				count(err)
			})
			all.Go(func() {
				_, err := r.LiveReads.Namespace(ctx, fmt.Sprint("forged", i))
				count(err)
			})
		}
		all.Wait()
		assert.EqualValues(t, v1beta1.RegistrationReads.InFlight, h.asked.Load(), "We should not ask for whatever somebody makes up all at once.")
		assert.EqualValues(t, v1beta1.RegistrationReads.Waiting, late.Load(), "We should have so many wait.")
		assert.EqualValues(t, 300-v1beta1.RegistrationReads.Waiting, refused.Load(), "We should answer the others at once.")
	})
}

func TestRegistered(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	has := func(names ...string) *controllertest.Cached {
		c := &controllertest.Cached{}
		for _, name := range names {
			c.ClaimKinds = append(c.ClaimKinds, *controllertest.NewClaimKind(name))
		}
		return c
	}
	fails := func(err error) *controllertest.Cached { return &controllertest.Cached{Err: err} }
	const name, other = "claims.example.org", "others.example.org"
	for tcName, tc := range map[string]struct {
		reason  string
		deleted bool // seen to be
		api     *controllertest.Cached
		want    bool
		err     error
	}{
		"RegisteredAgain": {"We should find what is registered again, though we have seen it deleted.", true, has(name), true, nil},
		"NotPermitted":    {"We should not say that there is none when we may not look.", false, fails(forbidden), false, forbidden},
		"Uninstalled":     {"We should block no claim of a kind that we have seen deleted once our rights are gone, too.", true, fails(forbidden), false, nil},
		"AccountDeleted": {
			"We should block no claim of a kind that we have seen deleted once nobody knows us any more.",
			true, fails(apierrors.NewUnauthorized("")), false, nil,
		},
		"DeletedAndNotAnswered": {
			"We should not say that there is none when we could not ask, though we have seen it deleted: it may be there again.",
			true, fails(refused), false, refused,
		},
		"Registered":    {"We should find what was registered a moment ago.", false, has(other, name), true, nil},
		"NotRegistered": {"We should take the API server's word that there is none.", false, has(other), false, nil},
		"NotAnswered":   {"We should not say that there is none when we could not ask.", false, fails(refused), false, refused},
	} {
		t.Run(tcName, func(t *testing.T) {
			r := newRegistration(&controllertest.Cached{}, tc.api, cluster.Resolver{}, nil)
			if tc.deleted {
				_, err := r.reconcileClaimKind(t.Context(), name)
				require.NoError(t, err)
			}
			got, err := r.LiveReads.ClaimKind(t.Context(), name)
			require.ErrorIs(t, err, tc.err, tc.reason)
			assert.Equal(t, tc.want, got != nil, tc.reason)
		})
	}
}

func TestClassKind(t *testing.T) {
	const name = "golds.example.org"
	stored := v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "5e1f", Generation: 8},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: "others.example.org"}}, Default: v1beta1.Source{Path: ".default"}},
	}
	// watched is a kind that the API server does not serve, as it was registered.
	watched := func(uid types.UID) *registered {
		k := stored
		k.UID = uid
		kind := inventory.NewClassKind(&k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Watched"}, true)
		kind.ClaimKinds = []string{"others.example.org"}
		return watchedKind(kind, watching(nil), nil, false)
	}
	served := map[string]any{
		"/apis/example.org":    controllertest.APIGroup("v1"),
		"/apis/example.org/v1": controllertest.APIResources(metav1.APIResource{Name: "golds", Kind: "Gold", Verbs: metav1.Verbs{"list"}}),
	}
	refused := errors.New("connection refused")
	type want struct {
		kind       string // empty if there is none
		namespaced bool
		err        string
	}
	known := &controllertest.Cached{ClassKinds: []v1beta1.ClassKind{stored}}
	down := map[string]any{"/apis/example.org": controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)}
	for tcName, tc := range map[string]struct {
		reason  string
		client  *controllertest.Cached // known unless set
		api     *controllertest.Cached // the API server itself, if its answer differs
		watched *registered
		answers map[string]any // served unless set
		want    want
	}{
		"NotRegistered": {
			reason:  "We should take the API server's word that it is registered no more, whatever we watch.",
			client:  &controllertest.Cached{},
			watched: watched("5e1f"),
		},
		"NotHeardOf": {
			reason: "We should ask the API server for one that we have not heard of.",
			client: &controllertest.Cached{},
			api:    known,
			want:   want{kind: "Gold"},
		},
		"NotHeardOfNorAnswered": {
			reason: "We should not say that it is not registered because we have not heard of it.",
			client: &controllertest.Cached{}, api: &controllertest.Cached{Err: refused},
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"HeardOf": {
			reason:  "We should not ask the API server for what we know.",
			api:     &controllertest.Cached{Err: refused},
			watched: watched("5e1f"),
			want:    want{kind: "Watched", namespaced: true},
		},
		"NotAnswered": {
			reason: "We should not say that it is not registered when we could not ask.",
			client: &controllertest.Cached{Err: refused}, watched: watched("5e1f"),
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"Watched": {
			reason:  "We should not look up a resource that we watch.",
			watched: watched("5e1f"), answers: down, want: want{kind: "Watched", namespaced: true},
		},
		"WatchedBefore": {
			reason:  "We should look up the resource of a registration that was deleted and made again.",
			watched: watched("c0ffee"),
			want:    want{kind: "Gold"},
		},
		"NotWatched":   {reason: "We should look up a resource that we do not watch yet.", watched: unfollowed(cluster.ErrNotInstalled), want: want{kind: "Gold"}},
		"Unknown":      {reason: "We should look up a resource that we have not heard of.", want: want{kind: "Gold"}},
		"NotInstalled": {reason: "We should say that there are no classes of a kind that is not installed.", answers: map[string]any{}},
		"NotServed": {
			reason: "We should not say that there are no classes of a kind whose CRD is there.",
			client: &controllertest.Cached{ClassKinds: known.ClassKinds, CRDs: []string{name}}, answers: map[string]any{},
			want: want{err: `cannot look up class kind "golds.example.org": ` + ErrCRDNotServed.Error()},
		},
		"NotLookedUp": {
			reason:  "We should not say that there are no classes when we could not ask.",
			answers: down,
			want:    want{err: `cannot look up class kind "golds.example.org": cannot look up the API group "example.org": ServiceUnavailable`},
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			if tc.answers == nil {
				tc.answers = served
			}
			resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, tc.answers))
			require.NoError(t, err)
			r := newRegistration(cmp.Or(tc.client, known), cmp.Or(tc.api, tc.client, known), resolver, nil)
			if tc.watched != nil {
				r.ClassKinds.kinds[name] = tc.watched
			}
			kind, err := r.LiveReads.ClassKind(t.Context(), name)
			controllertest.RequireError(t, tc.want.err, err, tc.reason)
			if tc.want.kind == "" {
				assert.Nil(t, kind, tc.reason)
				return
			}
			require.NotNil(t, kind, tc.reason)
			assert.Equal(t, tc.want, want{kind: kind.GroupVersionKind.Kind, namespaced: kind.Namespaced}, tc.reason)
			assert.Equal(t, stored.Spec.ClaimKinds, controllertest.Links(kind.ClaimKinds...), "We should say which claim kinds it serves now.")
			assert.Equal(t, stored.Spec.Default, kind.DefaultMark, "We should say where it is marked now.")
		})
	}
}

func TestNamespace(t *testing.T) {
	there := func(api *controllertest.Cached) (bool, error) {
		return newRegistration(nil, api, cluster.Resolver{}, nil).LiveReads.Namespace(t.Context(), "team")
	}
	found, err := there(&controllertest.Cached{Namespaces: []string{"team"}})
	assert.True(t, found && err == nil, "We should find one that is there.")
	found, err = there(&controllertest.Cached{})
	assert.True(t, !found && err == nil, "We should take the API server's word that there is none.")
	_, err = there(&controllertest.Cached{Err: errors.New("connection refused")})
	require.EqualError(t, err, `cannot get namespace "team": connection refused`)
}

func TestClass(t *testing.T) {
	metadataOnly := controllertest.NewClassKind("golds.example.org", "Gold")
	whole := inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{Default: v1beta1.Source{Path: ".default"}},
	}, metadataOnly.GroupVersionKind, false)
	list := func(kind string, items ...string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":%q,"items":[%s]}`, kind, strings.Join(items, ",")))
	}
	const (
		object  = `{"apiVersion":"example.org/v1","kind":"Gold","default":true,"metadata":{"name":"a","uid":"a-1","resourceVersion":"10"}}`
		partial = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","uid":"a-1","resourceVersion":"10",` +
			`"annotations":{"default":"true"}}}`

		partialOfAWS = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"aws","uid":"a-1",` +
			`"resourceVersion":"10","annotations":{"default":"true"}}}`

		one         = "/apis/example.org/v1/golds/a"
		oneOfAWS    = "/apis/example.org/v1/namespaces/aws/golds/a"
		listed      = "/apis/example.org/v1/golds?metadata.name=a"
		listedOfAWS = "/apis/example.org/v1/golds?metadata.name=a,metadata.namespace=aws"
	)
	forbidden := controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	unavailable := controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	none, partials := list("PartialObjectMetadataList"), list("PartialObjectMetadataList", partial)
	type want struct {
		found bool
		err   string
	}
	for name, tc := range map[string]struct {
		reason    string
		kind      *inventory.ClassKind // metadataOnly, unless set
		namespace string
		answers   map[string]any
		want      want
	}{
		"Metadata": {
			reason:  "We should read the metadata of a class, where they have its mark.",
			answers: map[string]any{one: json.RawMessage(partial)},
			want:    want{found: true},
		},
		"Object": {
			reason:  "We should read the whole class, where a field is its mark.",
			kind:    whole,
			answers: map[string]any{one: json.RawMessage(object)},
			want:    want{found: true},
		},
		"Namespaced": {
			reason:    "We should read a class in its namespace.",
			namespace: "aws",
			answers:   map[string]any{oneOfAWS: json.RawMessage(partial)},
			want:      want{found: true},
		},
		"NotThere": {reason: "We should say that there is none."},
		"Listed": {
			reason:  "We should list the one class that we may not get.",
			answers: map[string]any{one: forbidden, listed: partials},
			want:    want{found: true},
		},
		"ListedOfANamespace": {
			reason:    "We should list the one class that we may not get, of its namespace.",
			namespace: "aws", answers: map[string]any{oneOfAWS: forbidden, listedOfAWS: list("PartialObjectMetadataList", partialOfAWS)}, want: want{found: true},
		},
		"NotListed": {reason: "We should say that there is none where the list is empty.", answers: map[string]any{one: forbidden, listed: none}},
		"NotServed": {
			reason:  "We should not say that there is none when the API server does not serve the version that we ask for.",
			answers: map[string]any{one: "404 page not found"}, want: want{err: "the server could not find the requested resource"},
		},
		"AnotherListed": {
			reason:  "We should not take another class for it where the API server does not select by name.",
			answers: map[string]any{one: forbidden, listed: list("PartialObjectMetadataList", strings.Replace(partial, `"name":"a"`, `"name":"b"`, 1))},
			want:    want{err: `asked for a list of "a" alone, the API server answered with "b"`},
		},
		"ForbiddenToList": {
			reason:  "We should not say that there is none when we may not look.",
			answers: map[string]any{one: forbidden, listed: forbidden},
			want:    want{err: "Forbidden"},
		},
		"OutOfService": {
			reason:  "We should not say that there is none when nobody answers, and not ask in another way.",
			answers: map[string]any{one: unavailable, listed: partials}, want: want{err: "ServiceUnavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newClassClient(controllertest.NewAPIServer(t, tc.answers))
			require.NoError(t, err)
			object, class, err := newRegistration(nil, nil, cluster.Resolver{}, client).LiveReads.Class(t.Context(), cmp.Or(tc.kind, metadataOnly), tc.namespace, "a")
			if tc.want.err != "" {
				require.EqualError(t, err, `cannot get the class "a" of "golds.example.org": `+tc.want.err, tc.reason)
			} else {
				require.NoError(t, err, tc.reason)
			}
			if !tc.want.found {
				assert.Nil(t, object, tc.reason)
				assert.Nil(t, class, tc.reason)
				return
			}
			require.NotNil(t, class, tc.reason)
			assert.Equal(t, []string{"a-1", "10"}, []string{string(object.GetUID()), object.GetResourceVersion()}, "We should report which it is, and its version.")
			assert.True(t, class.Default, "We should read its mark.")
		})
	}
}
