package fair

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestQueue(t *testing.T) {
	q := &Queue[string]{}
	for _, item := range []string{"a1", "a2", "a3", "b1", "c1", "c2"} {
		q.Push(item[:1], item)
	}
	assert.Equal(t, []int{6, 3, 0}, []int{q.Len(), q.LenOf("a"), q.LenOf("d")})
	pop := func(but ...string) string {
		_, item, _ := q.Pop(func(key, item string) bool { return !slices.Contains(but, key) && !slices.Contains(but, item) })
		return item
	}
	assert.Equal(t, "a1", pop(), "We should begin with the first key.")
	assert.Equal(t, "c2", pop("b", "c1"), "We should skip keys and items that may not leave.")
	assert.Equal(t, "b1", pop(), "We should not have a key lose its turn that was skipped.")
	assert.True(t, q.Remove("a", "a2"))
	assert.False(t, q.Remove("a", "a2"), "We should say that it is gone.")
	assert.Empty(t, pop("a", "c"))
	assert.Equal(t, []string{"a3", "c1", ""}, []string{pop(), pop(), pop()}, "We should take turns.")
	q.Push("a", "a4")
	assert.True(t, q.Remove("a", "a4"))
	assert.Empty(t, q.items, "We should forget keys without items.")
	assert.Empty(t, q.next, "We should forget keys without items.")
	assert.Zero(t, q.Len())
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(v1beta1.Limiter{InFlight: 3, PerKey: 2, Waiting: 7, WaitingPerKey: 4})
		var mu sync.Mutex
		var began []string
		ends := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		take := func(ctx context.Context, key string) <-chan error {
			result := make(chan error, 1)
			go func() {
				done, err := l.Take(ctx, key)
				if err == nil {
					mu.Lock()
					began = append(began, key)
					mu.Unlock()
					<-ends[key]
					done()
				}
				result <- err
			}()
			synctest.Wait()
			return result
		}
		for range 2 {
			take(t.Context(), "a")
		}
		assert.False(t, l.Wanted("a"), "We should say that nobody waits.")
		last := take(ctx, "a")
		assert.Equal(t, []string{"a", "a"}, began, "We should have few of one key run at once.")
		assert.True(t, l.Wanted("a"), "We should say that another waits.")
		assert.False(t, l.Wanted("b"), "We should not say so to a key that takes nothing from the one that waits.")
		take(t.Context(), "a")
		require.ErrorIs(t, <-take(t.Context(), "a"), ErrKeyFull, "We should have few of one key wait.")
		for range 3 {
			take(t.Context(), "b")
		}
		assert.Equal(t, []string{"a", "a", "b"}, began, "We should have few run at once.")
		assert.True(t, l.Wanted("b"), "We should say that another waits.")
		require.ErrorIs(t, <-take(t.Context(), "b"), ErrFull, "We should have few wait.")
		stop()
		require.ErrorIs(t, <-last, ErrKeyFull, "We should have nobody wait who has gone.")
		ends["a"] <- struct{}{}
		synctest.Wait()
		ends["b"] <- struct{}{}
		synctest.Wait()
		assert.Equal(t, []string{"a", "a", "b"}, began[:3])
		assert.ElementsMatch(t, []string{"a", "b"}, began[3:], "We should have keys take turns.")
		close(ends["a"])
		close(ends["b"])
		synctest.Wait()
		assert.Len(t, began, 6)
		assert.Empty(t, l.running.of, "We should remember no key that is gone.")
		assert.Empty(t, l.waiting.items, "We should remember no key that is gone.")
		done, err := l.Take(ctx, "a")
		require.NoError(t, err, "We should let one run that may, though its time is over.")
		done()
	})
}

func TestLimiterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(v1beta1.Limiter{InFlight: 1, PerKey: 1, Waiting: 10, WaitingPerKey: 5, Rest: 7, MaxRest: time.Second})
		run := func(key string, d time.Duration) {
			done, err := l.Take(t.Context(), key)
			require.NoError(t, err)
			time.Sleep(d)
			done()
		}
		waits := func(key string) time.Duration {
			began := time.Now()
			run(key, 0)
			return time.Since(began)
		}
		run("a", time.Millisecond)
		assert.Zero(t, waits("b"), "We should let others have the place.")
		assert.Equal(t, 7*time.Millisecond, waits("a"), "We should let a key rest for as long as it owes.")
		run("a", time.Minute)
		assert.Equal(t, time.Second, waits("a"), "We should let no key rest for longer than this.")
		run("a", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Take(ctx, "a")
		require.ErrorIs(t, err, ErrKeyFull, "We should say whose requests it waited for.")
		run("b", time.Minute)
		go run("a", time.Minute)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = l.Take(ctx, "b")
		require.ErrorIs(t, err, context.DeadlineExceeded, "We should not blame a key for the requests of others.")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, l.resting.of, "We should remember no key that is gone.")
	})
}
