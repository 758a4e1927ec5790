package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// classesOf a view, each KIND/NAME.
func classesOf(view *selector.View) (names []string) {
	for _, x := range view.Classes {
		for _, c := range x.All() {
			names = append(names, c.String())
		}
	}
	return names
}

// TestLive reads a healthy kind, and beside it one that is not.
func TestLive(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "silvers"}, "", errors.New("no rule"))
	unavailable := apierrors.NewServiceUnavailable("no endpoints")
	golds, silvers := controllertest.NewClassKind("golds.example.org", "Gold"), controllertest.NewClassKind("silvers.example.org", "Silver")
	known := controllertest.NewClasses(silvers, map[string][]string{"known": nil})

	type want struct {
		classes []string
		err     string
	}
	stale := want{classes: []string{"Gold/new", "Silver/known"}}
	const denied, down = http.StatusForbidden, http.StatusServiceUnavailable
	for name, tc := range map[string]struct {
		reason   string
		code     int
		answered error // of the watch
		want     want
	}{
		"Answered":         {"We should take what the API server has now.", http.StatusOK, nil, want{classes: []string{"Gold/new", "Silver/new"}}},
		"Uninstalled":      {"We should take a kind whose CRD went a moment ago for one without classes.", http.StatusNotFound, nil, want{classes: []string{"Gold/new"}}},
		"JustRefused":      {"We should not say that there is no class when the API server would not tell.", down, nil, want{err: `cannot list the classes of "silvers.example.org": `}},
		"StaleUnavailable": {"We should keep the last known classes of a kind that is out of service, and block no claim.", down, unavailable, stale},
		"StaleForbidden":   {"We should keep the last known classes of a kind that we may not list any more, and block no claim.", denied, forbidden, stale},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "tier in (gold,silver)", r.URL.Query().Get("labelSelector"), "We should have the API server select.")
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path == "/apis/example.org/v1/silvers" && tc.code != http.StatusOK {
					w.WriteHeader(tc.code)
					return
				}
				_, err := io.WriteString(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"metadata":{"name":"new","labels":{"tier":"gold"}}}]}`)
				assert.NoError(t, err)
			}))
			defer server.Close()
			client, err := newClassClient(&rest.Config{Host: server.URL, QPS: -1})
			require.NoError(t, err)
			r := newRegistration(nil, nil, cluster.Resolver{}, client)
			r.kinds[golds.Name] = watchedKind(golds, watching(nil), controllertest.NewClasses(golds, nil), true)
			r.kinds[silvers.Name] = watchedKind(silvers, watching(tc.answered), known, true)
			claimKind := selector.NewClaimKind(&v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{Reference: v1beta1.Reference{Form: v1beta1.ObjectReference}}})
			asked, err := labels.Parse("tier in (gold,silver)")
			require.NoError(t, err)

			snapshot := selector.NewView(claimKind, []*inventory.Classes{controllertest.NewClasses(golds, nil), known})
			view, err := r.Live(t.Context(), snapshot, claim.Claim{Selector: asked})
			if tc.want.err != "" {
				require.ErrorContains(t, err, tc.want.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want.classes, classesOf(view), tc.reason)
			assert.Same(t, claimKind, view.Kind, "We should decide by the claim kind with which we began.")
		})
	}
}

func TestLiveAsks(t *testing.T) {
	long := make([]string, 20_000)
	for i := range long {
		long[i] = fmt.Sprintf("v%07d", i)
	}
	requirement, err := labels.NewRequirement("tier", selection.In, append(long, "gold"))
	require.NoError(t, err)
	tooLong := labels.NewSelector().Add(*requirement)
	requirement, err = labels.NewRequirement("tier", selection.In, append(long[:400:400], "gold"))
	require.NoError(t, err)
	escaped := labels.NewSelector().Add(*requirement)
	require.Less(t, len(escaped.String()), v1beta1.MaxPushedSelectorBytes)

	const gold, silver, marked = `"labels":{"tier":"gold"}`, `"labels":{"tier":"silver"}`, `"annotations":{"default":"true"}`
	for name, tc := range map[string]struct {
		reason     string
		namespaced bool
		from       v1beta1.ClassNamespacesFrom
		local      bool // is the reference to a class in the claim's namespace
		namespace  string
		selector   labels.Selector // nil asks for the default class
		pages      []string        // the labels and annotations of the class on each
		path       string          // of each page, that of golds unless set
		query      string          // the labelSelector of each
		want       []string
	}{
		"Pages": {
			reason: "We should read page by page.", selector: labels.SelectorFromSet(labels.Set{"tier": "gold"}),
			pages: []string{gold, gold, gold}, query: "tier=gold", want: []string{"Gold/0", "Gold/1", "Gold/2"},
		},
		"Defaults":            {reason: "We should keep the default classes alone for a claim without a selector.", pages: []string{gold, marked}, want: []string{"Gold/1"}},
		"Everything":          {reason: "We should keep every class for a claim that takes any.", selector: labels.Everything(), pages: []string{gold, marked}, want: []string{"Gold/0", "Gold/1"}},
		"LongSelector":        {reason: "We should match here what is too long for a URL.", selector: tooLong, pages: []string{gold, silver}, want: []string{"Gold/0"}},
		"LongOnceItIsEscaped": {reason: "We should go by the length of what is written in a URL.", selector: escaped, pages: []string{gold}, want: []string{"Gold/0"}},
		"AllNamespaces": {
			reason: "We should read of all namespaces where the claim is offered the classes of each.", selector: labels.Everything(),
			from: v1beta1.FromAll, namespaced: true, namespace: "team", pages: []string{`"namespace":"other"`}, want: []string{"Gold/other/0"},
		},
		"OwnNamespace": {
			reason: "We should read of no namespace whose classes the claim cannot get.", local: true, namespaced: true, namespace: "team", selector: labels.Everything(),
			pages: []string{`"namespace":"team"`}, path: "/apis/example.org/v1/namespaces/team/golds", want: []string{"Gold/team/0"},
		},
		"NoNamespace": {reason: "We should read nothing for a claim that is in no namespace, and can get a class of its own alone.", local: true, namespaced: true, selector: labels.Everything()},
		"ClusterScoped": {
			reason: "We should read of the cluster where classes are in no namespace.", local: true, namespace: "team", selector: labels.Everything(),
			pages: []string{`"labels":{}`}, want: []string{"Gold/0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, q := pages, r.URL.Query()
				pages++
				assert.Equal(t, cmp.Or(tc.path, "/apis/example.org/v1/golds"), r.URL.Path, tc.reason)
				assert.Equal(t, "500", q.Get("limit"), "We should ask for a page at a time.")
				assert.Equal(t, tc.query, q.Get("labelSelector"), tc.reason)
				if page > 0 {
					assert.Equal(t, fmt.Sprint("page-", page), q.Get("continue"), "We should ask for the next page.")
				}
				next := ""
				if page+1 < len(tc.pages) {
					next = fmt.Sprintf(`"continue":"page-%d"`, page+1)
				}
				w.Header().Set("Content-Type", "application/json")
				_, err := fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{%s},"items":[{"metadata":{"name":"%d",%s}}]}`, next, page, tc.pages[page])
				assert.NoError(t, err)
			}))
			defer server.Close()
			client, err := newClassClient(&rest.Config{Host: server.URL, QPS: -1})
			require.NoError(t, err)
			golds := controllertest.NewClassKind("golds.example.org", "Gold")
			golds.Namespaced = tc.namespaced
			form := v1beta1.ObjectReference
			if tc.local {
				form = v1beta1.LocalObjectReference
			}
			r := newRegistration(nil, nil, cluster.Resolver{}, client)
			claimKind := selector.NewClaimKind(&v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{
				Reference: v1beta1.Reference{Form: form},
				Classes:   v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: tc.from}},
				Choice:    v1beta1.Choice{Strategy: v1beta1.Random},
			}})
			asking := claim.Claim{Namespace: tc.namespace, Selector: tc.selector}

			view, err := r.Live(t.Context(), selector.NewView(claimKind, []*inventory.Classes{controllertest.NewClasses(golds, nil)}), asking)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, len(tc.pages), pages, tc.reason)
			assert.Equal(t, tc.want, classesOf(view), tc.reason)
			decision, err := new(selector.Decider).Decide(t.Context(), view, claim.Intake{Claim: asking}, selector.Explain)
			require.NoError(t, err)
			assert.Equal(t, len(tc.want) > 0, decision.Class != nil, "We should be able to choose among what was read.")
		})
	}
}

func TestLiveSaysNoURL(t *testing.T) {
	refused := errors.New("connection refused")
	client, err := newClassClient(&rest.Config{Host: "http://nowhere", QPS: -1, Transport: answers(func(*http.Request) (*http.Response, error) { return nil, refused })})
	require.NoError(t, err)
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	golds.Namespaced = true
	r := newRegistration(nil, nil, cluster.Resolver{}, client)
	claimKind := selector.NewClaimKind(&v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{Reference: v1beta1.Reference{Form: v1beta1.LocalObjectReference}}})
	asked, err := labels.Parse("tier in (" + strings.Repeat("x", 63) + ")")
	require.NoError(t, err)
	_, err = r.Live(t.Context(), selector.NewView(claimKind, []*inventory.Classes{controllertest.NewClasses(golds, nil)}), claim.Claim{Namespace: "team", Selector: asked})
	require.ErrorIs(t, err, refused)
	require.EqualError(t, err, `cannot list the classes of "golds.example.org" in namespace "team": connection refused`, "We should say what was asked, and the cause.")
}

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
				_, err := r.ClaimKind(ctx, fmt.Sprint("forged", i, ".example.org"))
				count(err)
			})
			all.Go(func() {
				_, err := r.ClassKind(ctx, fmt.Sprint("forged", i, ".example.org"))
				count(err)
			})
			all.Go(func() {
				_, err := r.Namespace(ctx, fmt.Sprint("forged", i))
				count(err)
			})
		}
		all.Wait()
		assert.EqualValues(t, v1beta1.MaxRegistrationReads, h.asked.Load(), "We should not ask for whatever somebody makes up all at once.")
		assert.EqualValues(t, v1beta1.MaxWaitingRegistrationReads, late.Load(), "We should have so many wait.")
		assert.EqualValues(t, 300-v1beta1.MaxWaitingRegistrationReads, refused.Load(), "We should tell the others at once.")
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
		"RegisteredAgain":       {"We should find what is registered again, though we have seen it deleted.", true, has(name), true, nil},
		"NotPermitted":          {"We should not say that there is none when we may not look.", false, fails(forbidden), false, forbidden},
		"Uninstalled":           {"We should block no claim of a kind that we have seen deleted once our rights are gone, too.", true, fails(forbidden), false, nil},
		"AccountDeleted":        {"We should block no claim of a kind that we have seen deleted once nobody knows us any more.", true, fails(apierrors.NewUnauthorized("")), false, nil},
		"DeletedAndNotAnswered": {"We should not say that there is none when we could not ask, though we have seen it deleted: it may be there again.", true, fails(refused), false, refused},
		"Registered":            {"We should find what was registered a moment ago.", false, has(other, name), true, nil},
		"NotRegistered":         {"We should take the API server's word that there is none.", false, has(other), false, nil},
		"NotAnswered":           {"We should not say that there is none when we could not ask.", false, fails(refused), false, refused},
	} {
		t.Run(tcName, func(t *testing.T) {
			r := newRegistration(&controllertest.Cached{}, tc.api, cluster.Resolver{}, nil)
			if tc.deleted {
				_, err := r.reconcileClaimKind(t.Context(), name)
				require.NoError(t, err)
			}
			got, err := r.ClaimKind(t.Context(), name)
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
		"NotRegistered": {reason: "We should take the API server's word that it is registered no more, whatever we watch.", client: &controllertest.Cached{}, watched: watched("5e1f")},
		"NotHeardOf":    {reason: "We should ask the API server for one that we have not heard of.", client: &controllertest.Cached{}, api: known, want: want{kind: "Gold"}},
		"NotHeardOfNorAnswered": {
			reason: "We should not say that it is not registered because we have not heard of it.",
			client: &controllertest.Cached{}, api: &controllertest.Cached{Err: refused},
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"HeardOf": {reason: "We should not ask the API server for what we know.", api: &controllertest.Cached{Err: refused}, watched: watched("5e1f"), want: want{kind: "Watched", namespaced: true}},
		"NotAnswered": {
			reason: "We should not say that it is not registered when we could not ask.",
			client: &controllertest.Cached{Err: refused}, watched: watched("5e1f"),
			want: want{err: `cannot get class kind "golds.example.org": connection refused`},
		},
		"Watched": {
			reason:  "We should not look up a resource that we watch.",
			watched: watched("5e1f"), answers: down, want: want{kind: "Watched", namespaced: true},
		},
		"WatchedBefore": {reason: "We should look up the resource of a registration that was deleted and made again.", watched: watched("c0ffee"), want: want{kind: "Gold"}},
		"NotWatched":    {reason: "We should look up a resource that we do not watch yet.", watched: unfollowed(cluster.ErrNotInstalled), want: want{kind: "Gold"}},
		"Unknown":       {reason: "We should look up a resource that we have not heard of.", want: want{kind: "Gold"}},
		"NotInstalled":  {reason: "We should say that there are no classes of a kind that is not installed.", answers: map[string]any{}},
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
		return newRegistration(nil, api, cluster.Resolver{}, nil).Namespace(t.Context(), "team")
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
		kind      *inventory.ClassKind // metadataOnly, unless set
		namespace string
		answers   map[string]any
		want      want
	}{
		"Metadata":   {reason: "We should read the metadata of a class, where they have its mark.", answers: map[string]any{one: json.RawMessage(partial)}, want: want{found: true}},
		"Object":     {reason: "We should read the whole class, where a field is its mark.", kind: whole, answers: map[string]any{one: json.RawMessage(object)}, want: want{found: true}},
		"Namespaced": {reason: "We should read a class in its namespace.", namespace: "aws", answers: map[string]any{oneOfAWS: json.RawMessage(partial)}, want: want{found: true}},
		"NotThere":   {reason: "We should say that there is none."},
		"Listed":     {reason: "We should list the one class that we may not get.", answers: map[string]any{one: forbidden, listed: partials}, want: want{found: true}},
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
		"ForbiddenToList": {reason: "We should not say that there is none when we may not look.", answers: map[string]any{one: forbidden, listed: forbidden}, want: want{err: "Forbidden"}},
		"OutOfService": {
			reason:  "We should not say that there is none when nobody answers, and not ask in another way.",
			answers: map[string]any{one: unavailable, listed: partials}, want: want{err: "ServiceUnavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := newClassClient(controllertest.NewAPIServer(t, tc.answers))
			require.NoError(t, err)
			object, class, err := newRegistration(nil, nil, cluster.Resolver{}, client).Class(t.Context(), cmp.Or(tc.kind, metadataOnly), tc.namespace, "a")
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
