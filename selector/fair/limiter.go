package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
)

var (
	// ErrFull means that as many requests run or wait as may.
	ErrFull = errors.New("too many wait; try again in a moment")
	// ErrKeyFull says so of the requests of one key. It is also in the error of one that waited for these until ctx ended.
	ErrKeyFull = errors.New("too many wait; try again in a moment")
)

// Limiter lets few requests run at once, and of these a part of one key. Others wait, and keys take turns.
type Limiter struct {
	limits v1beta1.Limiter

	mu      sync.Mutex // guards all below
	running Counts
	resting Counts
	waiting Queue[chan struct{}]
}

// NewLimiter returns a Limiter with these limits.
func NewLimiter(limits v1beta1.Limiter) *Limiter { return &Limiter{limits: limits} }

// Take waits until a request of a key may run, until done is called. It fails with ErrFull or
// ErrKeyFull, or when ctx ends. One that may run at once does so even after ctx has ended.
func (l *Limiter) Take(ctx context.Context, key string) (done func(), err error) {
	begun := make(chan struct{})
	if err := l.enter(key, begun); err != nil {
		return nil, err
	}
	select {
	case <-begun:
	default:
		select {
		case <-begun:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, l.giveUp(ctx, key, begun)
		}
	}
	began := time.Now()
	return func() { l.leave(key, min(time.Duration(l.limits.Rest)*time.Since(began), l.limits.MaxRest)) }, nil
}

func (l *Limiter) enter(key string, begun chan struct{}) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running.Of(key)+l.waiting.LenOf(key) >= l.limits.WaitingPerKey {
		return ErrKeyFull
	}
	if l.running.All()+l.waiting.Len() >= l.limits.Waiting {
		return ErrFull
	}
	l.waiting.Push(key, begun)
	l.begin()
	return nil
}

// giveUp ends a request that no caller waits for any longer.
func (l *Limiter) giveUp(ctx context.Context, key string, begun chan struct{}) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.Remove(key, begun) {
		l.running.Add(key, -1)
		l.begin()
	}
	if !l.mayRun(key, nil) {
		return fmt.Errorf("%w: %w", ctx.Err(), ErrKeyFull)
	}
	return ctx.Err()
}

// leave ends a request, whose place stays taken for others of its key.
func (l *Limiter) leave(key string, rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running.Add(key, -1)
	if rest > 0 {
		l.resting.Add(key, 1)
		time.AfterFunc(rest, func() {
			defer recovered.Here()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.resting.Add(key, -1)
			l.begin()
		})
	}
	l.begin()
}

func (l *Limiter) mayRun(key string, _ chan struct{}) bool {
	return l.running.Of(key)+l.resting.Of(key) < l.limits.PerKey
}

// begin lets those run that may. The caller holds mu.
func (l *Limiter) begin() {
	for l.running.All() < l.limits.InFlight {
		key, begun, ok := l.waiting.Pop(l.mayRun)
		if !ok {
			return
		}
		l.running.Add(key, 1)
		close(begun)
	}
}

// Wanted reports whether a request waits that might run if a running one of this key ended.
func (l *Limiter) Wanted(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.LenOf(key) > 0 || l.waiting.Len() > 0 && l.running.All() == l.limits.InFlight
}

// Counts are numbers by key. Its user locks it. The zero value has none.
type Counts struct {
	all int
	of  map[string]int
}

// Add to the number of a key. One that is 0 takes no memory.
func (c *Counts) Add(key string, n int) {
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.all += n
	if c.of[key] += n; c.of[key] == 0 {
		delete(c.of, key)
	}
}

// All is the sum.
func (c *Counts) All() int { return c.all }

// Of is the number of a key.
func (c *Counts) Of(key string) int { return c.of[key] }
