package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

func TestClassKind(t *testing.T) {
	const name = "golds.example.org"
	stored := v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "5e1f", Generation: 8},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: "others.example.org"}}, Default: v1beta1.Source{Path: ".default"}},
	}
	// watched is the registration as it was before, with a kind that the API server does not serve.
	watched := func(uid types.UID) *registered {
		kind := controllertest.NewClassKind(name, "Watched")
		kind.Revision, kind.Namespaced = inventory.Revision{UID: uid, Generation: 7}, true
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
			reason: "We should take the API server's word that it is registered no more, whatever we watch.",
			client: &controllertest.Cached{}, watched: watched("5e1f"),
		},
		"NotHeardOf": {
			reason: "We should ask the API server for one that we have not heard of.",
			client: &controllertest.Cached{}, api: known, want: want{kind: "Gold"},
		},
		"NotHeardOfNorAnswered": {
			reason: "We should not say that it is not registered because we have not heard of it.",
			client: &controllertest.Cached{}, api: &controllertest.Cached{Err: refused},
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"HeardOf": {
			reason: "We should not ask the API server for what we know.",
			api:    &controllertest.Cached{Err: refused}, watched: watched("5e1f"), want: want{kind: "Watched", namespaced: true},
		},
		"NotAnswered": {
			reason: "We should not say that it is not registered when we could not ask.",
			client: &controllertest.Cached{Err: refused}, watched: watched("5e1f"),
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"Watched": {
			reason:  "We should not look up a resource that we watch, but take the registration as it is now.",
			watched: watched("5e1f"), answers: down, want: want{kind: "Watched", namespaced: true},
		},
		"WatchedBefore": {
			reason:  "We should look up the resource of a registration that was deleted and made again.",
			watched: watched("c0ffee"), want: want{kind: "Gold"},
		},
		"NotWatched": {
			reason:  "We should look up a resource that we do not watch yet.",
			watched: unfollowed(cluster.ErrNotInstalled), want: want{kind: "Gold"},
		},
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
				r.kinds[name] = tc.watched
			}
			kind, err := r.ClassKind(t.Context(), name)
			if tc.want.err != "" {
				require.EqualError(t, err, tc.want.err, tc.reason)
			} else {
				require.NoError(t, err, tc.reason)
			}
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
	for name, tc := range map[string]struct {
		reason string
		api    *controllertest.Cached
		want   bool
		err    string
	}{
		"There":       {reason: "We should find one that is there.", api: &controllertest.Cached{Namespaces: []string{"team"}}, want: true},
		"NotThere":    {reason: "We should take the API server's word that there is none.", api: &controllertest.Cached{}},
		"NotAnswered": {reason: "We should not say that there is none when we could not ask.", api: &controllertest.Cached{Err: errors.New("connection refused")}, err: `cannot get namespace "team": connection refused`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistration(nil, tc.api, cluster.Resolver{}, nil)
			there, err := r.Namespace(t.Context(), "team")
			if tc.err != "" {
				require.EqualError(t, err, tc.err, tc.reason)
			} else {
				require.NoError(t, err, tc.reason)
			}
			assert.Equal(t, tc.want, there, tc.reason)
		})
	}
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
		partial = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","uid":"a-1","resourceVersion":"10","annotations":{"default":"true"}}}`

		partialOfAWS = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"aws","uid":"a-1","resourceVersion":"10","annotations":{"default":"true"}}}`

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
		kind      *inventory.ClassKind
		namespace string
		answers   map[string]any
		want      want
	}{
		"Metadata": {
			reason: "We should read the metadata of a class, where they have its mark.",
			kind:   metadataOnly, answers: map[string]any{one: json.RawMessage(partial)}, want: want{found: true},
		},
		"Object": {
			reason: "We should read the whole class, where a field is its mark.",
			kind:   whole, answers: map[string]any{one: json.RawMessage(object)}, want: want{found: true},
		},
		"Namespaced": {
			reason: "We should read a class in its namespace.",
			kind:   metadataOnly, namespace: "aws", answers: map[string]any{oneOfAWS: json.RawMessage(partial)}, want: want{found: true},
		},
		"NotThere": {reason: "We should say that there is none.", kind: metadataOnly},
		"Listed": {
			reason: "We should list the one class that we may not get.",
			kind:   metadataOnly, answers: map[string]any{one: forbidden, listed: partials}, want: want{found: true},
		},
		"ListedAsObject": {
			reason: "We should list the one class that we may not get, as a whole.",
			kind:   whole, answers: map[string]any{one: forbidden, listed: list("GoldList", object)}, want: want{found: true},
		},
		"ListedOfANamespace": {
			reason: "We should list the one class that we may not get, of its namespace.",
			kind:   metadataOnly, namespace: "aws", answers: map[string]any{oneOfAWS: forbidden, listedOfAWS: list("PartialObjectMetadataList", partialOfAWS)}, want: want{found: true},
		},
		"NotListed": {
			reason: "We should say that there is none where the list is empty.",
			kind:   metadataOnly, answers: map[string]any{one: forbidden, listed: none},
		},
		"NotListedOfANamespace": {
			reason: "We should say that there is none where the list is empty.",
			kind:   metadataOnly, namespace: "aws", answers: map[string]any{oneOfAWS: forbidden, listedOfAWS: none},
		},
		"NotServed": {
			reason: "We should not say that there is none when the API server does not serve the version that we ask for.",
			kind:   metadataOnly, answers: map[string]any{one: "404 page not found"}, want: want{err: "the server could not find the requested resource"},
		},
		"NotServedToList": {
			reason: "We should not say that there is none when the API server does not serve the version that we ask for.",
			kind:   metadataOnly, answers: map[string]any{one: forbidden, listed: "404 page not found"}, want: want{err: "the server could not find the requested resource"},
		},
		"AnotherListed": {
			reason: "We should not take another class for it where the API server does not select by name.",
			kind:   metadataOnly, answers: map[string]any{one: forbidden, listed: list("PartialObjectMetadataList", strings.Replace(partial, `"name":"a"`, `"name":"b"`, 1))},
			want: want{err: `asked for a list of "a" alone, the API server answered with "b"`},
		},
		"ForbiddenToList": {
			reason: "We should not say that there is none when we may not look.",
			kind:   metadataOnly, answers: map[string]any{one: forbidden, listed: forbidden}, want: want{err: "Forbidden"},
		},
		"OutOfService": {
			reason: "We should not say that there is none when nobody answers, and not ask in another way.",
			kind:   metadataOnly, answers: map[string]any{one: unavailable, listed: partials}, want: want{err: "ServiceUnavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newClassClient(controllertest.NewAPIServer(t, tc.answers))
			require.NoError(t, err)
			object, class, err := newRegistration(nil, nil, cluster.Resolver{}, client).Class(t.Context(), tc.kind, tc.namespace, "a")
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
			assert.Equal(t, []string{"a-1", "10"}, []string{string(object.GetUID()), object.GetResourceVersion()}, "We should tell which it is, and its version.")
			assert.True(t, class.Default, "We should read its mark.")
		})
	}
}
