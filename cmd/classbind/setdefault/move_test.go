package setdefault

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
)

var (
	errLost        = &url.Error{Op: "Patch", URL: "https://cluster", Err: errors.New("connection reset by peer")}
	errUnavailable = apierrors.NewServiceUnavailable("the server is going away")
	errRefused     = apierrors.NewForbidden(schema.GroupResource{Group: "test", Resource: "as"}, "new", errors.New("not this one"))
)

// fault is what happens to a write that is not a dry run.
type fault struct {
	// stored reports whether the write is stored in spite of the error.
	stored bool
	err    error
}

// TestMove moves the default from old to new while answers of the API server get lost, which a real one does not do on demand.
func TestMove(t *testing.T) {
	interrupt := func(cancel func(), _ clienttesting.ObjectTracker) { cancel() }
	moved := []string{"as.test/old: no longer the default for claims.test", "as.test/new: the default for claims.test"}
	putBack := []string{"as.test/old: no longer the default for claims.test", "as.test/old: the default for claims.test again"}
	for name, tc := range map[string]struct {
		reason string
		// faults of the first writes, in order, by class; later writes have none.
		faults map[string][]fault
		// then is run after the first write of a class.
		then    map[string]func(cancel func(), classes clienttesting.ObjectTracker)
		timeout time.Duration
		marked  string
		out     []string
		err     []string // its parts; none for success
	}{
		"NoFault": {reason: "We should move the default.", marked: "new", out: moved},
		"LostUnmark": {
			reason: "We should go on where the answer to the first write was lost, although it was stored.",
			faults: map[string][]fault{"old": {{stored: true, err: errLost}}},
			marked: "new",
			out:    moved,
		},
		"LostMark": {
			reason: "We should succeed where the answer to the last write was lost, although it was stored.",
			faults: map[string][]fault{"new": {{stored: true, err: errLost}}},
			marked: "new",
			out:    moved,
		},
		"ShortlyUnavailable": {
			reason: "We should try again rather than leave the claim kind without a default.",
			faults: map[string][]fault{"new": {{err: errUnavailable}, {err: errLost}}},
			marked: "new",
			out:    moved,
		},
		"Unavailable": {
			reason: "We should put the former default back where the new one cannot be marked.",
			faults: map[string][]fault{"new": repeat(errUnavailable)},
			marked: "old", out: putBack,
			err: []string{"cannot mark as.test/new as the default: the server is going away\nas.test/old is the default again"},
		},
		"Refused": {
			reason: "We should not try again what was refused.",
			faults: map[string][]fault{"new": {{err: errRefused}}},
			marked: "old",
			out:    putBack,
			err:    []string{"not this one\nas.test/old is the default again"},
		},
		"UnmarkRefused": {
			reason: "We should change nothing where the mark cannot be taken.",
			faults: map[string][]fault{"old": {{err: errRefused}}},
			marked: "old", err: []string{"cannot take the mark from as.test/old", "not this one\nnothing was changed"},
		},
		"PutBackUnavailable": {
			reason: "We should keep trying to put the former default back.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {err: errUnavailable}, {err: errLost}, {stored: true, err: errLost}}},
			marked: "old", out: putBack,
			err: []string{"not this one\nas.test/old is the default again"},
		},
		"PutBackReverted": {
			reason: "We should not say that the former default is one again where a webhook takes the mark away.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {}}},
			out:    []string{"as.test/old: no longer the default for claims.test"},
			err:    []string{"not this one\nas.test/old did not get its mark back: the mark does not change"},
		},
		"PutBackRefused": {
			reason: "We should say how to put the former default back where we cannot.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {err: errRefused}}},
			out:    []string{"as.test/old: no longer the default for claims.test"},
			err: []string{
				"as.test/old did not get its mark back: ",
				"; to give it back, run: kubectl patch as.test old --type merge --patch '{\"metadata\":{\"annotations\":{\"default\":\"true\"}}}'",
			},
		},
		"PutBackNeverAvailable": {
			reason: "We should not try for ever.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": append([]fault{{stored: true}}, repeat(errUnavailable)...)},
			out:    []string{"as.test/old: no longer the default for claims.test"},
			err:    []string{"as.test/old did not get its mark back: timed out after 2m0s: the server is going away; to give it back, run: kubectl"},
		},
		"DeletedMeanwhile": {
			reason: "We should say that the former default was deleted.",
			faults: map[string][]fault{"new": {{err: errRefused}}},
			then: map[string]func(func(), clienttesting.ObjectTracker){"old": func(_ func(), c clienttesting.ObjectTracker) {
				_ = c.Delete(classesOfA, "", "old")
			}},
			out: []string{"as.test/old: no longer the default for claims.test"},
			err: []string{"as.test/old did not get its mark back: it was deleted meanwhile"},
		},
		"InterruptedBetween": {
			reason: "We should put the former default back when we are interrupted.",
			then:   map[string]func(func(), clienttesting.ObjectTracker){"old": interrupt},
			marked: "old", out: putBack,
			err: []string{"interrupted\nas.test/old is the default again"},
		},
		"InterruptedAfter": {
			reason: "We should not put back what was moved when we are interrupted.",
			then:   map[string]func(func(), clienttesting.ObjectTracker){"new": interrupt},
			marked: "new", out: moved,
			err: []string{"interrupted; the marks are set, but classbind has not confirmed it"},
		},
		"InterruptedInDoubt": {
			reason: "We should look whether the last write was stored before we put anything back.",
			faults: map[string][]fault{"new": {{stored: true, err: errLost}}},
			then:   map[string]func(func(), clienttesting.ObjectTracker){"new": interrupt},
			marked: "new", out: moved,
			err: []string{"interrupted; the marks are set, but classbind has not confirmed it"},
		},
		"TimedOut": {
			reason: "We should put the former default back when time is over.", timeout: time.Second,
			faults: map[string][]fault{"new": repeat(errUnavailable)},
			marked: "old", out: putBack,
			err: []string{"timed out after 1s: cannot mark as.test/new as the default: the server is going away\nas.test/old is the default again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				writes := map[string]int{}
				classes := newFakeClasses(func(class string, store func() runtime.Object, c clienttesting.ObjectTracker) (stored runtime.Object, err error) {
					n := writes[class]
					writes[class]++
					f := fault{stored: true}
					if n < len(tc.faults[class]) {
						f = tc.faults[class][n]
					}
					switch {
					case f.stored:
						stored = store()
					case f.err == nil: // A webhook reverts it.
						stored = fakeClass(class, false)
					}
					if then := tc.then[class]; then != nil && n == 0 {
						then(cancel, c)
					}
					return stored, f.err
				})
				m, out := newFakeMover(classes, fakeRegistrations{})
				m.options.timeout = cmp.Or(tc.timeout, m.options.timeout)
				err := m.run(ctx)
				if tc.err == nil {
					require.NoError(t, err, tc.reason)
				}
				for _, part := range tc.err {
					require.ErrorContains(t, err, part, tc.reason)
				}
				list, err := classes.Resource(classesOfA).List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				var marked []string
				for _, u := range list.Items {
					if u.GetAnnotations()["default"] == "true" {
						marked = append(marked, u.GetName())
					}
				}
				assert.Equal(t, tc.marked, strings.Join(marked, " "), tc.reason)
				assert.Equal(t, strings.Join(tc.out, "\n"), strings.TrimSpace(out.String()), "We should say what was done.")
			})
		})
	}
}

// newFakeMover moves the default to new.
func newFakeMover(classes *dynamicfake.FakeDynamicClient, registrations fakeRegistrations) (m *mover, out *strings.Builder) {
	out = &strings.Builder{}
	return &mover{
		cluster: &cluster{Cluster: &world.Cluster{API: registrations, Kinds: fakeResources{}}, classes: classes, marks: classes},
		options: &options{claimKinds: []string{"claims.test"}, timeout: 2 * time.Minute, dryRun: connect.NoDryRun, output: "table"},
		name:    connect.Name{Kind: "A", Name: "new"}, out: out, progress: io.Discard,
	}, out
}

var classesOfA = schema.GroupVersionResource{Group: "test", Version: "v1", Resource: "as"}

// newFakeClasses has each write that is not a dry run be stored by write, which gets the name of the class.
func newFakeClasses(
	write func(class string, store func() runtime.Object, classes clienttesting.ObjectTracker) (runtime.Object, error),
) *dynamicfake.FakeDynamicClient {
	fake := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{classesOfA: "AList"}, fakeClass("old", true), fakeClass("new", false), fakeClass("third", false))
	fake.PrependReactor("patch", "as", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		if len(patch.PatchOptions.DryRun) > 0 {
			return true, fakeClass(patch.GetName(), strings.Contains(string(patch.GetPatch()), "true")), nil
		}
		stored, err := write(patch.GetName(), func() runtime.Object {
			_, stored, err := clienttesting.ObjectReaction(fake.Tracker())(action)
			utilruntime.Must(err)
			return stored
		}, fake.Tracker())
		return true, stored, err
	})
	return fake
}

// stores every write.
func stores(_ string, store func() runtime.Object, _ clienttesting.ObjectTracker) (runtime.Object, error) {
	return store(), nil
}

func TestOvertaken(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(clienttesting.ObjectTracker) error
		want   string
	}{
		"Moved": {"We should name the class that another command has marked.", func(c clienttesting.ObjectTracker) error {
			return errors.Join(c.Update(classesOfA, fakeClass("new", false), ""), c.Update(classesOfA, fakeClass("third", true), ""))
		}, "as.test/new was the default for claims.test, but its mark was taken meanwhile; the default is as.test/third now; to move it all the " +
			"same, run this command again"},
		"Unmarked": {"We should say that nothing is the default.", func(c clienttesting.ObjectTracker) error {
			return c.Update(classesOfA, fakeClass("new", false), "")
		}, "but its mark was taken meanwhile; no class is the default now"},
		"Deleted": {"We should say that the class is gone.", func(c clienttesting.ObjectTracker) error {
			return c.Delete(classesOfA, "", "new")
		}, "but it was deleted meanwhile; no class is the default now"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeClasses(stores)
				m, _ := newFakeMover(fake, fakeRegistrations{seen: v1beta1.DefaultClass{Kind: "A", Name: "old"}})
				begin := time.Now()
				// Between two looks, so that none sees the first of two writes alone.
				time.AfterFunc(time.Second-confirmInterval/2, func() { assert.NoError(t, tc.change(fake.Tracker())) })
				err := m.run(t.Context())
				require.ErrorContains(t, err, tc.want, tc.reason)
				assert.Equal(t, exit.Found, exit.Status(err), "We should say that this is no failure.")
				assert.LessOrEqual(t, time.Since(begin), time.Second+2*confirmInterval, "We should not wait for what will not come.")
			})
		})
	}
}

// TestKilledBetween ends a command after its first write, and runs it again.
func TestKilledBetween(t *testing.T) {
	killed := false
	fake := newFakeClasses(func(_ string, store func() runtime.Object, _ clienttesting.ObjectTracker) (runtime.Object, error) {
		stored := store()
		if !killed {
			killed = true
			goruntime.Goexit()
		}
		return stored, nil
	})
	m, out := newFakeMover(fake, fakeRegistrations{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.run(t.Context())
	}()
	<-ended
	require.True(t, killed)
	require.Empty(t, out.String(), "It should have ended before it could say so.")

	m, out = newFakeMover(fake, fakeRegistrations{})
	require.NoError(t, m.run(t.Context()), "We should go on where no class is the default.")
	assert.Equal(t, "as.test/new: the default for claims.test\n", out.String())
}

func repeat(err error) []fault { return slices.Repeat([]fault{{err: err}}, 1000) }

func fakeClass(name string, marked bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test/v1", "kind": "A"}}
	u.SetName(name)
	if marked {
		u.SetAnnotations(map[string]string{"default": "true"})
	}
	return u
}

// fakeRegistrations are one claim kind, whose default is the new one already, and one class kind.
type fakeRegistrations struct {
	client.Reader
	seen v1beta1.DefaultClass // the default in the status, if it is not the new one
}

func (f fakeRegistrations) claimKind() v1beta1.ClaimKind {
	return v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: "claims.test"},
		Status: v1beta1.ClaimKindStatus{
			Defaults:   []v1beta1.DefaultClass{cmp.Or(f.seen, v1beta1.DefaultClass{Kind: "A", Name: "new"})},
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionSingleDefault, Status: metav1.ConditionTrue}},
		},
	}
}

func (f fakeRegistrations) Get(ctx context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if k, ok := object.(*v1beta1.ClaimKind); ok {
		*k = f.claimKind()
	}
	return ctx.Err()
}

func (f fakeRegistrations) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1beta1.ClaimKindList:
		l.Items = []v1beta1.ClaimKind{f.claimKind()}
	case *v1beta1.ClassKindList:
		l.Items = []v1beta1.ClassKind{{
			ObjectMeta: metav1.ObjectMeta{Name: "as.test"},
			Spec: v1beta1.ClassKindSpec{
				ClaimKinds: []v1beta1.ClaimKindLink{{Name: "claims.test"}},
				Default:    v1beta1.Source{Annotation: "default"},
				Weight:     v1beta1.Source{Annotation: "weight"},
			},
		}}
	}
	return ctx.Err()
}

type fakeResources struct{ world.Kinds }

func (fakeResources) Resolve(context.Context, string, string, ...string) (lookup.Resource, error) {
	return lookup.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "test", Version: "v1", Kind: "A"}}, nil
}

// TestSlowWrite has an API server that takes longer for a write than reads may.
func TestSlowWrite(t *testing.T) {
	const forReads = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * forReads):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "test/v1", "kind": "A", "metadata": {"name": "new"}}`))
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL, Timeout: forReads})
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	object.SetName("new")
	err = c.setMark(t.Context(), newStoredClass(fakeKind("A", "as.test", false).ClassKind, object), nil, false)
	require.NoError(t, err, "We should know the outcome of a write.")
}

// TestRequestTimeout has an API server that accepts requests, and never answers.
func TestRequestTimeout(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() { close(ended); server.Close() })
	c, err := newCluster(&rest.Config{Host: server.URL, Timeout: 20 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.class(ctx, fakeKind("A", "as.test", false, "claims.test").ClassKind, "", "new")
	require.ErrorContains(t, err, "exceeded")
	require.NoError(t, ctx.Err(), "We should wait for a read no longer than --request-timeout.")
}
