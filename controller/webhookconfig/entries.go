package webhookconfig

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/classbind/classbind/controller/loop"
)

// Entries says what became of the entries of one webhook configuration in the last round.
type Entries struct {
	// problem of the last round, and since when. shared is what of it concerns all entries.
	problem string
	since   time.Time
	shared  atomic.Pointer[string]
	// leftOut has the kinds for whose entry there is no room, with the reason.
	leftOut loop.Published[string]
}

// Problem says why the configuration as a whole is not as it should be, empty if it is.
func (e *Entries) Problem() string {
	if p := e.shared.Load(); p != nil {
		return *p
	}
	return ""
}

// TooLarge says why there is no room for a kind's entry, empty if there is.
func (e *Entries) TooLarge(kind string) string {
	why, _ := e.leftOut.Get(kind)
	return why
}

// OnChange calls a function with the name of each kind for which TooLarge changed, until
// the context ends.
func (e *Entries) OnChange(ctx context.Context, call func(kind string)) { e.leftOut.Add(ctx, call) }
