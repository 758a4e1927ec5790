package onedefault

import (
	"context"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
)

// Sightings are what this replica has seen itself, so that it need not trust other clocks: when it first saw each write in a Lease, by its
// own monotonic clock, and which classes it saw stored. Once a class is stored with its uid, its creation is over.
type Sightings struct {
	stored *lru.Cache // of Holders

	mu sync.Mutex // guards all below
	// leases by name
	leases map[string]sighting
	// counts of the Leases of each share
	counts map[share]int
}

// sighting of a Lease.
type sighting struct {
	share share // the zero value if it counts for none
	// first sighting of each write that the Lease records, by its id
	first map[string]time.Time
}

// share is whose Leases count together: the kind and the namespace of their holders.
type share struct{ kind, namespace string }

// shareOf a Lease. There are few Leases for all partitions and namespaces, which do not count, as there are few ClaimKinds.
func shareOf(name string, l *Lease) share {
	if l.Holder.UID == "" || strings.HasPrefix(name, clusterPrefix) {
		return share{}
	}
	return share{l.Holder.Kind, l.Holder.Namespace}
}

// NewSightings returns empty Sightings.
func NewSightings() *Sightings {
	return &Sightings{stored: lru.New(v1beta1.MaxStoredDefaults), leases: map[string]sighting{}, counts: map[share]int{}}
}

// Stored notes that a class was seen stored, marked default.
func (s *Sightings) Stored(h Holder) { s.stored.Add(h, nil) }

// see notes the writes that a Lease records, and returns when each was first seen. It forgets the writes that the Lease no longer records.
func (s *Sightings) see(name string, l *Lease, now time.Time) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.leases[name].first
	s.forget(name)
	first, times := make(map[string]time.Time, len(l.Pending)), make([]time.Time, len(l.Pending))
	for i, p := range l.Pending {
		at, ok := before[p.ID]
		if !ok {
			at = now
		}
		first[p.ID], times[i] = at, at
	}
	of := shareOf(name, l)
	s.leases[name] = sighting{of, first}
	if of != (share{}) {
		s.counts[of]++
	}
	return times
}

// gone notes that a Lease is gone.
func (s *Sightings) gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(name)
}

// forget a Lease. The caller holds mu.
func (s *Sightings) forget(name string) {
	of := s.leases[name].share
	delete(s.leases, name)
	if s.counts[of]--; s.counts[of] <= 0 {
		delete(s.counts, of)
	}
}

// mayTake reports whether the share of the new holder of a Lease has room for it. It asks about Leases of other shares, too: otherwise two
// shares could grow by taking each other's.
func (s *Sightings) mayTake(name string, l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := shareOf(name, l)
	return of == share{} || of == s.leases[name].share || s.counts[of] < v1beta1.MaxSeatLeases
}

// Quiet returns the names of the Leases that record no write, or none that was not seen for this long, in random order.
func (s *Sightings) Quiet(window time.Duration) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.leases {
		quiet := true
		for _, at := range l.first {
			quiet = quiet && time.Since(at) >= window
		}
		if quiet {
			names = append(names, name)
		}
	}
	return names
}

// Watch the Leases until the context ends.
func (s *Sightings) Watch(ctx context.Context, leases coordinationclient.LeaseInterface) {
	others := func(o metav1.ListOptions) metav1.ListOptions { // all but the leader's, which is written every two seconds
		o.FieldSelector = fields.OneTermNotEqualSelector(metav1.ObjectNameField, v1beta1.LeaderLease).String()
		return o
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return leases.List(ctx, others(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return leases.Watch(ctx, others(o))
		},
	}, leases)
	// A real store would hold all Leases a second time.
	store := &cache.FakeCustomStore{AddFunc: s.watched, UpdateFunc: s.watched, DeleteFunc: s.deleted, ReplaceFunc: s.listed}
	cache.NewReflectorWithOptions(lw, &coordinationv1.Lease{}, store, cache.ReflectorOptions{Name: "leases"}).RunWithContext(ctx)
}

// watched sees a Lease, but skips a malformed one: the request that reads it gets the error.
func (s *Sightings) watched(object any) error {
	_ = recovered.Do(func() error { // A panic is logged, and hides no other Lease.
		if l, ok := object.(*coordinationv1.Lease); ok && ClaimKindOf(l.Name) != "" {
			if lease, err := decode(l); err == nil {
				s.see(l.Name, &lease, time.Now())
			}
		}
		return nil
	})
	return nil
}

func (s *Sightings) deleted(object any) error {
	if l, ok := object.(*coordinationv1.Lease); ok {
		s.gone(l.Name)
	}
	return nil
}

// listed sees all Leases that there are, and forgets all others.
func (s *Sightings) listed(objects []any, _ string) error {
	names := sets.New[string]()
	for _, object := range objects {
		if l, ok := object.(*coordinationv1.Lease); ok {
			names.Insert(l.Name)
		}
	}
	s.mu.Lock()
	for name := range s.leases {
		if !names.Has(name) {
			s.forget(name)
		}
	}
	s.mu.Unlock()
	for _, object := range objects {
		_ = s.watched(object) // It has no errors.
	}
	return nil
}
