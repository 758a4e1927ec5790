package webhookconfig

import (
	"context"
	"maps"
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
	leftOut atomic.Pointer[map[string]string]
	// changed listen for the names of kinds whose entry is left out now, or not any more.
	changed loop.Listeners[string]
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
	if out := e.leftOut.Load(); out != nil {
		return (*out)[kind]
	}
	return ""
}

// OnChange calls a function with the name of each kind for which TooLarge changed, until
// the context ends.
func (e *Entries) OnChange(ctx context.Context, call func(kind string)) { e.changed.Add(ctx, call) }

// setLeftOut records which kinds have no entry.
func (e *Entries) setLeftOut(out map[string]string) {
	before := e.leftOut.Swap(&out)
	if before == nil {
		before = &map[string]string{}
	}
	changed := maps.Clone(out)
	maps.Copy(changed, *before)
	for kind := range changed {
		if (*before)[kind] != out[kind] {
			e.changed.Notify(kind)
		}
	}
}
