package controller

import (
	"errors"
	"fmt"
	"runtime/debug"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// longestStack is how much of a panic's stack is logged, in bytes.
const longestStack = 8 << 10

var errPanic = errors.New("panic")

// recovered runs do in a goroutine of ours, where a panic would end the process: the
// author of one object could stop leader after leader. A panic becomes an errPanic, and
// its stack is logged.
func recovered(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s", errPanic, brief.Text(fmt.Sprint(p), v1alpha1.MaxMessageBytes))
			stack := debug.Stack()
			logf.Log.Error(err, "Recovered from a panic", "stack", string(stack[:min(len(stack), longestStack)]))
		}
	}()
	return do()
}

// panicText tells an author about a panic. The details are in our log.
const panicText = "classbind failed because of a mistake of its own: its log says more"

// textFor is the text of an error for the author of a claim.
func textFor(err error) string {
	if errors.Is(err, errPanic) {
		return panicText
	}
	return brief.Text(brief.Error(err).Error(), v1alpha1.MaxMessageBytes)
}
