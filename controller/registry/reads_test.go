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
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

// fakeReads take 100 ms each, as a consistent LIST may, and hang for some kinds. Held reads end when the test says so.
type fakeReads struct {
	hang    map[string]bool
	results chan error // of held reads

	mu        sync.Mutex
	now, most int
	began     []readKey
}

// read returns as many classes as held reads had begun.
func (f *fakeReads) read(ctx context.Context, r *sharedRead) (_ *inventory.Classes, err error) {
	classes := map[string][]string{}
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	f.began = append(f.began, r.key)
	for i := 0; f.results != nil && i < len(f.began); i++ {
		classes[fmt.Sprint(i)] = nil
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now--
	}()
	var timer <-chan time.Time
	if f.results == nil && !f.hang[r.key.kind.Name] {
		timer = time.After(100 * time.Millisecond)
	}
	select {
	case <-timer:
	case err = <-f.results:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return controllertest.NewClasses(r.key.kind, classes), err
}

// seen returns how many are under way, how many were at most, and which began.
func (f *fakeReads) seen() (now, most int, began []readKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.most, slices.Clone(f.began)
}

func (f *fakeReads) count() int {
	_, _, began := f.seen()
	return len(began)
}

func newSlowReads(hang ...string) (*fakeReads, *reads) {
	f := &fakeReads{hang: map[string]bool{}}
	for _, name := range hang {
		f.hang[name] = true
	}
	return f, newReads(f.read)
}

func newHeldReads() (*fakeReads, *reads) {
	f := &fakeReads{results: make(chan error)}
	return f, newReads(f.read)
}

// answer is what a claim got: the number of the last read that it shared.
type answer struct {
	read int
	err  error
}

// claimOne creates a claim that needs all these reads, and waits no longer than the context.
func claimOne(ctx context.Context, r *reads, namespace string, keys ...readKey) (a answer) {
	asked, err := r.ask(namespace, labels.Everything(), nil, keys...) //nolint:contextcheck // A shared read has no claim's context.
	if err != nil {
		return answer{err: err}
	}
	defer r.leave(namespace, asked...)
	for _, s := range asked {
		classes, err := r.wait(ctx, s)
		if err != nil {
			return answer{err: err}
		}
		a.read = classes.Len()
	}
	return a
}

// ask for one read.
func ask(ctx context.Context, r *reads, k readKey) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- claimOne(ctx, r, "a", k) }()
	return c
}

// claimant creates one claim that has the time of a review.
func claimant(r *reads, namespace string, keys ...readKey) <-chan error {
	c := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		c <- claimOne(ctx, r, namespace, keys...).err
	}()
	return c
}

func assertNothingLeft(t *testing.T, r *reads) {
	t.Helper()
	synctest.Wait()
	assert.Empty(t, r.next, "We should forget reads that are done.")
	assert.Empty(t, r.busy, "We should forget reads that are done.")
	assert.Zero(t, r.ofGroup.All(), "We should forget the API groups of reads that are done.")
	assert.Zero(t, r.waiting.Len(), "We should forget namespaces that ask for nothing.")
	assert.Zero(t, r.running.All(), "We should make room for the next reads.")
	assert.Zero(t, r.claims.All(), "We should forget claims that have left.")
}

// In a bubble of synctest, a goroutine that is left over fails the test, and Wait returns when all goroutines wait for each other: no test
// here depends on time.

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
	var ofOneGroup []*inventory.ClassKind
	for i := range 10 {
		ofOneGroup = append(ofOneGroup, kindOf("example.org", fmt.Sprint("classes", i)))
	}
	for name, tc := range map[string]struct {
		reason string
		kinds  []*inventory.ClassKind
		most   time.Duration
	}{
		"ManyGroups": {"We should read for another claim as fast as if it were alone.", kindsOf(10), 400 * time.Millisecond},
		"OneGroup":   {"We should have another claim take turns with the others.", ofOneGroup, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newSlowReads()
				var hostile []<-chan error
				for i := range 40 {
					hostile = append(hostile, claimant(r, "hostile", keysOf(tc.kinds, fmt.Sprint("a=", i))...))
				}
				synctest.Wait()
				now, _, _ := s.seen()
				assert.Equal(t, v1beta1.MaxLiveReadsOfNamespace, now, "We should read no more for one namespace, though nobody else asks.")

				start := time.Now()
				require.NoError(t, <-claimant(r, "honest", keysOf(tc.kinds, "tier=gold")...), "We should read for another namespace's claim in time.")
				assert.LessOrEqual(t, time.Since(start), tc.most, tc.reason)

				start = time.Now()
				require.NoError(t, <-claimant(r, "other", keysOf(tc.kinds, "a=39")...), "We should not have those wait for another's turn who ask for the same.")
				assert.LessOrEqual(t, time.Since(start), tc.most, tc.reason)

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
				assert.Equal(t, len(began), s.count(), "We should not read for those who have gone.")
				assertNothingLeft(t, r)
			})
		})
	}
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

func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := newHeldReads()
		k := readKey{kind: controllertest.NewClassKind("golds.example.org", "Gold"), selector: "tier=gold"}

		first := ask(t.Context(), r, k)
		synctest.Wait()
		require.Equal(t, 1, h.count(), "We should begin the first read at once.")

		var later []<-chan answer
		for range 10 {
			later = append(later, ask(t.Context(), r, k))
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

		again := ask(t.Context(), r, k)
		synctest.Wait()
		failed := []<-chan answer{ask(t.Context(), r, k), ask(t.Context(), r, k)}
		synctest.Wait()
		h.results <- nil
		failure := errors.New("connection refused")
		h.results <- failure
		assert.Equal(t, answer{read: 3}, <-again, "We should not keep what was read, nor give it another's error.")
		for _, c := range failed {
			require.ErrorIs(t, (<-c).err, failure, "We should give the error to all who share the read.")
		}
		assertNothingLeft(t, r)
	})
}

func TestReadsOfOthersAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := newHeldReads()
		golds, silvers := controllertest.NewClassKind("golds.example.org", "Gold"), controllertest.NewClassKind("silvers.example.org", "Silver")
		var all []<-chan answer
		for _, k := range []readKey{{kind: golds, selector: "tier=gold"}, {kind: golds}, {kind: golds, defaults: true}, {kind: silvers, selector: "tier=gold"}} {
			all = append(all, ask(t.Context(), r, k))
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

func TestReadsEndWithTheirLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := newHeldReads()
		k := readKey{kind: controllertest.NewClassKind("golds.example.org", "Gold")}
		hasty := func() (<-chan answer, context.CancelCauseFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ask(ctx, r, k), cancel
		}
		gone := errors.New("the API server hung up")

		first, cancelFirst := hasty()
		synctest.Wait()
		second, cancelSecond := hasty()
		synctest.Wait()
		third := ask(t.Context(), r, k)
		fourth, cancelFourth := hasty()
		synctest.Wait()

		cancelSecond(gone)
		a := <-second
		require.ErrorIs(t, a.err, gone, "We should not keep those waiting who cannot wait any longer.")
		require.ErrorContains(t, a.err, `cannot list the classes of "golds.example.org": other reads of the API server come first: `, "We should say what they waited for.")
		require.Equal(t, 1, h.count(), "We should not begin what was left before it began.")

		cancelFirst(gone)
		a = <-first
		require.ErrorIs(t, a.err, gone, "We should not keep those waiting who cannot wait any longer.")
		require.EqualError(t, a.err, `cannot list the classes of "golds.example.org": the API server hung up`, "We should say what they waited for.")
		synctest.Wait()
		require.Equal(t, 2, h.count(), "We should end a read that nobody waits for, and begin the next.")

		cancelFourth(gone)
		require.ErrorIs(t, (<-fourth).err, gone)
		h.results <- nil
		synctest.Wait()
		assert.Equal(t, answer{read: 2}, <-third, "We should go on with what others wait for.")
		assertNothingLeft(t, r)
	})
}

func TestReadsHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newHeldReads()
		start := time.Now()
		a := <-ask(t.Context(), r, readKey{kind: controllertest.NewClassKind("golds.example.org", "Gold")})
		require.ErrorIs(t, a.err, context.DeadlineExceeded, "We should give up on an API server that does not answer.")
		assert.Equal(t, v1beta1.WebhookTimeoutSeconds*time.Second, time.Since(start), "We should not read for longer than any claim waits.")
		assertNothingLeft(t, r)
	})
}
