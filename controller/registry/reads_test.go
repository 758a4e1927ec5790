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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// fakeReads take 100 ms each, and hang for some resources. Held reads end when the test says so.
type fakeReads struct {
	hang    map[string]bool
	results chan error // of held reads

	mu        sync.Mutex
	now, most int
	began     []readKey
}

// read returns an object with the number of held reads that have begun.
func (f *fakeReads) read(ctx context.Context, k readKey) (_ *expression.Object, err error) {
	f.mu.Lock()
	f.now++
	f.most = max(f.most, f.now)
	f.began = append(f.began, k)
	object := expression.NewFields(fields.Path{"read"}).Project(map[string]any{"read": int64(len(f.began))})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now--
	}()
	var timer <-chan time.Time
	if f.results == nil && !f.hang[k.served.Group] {
		timer = time.After(100 * time.Millisecond)
	}
	select {
	case <-timer:
	case err = <-f.results:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return object, err
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

// answer is what a claim got: the number of the read that it shared.
type answer struct {
	read int
	err  error
}

// claimOne creates a claim that names an object, and waits no longer than the context.
func claimOne(ctx context.Context, r *reads, namespace string, k readKey) answer {
	asked, err := r.ask(namespace, k) //nolint:contextcheck // A shared read has no claim's context.
	if err != nil {
		return answer{err: err}
	}
	defer r.leave(namespace, asked)
	object, err := r.wait(ctx, asked)
	if err != nil {
		return answer{err: err}
	}
	read, _ := object.Lookup(fields.Path{"read"})
	return answer{read: int(read.(int64))}
}

// ask for one read.
func ask(ctx context.Context, r *reads, k readKey) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- claimOne(ctx, r, "a", k) }()
	return c
}

// claimant creates one claim that has the time of a review.
func claimant(r *reads, namespace string, k readKey) <-chan error {
	c := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		c <- claimOne(ctx, r, namespace, k).err
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

var planKind = &rules.Kind{Resource: plans}

// keyOf the object of this name, of a resource of this API group.
func keyOf(group, name string) readKey {
	served := cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Plan"}}
	return readKey{keptObjects{planKind, served}, "team", name}
}

// TestReadsOfManyClaims has one namespace ask for 100 objects at once.
func TestReadsOfManyClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		groups int
		most   time.Duration
	}{
		"ManyGroups": {"We should read for another claim as fast as if it were alone.", 10, 100 * time.Millisecond},
		"OneGroup":   {"We should have another claim take turns with the others.", 1, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newSlowReads()
				key := func(i int, name string) readKey { return keyOf(fmt.Sprintf("group-%d.example.org", i%tc.groups), name) }
				var hostile []<-chan error
				for i := range v1beta1.LiveReads.WaitingPerKey {
					hostile = append(hostile, claimant(r, "hostile", key(i, fmt.Sprint(i))))
				}
				synctest.Wait()
				now, _, _ := s.seen()
				assert.Equal(t, v1beta1.LiveReads.PerKey, now, "We should read no more for one namespace, though no one else asks.")

				start := time.Now()
				require.NoError(t, <-claimant(r, "honest", key(0, "gold")), "We should read for another namespace's claim in time.")
				assert.LessOrEqual(t, time.Since(start), tc.most, tc.reason)

				start = time.Now()
				require.NoError(t, <-claimant(r, "other", key(99, "99")), "We should not have those wait for another's turn who ask for the same.")
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
				assert.LessOrEqual(t, most, v1beta1.LiveReads.InFlight, "We should read no more at once.")
				time.Sleep(time.Minute)
				assert.Equal(t, len(began), s.count(), "We should not read for those who have gone.")
				assertNothingLeft(t, r)
			})
		})
	}
}

// TestReadsOfAGroupThatHangs has two namespaces ask for objects of an API group whose API server never answers.
func TestReadsOfAGroupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bad = "bad.example.org"
		s, r := newSlowReads(bad)
		var stuck []<-chan error
		for i := range 100 {
			stuck = append(stuck, claimant(r, fmt.Sprint("namespace-", i%2), keyOf(bad, fmt.Sprint(i))))
			synctest.Wait() // Otherwise the first ones may all be of one namespace, and take its share.
		}
		now, _, _ := s.seen()
		assert.Equal(t, v1beta1.MaxLiveReadsOfAPIGroup, now, "We should not have one API group take every place.")
		start := time.Now()
		require.NoError(t, <-claimant(r, "honest", keyOf("good.example.org", "gold")))
		assert.LessOrEqual(t, time.Since(start), 400*time.Millisecond, "We should read of the other groups meanwhile.")
		require.NoError(
			t, <-claimant(r, "namespace-0", keyOf("good.example.org", "silver")),
			"We should read of other groups for those, too, who wait for the one that hangs.",
		)
		for _, c := range stuck {
			require.ErrorIs(t, <-c, context.DeadlineExceeded)
		}
		assertNothingLeft(t, r)
	})
}

// TestClaimsThatWaitAreBounded checks that waiting claims leave room on their connections for others, even if the claims share a read.
func TestClaimsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := newSlowReads("bad.example.org")
		k := keyOf("bad.example.org", "a")
		var all []<-chan error
		ask := func(namespace string, n int) (refused []error) {
			for range n {
				c := claimant(r, namespace, k)
				synctest.Wait()
				if len(c) > 0 {
					refused = append(refused, <-c)
				} else {
					all = append(all, c)
				}
			}
			return refused
		}
		most, share := v1beta1.LiveReads.Waiting, v1beta1.LiveReads.WaitingPerKey
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
		r := newReads(func(context.Context, readKey) (*expression.Object, error) {
			var none *reads
			none.next = nil
			return nil, errors.New("not reached")
		})
		err := <-claimant(r, "a", keyOf("example.org", "a"))
		require.ErrorContains(t, err, `panic: runtime error: invalid memory address`, "We should take a panic for an error.")
		assertNothingLeft(t, r)
	})
}

func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r := newHeldReads()
		k := keyOf("example.org", "a")

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
		first := keyOf("example.org", "a")
		ofNamespace, ofName := first, first
		ofNamespace.namespace, ofName.name = "other", "b"
		var all []<-chan answer
		for _, k := range []readKey{first, ofNamespace, ofName, keyOf("example.com", "a")} {
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
		k := keyOf("example.org", "a")
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
		require.ErrorContains(
			t, a.err, `cannot get an object of "plans.example.org": other reads of the API server come first: `,
			"We should say what they waited for.",
		)
		require.Equal(t, 1, h.count(), "We should not begin what was left before it began.")

		cancelFirst(gone)
		a = <-first
		require.ErrorIs(t, a.err, gone, "We should not keep those waiting who cannot wait any longer.")
		require.EqualError(t, a.err, `cannot get an object of "plans.example.org": the API server hung up`, "We should say what they waited for.")
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
		a := <-ask(t.Context(), r, keyOf("example.org", "a"))
		require.ErrorIs(t, a.err, context.DeadlineExceeded, "We should give up on an API server that does not answer.")
		assert.Equal(t, v1beta1.WebhookTimeoutSeconds*time.Second, time.Since(start), "We should not read for longer than any claim waits.")
		assertNothingLeft(t, r)
	})
}
