package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
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

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

func newReads() *reads {
	return &reads{next: map[readKey]*sharedRead{}, busy: map[readKey]bool{}}
}

func newClassKind(name, kind string) *selector.ClassKind {
	return selector.NewClassKind(&v1alpha1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClassKindSpec{
			ClaimKinds: []string{"claims.example.org"},
			Default:    v1alpha1.Source{Annotation: "default"}, Weight: v1alpha1.Source{Annotation: "weight"},
		},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}, false)
}

// newClasses without labels, each with its annotations, which are given as key, value.
func newClasses(kind *selector.ClassKind, classes map[string][]string) *selector.Classes {
	var all []*selector.Class
	for name, annotations := range classes {
		m := &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		all = append(all, kind.NewClass(m, nil))
	}
	return selector.NewClasses(kind, all)
}

// heldReads end when the test lets them.
type heldReads struct {
	mu      sync.Mutex
	started int
	results chan error
}

func newHeldReads() *heldReads { return &heldReads{results: make(chan error)} }

// read returns as many classes as reads had started.
func (h *heldReads) read(ctx context.Context, k readKey) (*selector.Classes, error) {
	h.mu.Lock()
	h.started++
	n := h.started
	h.mu.Unlock()
	select {
	case err := <-h.results:
		if err != nil {
			return nil, err
		}
		classes := map[string][]string{}
		for i := range n {
			classes[fmt.Sprint(i)] = nil
		}
		return newClasses(k.kind, classes), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *heldReads) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started
}

// answer to one reader: the number of the read that it shared.
type answer struct {
	read int
	err  error
}

func ask(ctx context.Context, r *reads, k readKey, h *heldReads) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		x, err := r.do(ctx, k, h.read)
		a := answer{err: err}
		if x != nil {
			a.read = x.Len()
		}
		c <- a
	}()
	return c
}

func assertNothingLeft(t *testing.T, r *reads) {
	t.Helper()
	synctest.Wait()
	assert.Empty(t, r.next, "We should forget reads that are done.")
	assert.Empty(t, r.busy, "We should forget reads that are done.")
}

// In a bubble of synctest a goroutine that is left fails the test, and Wait
// returns when every goroutine waits for another: no test here depends on time.

func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newReads(), newHeldReads()
		k := readKey{newClassKind("golds.example.org", "Gold"), "tier=gold"}

		first := ask(t.Context(), r, k, h)
		synctest.Wait()
		require.Equal(t, 1, h.count(), "We should begin the first read at once.")

		var later []<-chan answer
		for range 10 {
			later = append(later, ask(t.Context(), r, k, h))
			synctest.Wait()
		}
		require.Equal(t, 1, h.count(), "We should not read while an equal read is under way.")

		h.results <- nil
		synctest.Wait()
		assert.Equal(t, answer{read: 1}, <-first, "We should give the first its own read.")
		require.Equal(t, 2, h.count(), "We should read once more for all who came meanwhile.")
		for _, c := range later {
			require.Empty(t, c, "We should not give a read to those who came after it began.")
		}

		h.results <- nil
		synctest.Wait()
		for _, c := range later {
			assert.Equal(t, answer{read: 2}, <-c, "We should share the read that began after all had come.")
		}
		assert.Equal(t, 2, h.count(), "We should not read for nobody.")
		assertNothingLeft(t, r)

		again := ask(t.Context(), r, k, h)
		synctest.Wait()
		h.results <- nil
		assert.Equal(t, answer{read: 3}, <-again, "We should not keep what was read.")
		assertNothingLeft(t, r)
	})
}

func TestReadsOfOthersAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newReads(), newHeldReads()
		golds, silvers := newClassKind("golds.example.org", "Gold"), newClassKind("silvers.example.org", "Silver")
		var all []<-chan answer
		for _, k := range []readKey{{golds, "tier=gold"}, {golds, ""}, {silvers, "tier=gold"}} {
			all = append(all, ask(t.Context(), r, k, h))
		}
		synctest.Wait()
		require.Equal(t, len(all), h.count(), "We should read at once what nobody reads.")
		for range all {
			h.results <- nil
		}
		for _, c := range all {
			require.NoError(t, (<-c).err)
		}
		assertNothingLeft(t, r)
	})
}

func TestReadsOutliveTheirReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newReads(), newHeldReads()
		k := readKey{newClassKind("golds.example.org", "Gold"), ""}
		hasty := func() (<-chan answer, context.CancelCauseFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ask(ctx, r, k, h), cancel
		}
		gone := errors.New("the API server hung up")

		first, cancelFirst := hasty()
		synctest.Wait()
		second, cancelSecond := hasty()
		synctest.Wait()
		third := ask(t.Context(), r, k, h)
		synctest.Wait()

		cancelFirst(gone)
		cancelSecond(gone)
		for _, c := range []<-chan answer{first, second} {
			a := <-c
			require.ErrorIs(t, a.err, gone, "We should not keep those waiting who cannot wait any longer.")
			require.ErrorContains(t, a.err, `cannot list the classes of "golds.example.org": `, "We should say what they waited for.")
		}
		h.results <- nil
		synctest.Wait()
		h.results <- nil
		assert.Equal(t, answer{read: 2}, <-third, "We should go on with what others wait for.")
		assertNothingLeft(t, r)
	})
}

func TestReadsShareTheirError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newReads(), newHeldReads()
		k := readKey{newClassKind("golds.example.org", "Gold"), ""}
		first := ask(t.Context(), r, k, h)
		synctest.Wait()
		second, third := ask(t.Context(), r, k, h), ask(t.Context(), r, k, h)
		synctest.Wait()

		h.results <- nil
		failure := errors.New("connection refused")
		h.results <- failure
		require.NoError(t, (<-first).err, "We should not give the first another's error.")
		require.ErrorIs(t, (<-second).err, failure, "We should give the error to all who share the read.")
		require.ErrorIs(t, (<-third).err, failure, "We should give the error to all who share the read.")
		assertNothingLeft(t, r)
	})
}

func TestReadsHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newReads(), newHeldReads()
		start := time.Now()
		a := <-ask(t.Context(), r, readKey{newClassKind("golds.example.org", "Gold"), ""}, h)
		require.ErrorIs(t, a.err, context.DeadlineExceeded, "We should give up on an API server that does not answer.")
		assert.Equal(t, v1alpha1.WebhookTimeoutSeconds*time.Second, time.Since(start), "We should not read for longer than any claim waits.")
		assertNothingLeft(t, r)
	})
}

// TestLive reads a kind that is as it should be, and beside it one that is not.
func TestLive(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "silvers"}, "", errors.New("no rule"))
	unavailable := apierrors.NewServiceUnavailable("no endpoints")
	golds, silvers := newClassKind("golds.example.org", "Gold"), newClassKind("silvers.example.org", "Silver")
	known := newClasses(silvers, map[string][]string{"known": nil})

	type want struct {
		classes []string
		err     string
	}
	for name, tc := range map[string]struct {
		reason  string
		code    int
		silvers *registered
		want    want
	}{
		"Answered": {
			reason: "We should take what the API server has now.",
			code:   http.StatusOK, silvers: &registered{watch: &watch{kind: silvers}, classes: known, synced: true},
			want: want{classes: []string{"Gold/new", "Silver/new"}},
		},
		"Uninstalled": {
			reason: "We should take a kind whose CRD went a moment ago for one without classes.",
			code:   http.StatusNotFound, silvers: &registered{watch: &watch{kind: silvers}, classes: known, synced: true},
			want: want{classes: []string{"Gold/new"}},
		},
		"JustRefused": {
			reason: "We should not say that there is no class when the API server would not tell.",
			code:   http.StatusServiceUnavailable, silvers: &registered{watch: &watch{kind: silvers}, classes: known, synced: true},
			want: want{err: `cannot list the classes of "silvers.example.org": `},
		},
		"StaleUnavailable": {
			reason: "We should keep the last known classes of a kind that is out of service, and block no claim.",
			code:   http.StatusServiceUnavailable, silvers: &registered{watch: &watch{kind: silvers, answers: answers{err: unavailable}}, classes: known, synced: true},
			want: want{classes: []string{"Gold/new", "Silver/known"}},
		},
		"StaleForbidden": {
			reason: "We should keep the last known classes of a kind that we may not list any more, and block no claim.",
			code:   http.StatusForbidden, silvers: &registered{watch: &watch{kind: silvers, answers: answers{err: forbidden}}, classes: known, synced: true},
			want: want{classes: []string{"Gold/new", "Silver/known"}},
		},
		"RefusedSinceItChanged": {
			reason: "We should keep the last known classes of a kind that was registered anew and then refused, and block no claim.",
			code:   http.StatusForbidden, silvers: &registered{watch: &watch{kind: silvers, answers: answers{err: forbidden}}, classes: known},
			want: want{classes: []string{"Gold/new", "Silver/known"}},
		},
		"UnavailableSinceItChanged": {
			reason: "We should keep the last known classes of a kind that was registered anew while it is out of service, and block no claim.",
			code:   http.StatusServiceUnavailable, silvers: &registered{watch: &watch{kind: silvers, answers: answers{err: unavailable}}, classes: known},
			want: want{classes: []string{"Gold/new", "Silver/known"}},
		},
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
			r := &Registration{classes: client, reads: *newReads(), kinds: map[string]*registered{
				golds.Name:   {watch: &watch{kind: golds}, classes: newClasses(golds, nil), synced: true},
				silvers.Name: tc.silvers,
			}}
			claimKind := selector.NewClaimKind(&v1alpha1.ClaimKind{Spec: v1alpha1.ClaimKindSpec{ClassRefFormat: v1alpha1.ObjectReference}})
			asked, err := labels.Parse("tier in (gold,silver)")
			require.NoError(t, err)

			snapshot := selector.NewView(claimKind, []*selector.Classes{newClasses(golds, nil), known})
			view, err := r.Live(t.Context(), snapshot, selector.Claim{Selector: asked})
			if tc.want.err != "" {
				require.ErrorContains(t, err, tc.want.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			var names []string
			for _, x := range view.Classes {
				for _, c := range x.All() {
					names = append(names, c.String())
				}
			}
			assert.Equal(t, tc.want.classes, names, tc.reason)
			assert.Same(t, claimKind, view.Kind, "We should decide by the claim kind with which we began.")
		})
	}
}

func TestRegistered(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, tc := range map[string]struct {
		reason  string
		api     *cached
		deleted bool // seen to be
		want    bool
		err     error
	}{
		"RegisteredAgain": {
			reason:  "We should find what is registered again, though we have seen it deleted.",
			deleted: true, api: &cached{kinds: []v1alpha1.ClaimKind{*newClaimKind("claims.example.org")}}, want: true,
		},
		"NotPermitted": {
			reason: "We should not say that there is none when we may not look.",
			api:    &cached{err: forbidden}, err: forbidden,
		},
		"Uninstalled": {
			reason:  "We should block no claim of a kind that we have seen deleted once our rights are gone, too.",
			deleted: true, api: &cached{err: forbidden},
		},
		"AccountDeleted": {
			reason:  "We should block no claim of a kind that we have seen deleted once nobody knows us any more.",
			deleted: true, api: &cached{err: apierrors.NewUnauthorized("")},
		},
		"DeletedAndNotAnswered": {
			reason:  "We should not say that there is none when we could not ask, though we have seen it deleted: it may be there again.",
			deleted: true, api: &cached{err: refused}, err: refused,
		},
		"Registered": {
			reason: "We should find what was registered a moment ago.",
			api:    &cached{kinds: []v1alpha1.ClaimKind{*newClaimKind("others.example.org"), *newClaimKind("claims.example.org")}}, want: true,
		},
		"NotRegistered": {
			reason: "We should take the API server's word that there is none.",
			api:    &cached{kinds: []v1alpha1.ClaimKind{*newClaimKind("others.example.org")}},
		},
		"NotAnswered": {
			reason: "We should not say that there is none when we could not ask.",
			api:    &cached{err: refused}, err: refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Registration{api: tc.api, reader: &cached{}, Inventory: selector.NewInventory()}
			if tc.deleted {
				_, err := r.reconcileClaimKind(t.Context(), "claims.example.org")
				require.NoError(t, err)
			}
			got, err := r.Registered(t.Context(), "claims.example.org")
			require.ErrorIs(t, err, tc.err, tc.reason)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}
