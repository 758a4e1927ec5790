package controller

import (
	"errors"
	"fmt"
	"runtime/debug"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// longestStack that is logged of a panic, in bytes.
const longestStack = 8 << 10

var errPanic = errors.New("panic")

// recovered does something in a goroutine of ours, where a panic would end the
// process: whoever wrote the object that causes it could stop leader after leader.
// It becomes an errPanic, and its stack is logged.
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

// panicText is for the author of what made us panic: the details are in our log.
const panicText = "classbind failed because of a mistake of its own: its log says more"

// textFor the author of a claim.
func textFor(err error) string {
	if errors.Is(err, errPanic) {
		return panicText
	}
	return brief.Text(brief.Error(err).Error(), v1alpha1.MaxMessageBytes)
}
