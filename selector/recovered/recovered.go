// Package recovered runs what must not end the process. A panic in a goroutine would: the author of one object could stop leader after
// leader. Each goroutine of ours, and each round of a loop, is run by it; a test finds those that are not.
package recovered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// longestStack is how much of a panic's stack is logged, in bytes.
	longestStack = 8 << 10
	// againAfter is the pause before what has panicked is run again.
	againAfter = time.Second
)

// ErrPanic is what a panic becomes.
var ErrPanic = errors.New("panic")

// panics is how many were recovered from.
var panics atomic.Int64

// Panics returns how many panics this process has recovered from.
func Panics() int64 { return panics.Load() }

// Do turns a panic into an ErrPanic, which it logs with the stack, and counts. An ErrPanic that goes on as a panic is logged once.
func Do(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = failure(p)
		}
	}()
	return do()
}

// Here is for a goroutine that has no caller to return an error to: defer it first.
func Here() {
	if p := recover(); p != nil {
		_ = failure(p)
	}
}

// failure logs by slog, which the command has the process's logger serve: this package knows no other.
func failure(p any) error {
	if logged, ok := p.(error); ok && errors.Is(logged, ErrPanic) {
		return logged
	}
	panics.Add(1)
	err := fmt.Errorf("%w: %s", ErrPanic, truncate.String(fmt.Sprint(p), v1beta1.MaxMessageBytes))
	stack := debug.Stack()
	slog.Error("Recovered from a panic", "error", err, "stack", string(stack[:min(len(stack), longestStack)]))
	return err
}

// Func is what a group runs in a goroutine.
func Func(do func() error) func() error { return func() error { return Do(do) } }

// Again runs what should go on until the context ends, and again after a panic. It returns the error of what ends otherwise.
func Again(ctx context.Context, do func(context.Context) error) error {
	for {
		err := Do(func() error { return do(ctx) })
		if !errors.Is(err, ErrPanic) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(againAfter):
		}
	}
}

// Rounds runs one round after another until the context ends, with a pause between them. A panic ends a round, and not the next.
func Rounds(ctx context.Context, round func(context.Context), pause time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		_ = Do(func() error { round(ctx); return nil }) // A panic is logged; nothing else can fail.
	}, pause)
}
