package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// apiServer has ledgers as an API server does. Before each update, it calls a function that may refuse it.
type apiServer struct {
	client.Client
	updates atomic.Int64
	refuse  func() error
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1beta1.AddToScheme(scheme))
	s := &apiServer{refuse: func() error { return nil }}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID("uid")
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := s.refuse(); err != nil {
				return err
			}
			o.SetGeneration(o.GetGeneration() + 1)
			err := c.Update(ctx, o, opts...)
			if err == nil {
				s.updates.Add(1)
			}
			return err
		},
	}).Build()
	return s
}

var conflict = apierrors.NewConflict(schema.GroupResource{Resource: "ledgers"}, "x", errors.New("changed"))

func newClass(name string, capacity int) *inventory.Class {
	spec := v1beta1.ClassKindSpec{Capacity: &v1beta1.Capacity{Total: v1beta1.Source{Annotation: v1beta1.CapacityAnnotation}, Enforcement: v1beta1.Hard}}
	kind := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "classes.example.org"}, Spec: spec},
		schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Class"}, false)
	return kind.NewClass(&metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.CapacityAnnotation: fmt.Sprint(capacity)}}, nil)
}

// opened is the ledger of a class, of which so much is used.
func opened(t *testing.T, s *apiServer, c *inventory.Class, used int64) *Ledgers {
	t.Helper()
	l := &Ledgers{Client: s, Live: s, Namespace: "classbind"}
	require.NoError(t, l.Open(t.Context(), c, selector.Usage{Used: used}))
	s.updates.Store(0)
	return l
}

func TestReserveTogether(t *testing.T) {
	s, c := newAPIServer(t), newClass("gold", 50)
	l := opened(t, s, c, 10)
	other := &Ledgers{Client: s, Live: s, Namespace: "classbind"} // Another replica, which has seen nothing.
	s.refuse = func() error {
		time.Sleep(time.Millisecond) // So that the others wait.
		return nil
	}
	var got, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			replica := l
			if i%2 == 0 {
				replica = other
			}
			refusal, err := replica.Reserve(t.Context(), c, writeBy(fmt.Sprint(i)), 1, false)
			if !assert.NoError(t, err) { //nolint:testifylint // It is another goroutine.
				return
			}
			if refusal == nil {
				got.Add(1)
			} else {
				refused.Add(1)
				assert.Equal(t, InFlight, refusal.Reason, "We should say that what is in the way may come to nothing.")
			}
		})
	}
	all.Wait()
	assert.Equal(t, [2]int64{40, 60}, [2]int64{got.Load(), refused.Load()}, "We should reserve to the last place, and no more.")
	assert.Less(t, s.updates.Load(), int64(40), "Claims that wait for one ledger should share writes.")
	room := l.Room("team", c)
	assert.Equal(t, [2]int64{10, 40}, [2]int64{room.Used, room.Reserved})
}

func TestReserveOnce(t *testing.T) {
	lost := errors.New("lost")
	for name, tc := range map[string]struct {
		reason         string
		capacity, used int64
		dryRun         bool
		errs           []error
		behind         bool
		err            error
		want           *Reason
		updates        int64
	}{
		"Reserved":   {reason: "We should write once.", used: 1, updates: 1},
		"Conflict":   {reason: "We should read what another replica wrote, and write again.", used: 1, errs: []error{conflict, conflict}, updates: 1},
		"DryRun":     {reason: "We should write nothing for a dry run.", used: 1, dryRun: true},
		"DryRunFull": {reason: "We should refuse a dry run, too.", used: 5, dryRun: true, want: new(Full)},
		"Full":       {reason: "We should refuse what does not fit.", used: 5, want: new(Full)},
		"Behind":     {reason: "We should refuse nobody by what this replica has not seen yet.", used: 5, behind: true, updates: 1},
		"Lost":       {reason: "We should say that we do not know what was written.", used: 1, errs: []error{lost}, err: lost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newAPIServer(t), newClass("gold", 5)
				l := opened(t, s, c, tc.used)
				if tc.behind {
					leader := &Ledgers{Client: s, Live: s, Namespace: "classbind"}
					require.NoError(t, leader.recount(t.Context(), c, newCount(c, selector.Usage{Used: 2})))
					s.updates.Store(0)
				}
				time.Sleep(settling) // It was filled long ago.
				s.refuse = func() (err error) {
					if len(tc.errs) > 0 {
						err, tc.errs = tc.errs[0], tc.errs[1:]
					}
					return err
				}
				refusal, err := l.Reserve(t.Context(), c, writeBy("a"), 1, tc.dryRun)
				require.ErrorIs(t, err, tc.err, tc.reason)
				assert.Equal(t, tc.want == nil, refusal == nil, tc.reason)
				if tc.want != nil {
					assert.Equal(t, *tc.want, refusal.Reason, tc.reason)
				}
				assert.Equal(t, tc.updates, s.updates.Load(), tc.reason)
			})
		})
	}
	t.Run("NoLedger", func(t *testing.T) {
		s := newAPIServer(t)
		refusal, err := (&Ledgers{Client: s, Live: s}).Reserve(t.Context(), newClass("gold", 5), writeBy("a"), 1, false)
		require.NoError(t, err)
		assert.Equal(t, Closed, refusal.Reason, "We should give nothing of a class without a ledger.")
	})
}
