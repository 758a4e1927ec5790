package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// slowReads take 100 ms each, as a consistent LIST may, and hang for some kinds.
type slowReads struct {
	hang map[string]bool

	mu        sync.Mutex
	now, most int
	began     []readKey
}

func (s *slowReads) read(ctx context.Context, r *sharedRead) (*inventory.Classes, error) {
	kind := r.key.kind.Name
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.began = append(s.began, r.key)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if s.hang[kind] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(100 * time.Millisecond):
		return inventory.NewClasses(r.key.kind, nil), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// seen returns how many are under way, how many were at most, and which began.
func (s *slowReads) seen() (now, most int, began []readKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.most, slices.Clone(s.began)
}

func newSlowReads(hang ...string) (*slowReads, *reads) {
	s := &slowReads{hang: map[string]bool{}}
	for _, name := range hang {
		s.hang[name] = true
	}
	return s, newReads(s.read)
}

// claimant creates one claim that needs all these reads, and has the time of a review.
func claimant(r *reads, namespace string, keys ...readKey) <-chan error {
	c := make(chan error, 1)
	go func() { c <- claimOne(r, namespace, keys...) }()
	return c
}

func claimOne(r *reads, namespace string, keys ...readKey) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
	defer cancel()
	asked, err := r.ask(namespace, labels.Everything(), nil, keys...)
	if err != nil {
		return err
	}
	defer r.leave(namespace, asked...)
	for _, s := range asked {
		if _, err = r.wait(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// kindsOf returns kinds of n API groups.
func kindsOf(n int) (all []*inventory.ClassKind) {
	for i := range n {
		all = append(all, kindOf(fmt.Sprintf("group-%d.example.org", i), "classes"))
	}
	return all
}

func kindOf(group, plural string) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Class"}, false)
}

func keysOf(kinds []*inventory.ClassKind, text string) (keys []readKey) {
	for _, k := range kinds {
		keys = append(keys, readKey{kind: k, selector: text})
	}
	return keys
}

// TestReadsOfManyClaims has one namespace ask for 400 reads at once: 40 distinct selectors of 10 class kinds.
func TestReadsOfManyClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSlowReads()
		kinds := kindsOf(10)
		var hostile []<-chan error
		for i := range 40 {
			hostile = append(hostile, claimant(r, "hostile", keysOf(kinds, fmt.Sprint("a=", i))...))
		}
		synctest.Wait()
		now, _, _ := s.seen()
		assert.Equal(t, v1beta1.MaxLiveReadsOfNamespace, now, "We should read no more for one namespace, though nobody else asks.")

		start := time.Now()
		require.NoError(t, <-claimant(r, "honest", keysOf(kinds, "tier=gold")...), "We should read for another namespace's claim in time.")
		assert.LessOrEqual(t, time.Since(start), 400*time.Millisecond, "We should read for it as fast as if it were alone.")

		start = time.Now()
		require.NoError(t, <-claimant(r, "other", keysOf(kinds, "a=39")...), "We should not have those wait for another's turn who ask for the same.")
		assert.LessOrEqual(t, time.Since(start), 400*time.Millisecond, "We should read for it as fast as if it were alone.")

		failed := 0
		for _, c := range hostile {
			if err := <-c; err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				failed++
			}
		}
		assert.Positive(t, failed, "We should have some wait in vain who ask for more than can be read.")
		synctest.Wait()
		_, most, began := s.seen()
		assert.LessOrEqual(t, most, v1beta1.MaxLiveReads, "We should read no more at once.")
		time.Sleep(time.Minute)
		_, _, later := s.seen()
		assert.Len(t, later, len(began), "We should not read for those who have gone.")
		assertNothingLeft(t, r)
	})
}

func TestReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newSlowReads()
		kinds := kindsOf(10)
		var all []<-chan error
		for i := range 3 {
			all = append(all, claimant(r, fmt.Sprint("namespace-", i), keysOf(kinds, fmt.Sprint("a=", i))...))
			synctest.Wait()
		}
		for _, c := range all {
			require.NoError(t, <-c)
		}
		_, most, began := s.seen()
		of := map[string][]string{}
		for _, k := range began {
			of[k.selector] = append(of[k.selector], k.kind.Name)
		}
		assert.Len(t, of, 3)
		for _, names := range of {
			for i, k := range kinds { // Reads that begin together are noted in any order.
				assert.InDelta(t, i, slices.Index(names, k.Name), v1beta1.MaxLiveReadsOfNamespace-1, "We should begin the reads of one namespace in their order: %v", names)
			}
		}
		assert.LessOrEqual(t, most, v1beta1.MaxLiveReads)
		last := map[string]int{}
		for i, k := range began {
			last[k.selector] = i
		}
		assert.GreaterOrEqual(t, min(last["a=0"], last["a=1"], last["a=2"]), 18, "We should let them take turns, so that all end together: %v", began)
		assertNothingLeft(t, r)
	})
}

// TestReadsOfAGroupThatHangs has two namespaces ask for classes of two kinds whose API server never answers.
func TestReadsOfAGroupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds := kindsOf(10)
		bad := []*inventory.ClassKind{kindOf("bad.example.org", "golds"), kindOf("bad.example.org", "silvers")}
		s, r := newSlowReads(bad[0].Name, bad[1].Name)
		var stuck []<-chan error
		for i := range 100 {
			stuck = append(stuck, claimant(r, fmt.Sprint("namespace-", i%2), keysOf(bad, fmt.Sprint("a=", i))...))
			synctest.Wait() // Otherwise the first ones may all be of one namespace, and take its share.
		}
		now, _, _ := s.seen()
		assert.Equal(t, v1beta1.MaxLiveReadsOfAPIGroup, now, "We should not have one API group take every place.")
		start := time.Now()
		require.NoError(t, <-claimant(r, "honest", keysOf(kinds, "tier=gold")...))
		assert.LessOrEqual(t, time.Since(start), 400*time.Millisecond, "We should read of the other class kinds meanwhile.")
		require.NoError(t, <-claimant(r, "namespace-0", keysOf(kinds, "tier=silver")...), "We should read of other class kinds for those, too, who wait for the ones that hang.")
		for _, c := range stuck {
			require.ErrorIs(t, <-c, context.DeadlineExceeded)
		}
		assertNothingLeft(t, r)
	})
}

func TestReadsOfOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newSlowReads()
		var kinds []*inventory.ClassKind
		for i := range 10 {
			kinds = append(kinds, kindOf("example.org", fmt.Sprint("classes", i)))
		}
		var hostile []<-chan error
		for i := range 40 {
			hostile = append(hostile, claimant(r, "hostile", keysOf(kinds, fmt.Sprint("a=", i))...))
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, <-claimant(r, "honest", keysOf(kinds, "tier=gold")...), "We should read of the same class kinds for another namespace in time.")
		assert.LessOrEqual(t, time.Since(start), time.Second, "We should have it take turns with the other.")
		for _, c := range hostile {
			if err := <-c; err != nil { // Some have been in time.
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		assertNothingLeft(t, r)
	})
}

func TestReadsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newSlowReads()
		kinds := kindsOf(8)
		var all []<-chan error
		for i := range v1beta1.MaxWaitingLiveReads/len(kinds) + 1 {
			all = append(all, claimant(r, "hostile", keysOf(kinds, fmt.Sprint("a=", i))...))
			synctest.Wait()
		}
		assert.Empty(t, all[len(all)-1], "We should have them wait up to the bound.")
		require.ErrorIs(t, <-claimant(r, "hostile", keysOf(kinds, "one=more")...), errTooManyReads, "We should say so at once beyond it.")
		same := claimant(r, "hostile", keysOf(kinds, "a=1")...)
		synctest.Wait()
		assert.Empty(t, same, "We should have those wait who ask for nothing more.")
		require.NoError(t, <-claimant(r, "honest", keysOf(kinds, "a=b")...), "We should read for others.")
		for _, c := range append(all, same) {
			if err := <-c; err != nil { // Some have been in time.
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		assertNothingLeft(t, r)
	})
}

// TestClaimsThatWaitAreBounded checks that waiting claims leave room on their connections for others, even if the claims share a read.
func TestClaimsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds := kindsOf(1)
		_, r := newSlowReads(kinds[0].Name)
		var all []<-chan error
		ask := func(namespace string, n int) (refused []error) {
			for range n {
				c := claimant(r, namespace, keysOf(kinds, "a=b")...)
				synctest.Wait()
				if len(c) > 0 {
					refused = append(refused, <-c)
				} else {
					all = append(all, c)
				}
			}
			return refused
		}
		const most, share = v1beta1.MaxClaimsInLiveReads, v1beta1.MaxClaimsInLiveReadsOfNamespace
		assert.Len(t, ask("hostile", 2*most), 2*most-share, "We should have as many wait as one namespace may.")
		assert.Empty(t, ask("honest", 1), "We should have others wait, too.")
		assert.Len(t, ask("third", share), 1, "We should have no more wait than may in all.")
		for _, c := range all {
			require.ErrorIs(t, <-c, context.DeadlineExceeded)
		}
		assertNothingLeft(t, r)
	})
}

func TestReadsRecover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReads(func(context.Context, *sharedRead) (*inventory.Classes, error) {
			var none *reads
			none.next = nil
			return nil, errors.New("not reached")
		})
		err := <-claimant(r, "a", keysOf(kindsOf(1), "a=b")...)
		require.ErrorContains(t, err, `panic: runtime error: invalid memory address`, "We should take a panic for an error.")
		assertNothingLeft(t, r)
	})
}
