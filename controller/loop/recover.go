// Package loop has what all loops in the background share: they survive a panic, hear of changes, and run on every replica or the leader.
package loop

import (
	"errors"
	"fmt"
	"runtime/debug"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// longestStack is how much of a panic's stack is logged, in bytes.
const longestStack = 8 << 10

// ErrPanic is what a panic becomes.
var ErrPanic = errors.New("panic")

// Recovered runs do in a goroutine of ours, where a panic would end the process: the author of one object could stop leader after leader. A
// panic becomes an ErrPanic, and its stack is logged. An ErrPanic that goes on as a panic is logged no second time.
func Recovered(do func() error) (err error) {
	defer func() {
		p := recover()
		if logged, ok := p.(error); ok && errors.Is(logged, ErrPanic) {
			err = logged
			return
		}
		if p != nil {
			err = fmt.Errorf("%w: %s", ErrPanic, truncate.String(fmt.Sprint(p), v1beta1.MaxMessageBytes))
			stack := debug.Stack()
			logf.Log.Error(err, "Recovered from a panic", "stack", string(stack[:min(len(stack), longestStack)]))
		}
	}()
	return do()
}
