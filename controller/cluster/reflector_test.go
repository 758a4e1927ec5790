package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/controller/controllertest"
)

// noted is a store that notes the names of objects, and panics at one of them.
type noted struct {
	poison string
	names  chan []string
}

func (n *noted) note(names ...string) {
	if slices.Contains(names, n.poison) {
		panic("poison")
	}
	n.names <- names
}

func (n *noted) Read(o any) (string, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return m.Name, nil
	}
	name, ok := o.(string)
	if !ok {
		return "", errors.New("no name")
	}
	return name, nil
}
func (n *noted) Put(name string)        { n.note(name) }
func (n *noted) Remove(name string)     { n.note(name) }
func (n *noted) Replace(names []string) { n.note(names...) }

var _ cache.TransformingStore = &store[string]{}

// followGolds follows golds until the test ends, in its bubble.
func followGolds(t *testing.T, n *noted, h *Health) {
	t.Helper()
	server := &controllertest.PlanServer{}
	server.Serve("gold")
	client, err := metadata.NewForConfig(&rest.Config{Host: "http://in.a.bubble", QPS: -1, Transport: server})
	require.NoError(t, err)
	o := Objects{
		Name: "golds.example.org", Client: client,
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("not reached")
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return client.Resource(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "plans"}).Watch(ctx, o)
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	Follow(ctx, o, n, h, func(error) {})
}

func TestStreamsAreTransformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := &noted{names: make(chan []string, 1)}, &Health{}
		assert.Zero(t, h.confirmed)
		followGolds(t, n, h)
		assert.Equal(t, []string{"gold"}, <-n.names, "We should hold of each object what is read of it, while others are streamed, too.")
		synctest.Wait()
		assert.Zero(t, time.Since(h.confirmed), "We should note when we last heard of the objects.")
	})
}

func TestStoreRecovers(t *testing.T) {
	n, h := &noted{poison: "bad", names: make(chan []string, 9)}, &Health{}
	s := &store[string]{ours: n, health: h, log: logr.Discard(), replaced: func() {}}
	require.ErrorContains(t, s.Replace([]any{"good", "bad"}, "1"), "panic: poison", "We should take a panic for an error.")
	assert.Zero(t, h.confirmed, "We should not say that we know the objects.")
	for _, change := range []func(any) error{s.Add, s.Update, s.Delete} {
		require.NoError(t, change("bad"), "We should return no error, which would be logged with the whole object.")
		require.NoError(t, change("good"))
		assert.Equal(t, []string{"good"}, <-n.names)
	}
	require.NoError(t, s.Add(7))
	require.ErrorContains(t, s.Replace([]any{7}, "1"), "no name")
	same, err := s.Transformer()(7)
	require.NoError(t, err)
	assert.Equal(t, 7, same, "We should have it fail where it is taken in.")
	s.UpdateResourceVersion("2")
	assert.False(t, h.confirmed.IsZero(), "We should note that the API server said that nothing happened.")
}

// TestWhyNotAnswered has an API server that does not answer a watch, or breaks it off, while a list fails with the cause.
func TestWhyNotAnswered(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	cause := apierrors.NewInternalError(errors.New("conversion webhook for example.org/v1, Kind=Gold failed"))
	for name, watch := range map[string]func(context.Context) (apiwatch.Interface, error){
		"TooManyRequests": func(context.Context) (apiwatch.Interface, error) {
			return nil, apierrors.NewTooManyRequests("initializing", 1)
		},
		"NoAnswer": func(ctx context.Context) (apiwatch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"Silent": func(context.Context) (apiwatch.Interface, error) {
			events := apiwatch.NewRaceFreeFake()
			time.AfterFunc(time.Second, func() { events.Error(&cause.ErrStatus) })
			return events, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, lists, answers := &Health{}, 0, []string(nil)
				ctx, stop := context.WithCancel(t.Context())
				Follow(ctx, Objects{
					Name: "golds.example.org", Client: &metadata.Client{},
					List:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, cause },
					Watch: func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) { return watch(ctx) },
					Why:   func(context.Context) error { lists++; return cause },
				}, &noted{}, h, func(err error) { answers = append(answers, fmt.Sprint(err)) })
				time.Sleep(time.Minute)
				synctest.Wait()
				_, err := h.LastError()
				require.ErrorContains(t, err, "conversion webhook", "We should know the cause, and not say that there is no answer yet.")
				assert.Len(t, answers, 1, "We should say so once: %q", answers)
				assert.Less(t, lists, 40, "We should not ask all the time.")
				stop()
				synctest.Wait()
			})
		})
	}
}

// TestListHasADeadline has an API server that never answers a list.
func TestListHasADeadline(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	synctest.Test(t, func(t *testing.T) {
		n, h := &noted{names: make(chan []string, 1)}, &Health{}
		start, lists := time.Now(), 0
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		Follow(ctx, Objects{
			Name: "golds.example.org",
			List: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
				if lists++; lists == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}}}, nil
			},
			Watch:  func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) { return apiwatch.NewFake(), nil },
			Client: noStreams{},
		}, n, h, func(error) {})
		assert.Equal(t, []string{"gold"}, <-n.names, "We should ask again.")
		assert.Equal(t, 2, lists)
		assert.Less(t, time.Since(start), 2*listTimeout)
	})
}

// noStreams is a client that cannot list by a watch.
type noStreams struct{}

func (noStreams) IsWatchListSemanticsUnSupported() bool { return true }

func TestObserve(t *testing.T) {
	h := &Health{}
	refused, forbidden := errors.New("connection refused"), errors.New("forbidden")
	for _, step := range []struct {
		reason string
		err    error
		want   bool
	}{
		{"It is no news that all is well.", nil, false},
		{"An error is news.", refused, true},
		{"The same error again is none.", errors.New("connection refused"), false},
		{"Another error is news.", forbidden, true},
		{"That we were stopped is none.", fmt.Errorf("cannot list: %w", context.Canceled), false},
		{"That all is well again is news.", nil, true},
	} {
		assert.Equal(t, step.want, h.Observe(step.err), step.reason)
	}
}

func TestRefusedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // For a clock that we control.
		h := &Health{}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "plans"}, "", errors.New("no rule"))
		since := func() time.Duration {
			at, _ := h.LastError()
			return time.Since(at)
		}
		h.Observe(errors.New("connection refused"))
		time.Sleep(time.Hour)
		h.Observe(forbidden)
		assert.Zero(t, since(), "We should count from the refusal, however long there was no answer before.")
		time.Sleep(time.Second)
		h.Observe(forbidden)
		assert.Equal(t, time.Second, since(), "We should count from the first refusal.")
	})
}
