package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"
)

// Locks are those that goroutines of classbind waited for under full load.
type Locks struct {
	Requests int `json:"requests"`
	// Contended are the locks, the one that was waited for longest first.
	Contended []Lock `json:"contended"`
}

// Lock that was waited for.
type Lock struct {
	// Holder is the function that let go of it, by way of package sync or of the
	// runtime.
	Holder string `json:"holder"`
	Whose  whose  `json:"whose"`
	// Waits are how often one waited, and WaitedMillis how long all did together.
	Waits        int64   `json:"waits"`
	WaitedMillis float64 `json:"waitedMillis"`
}

// whose a lock is.
type whose string

const (
	// classbinds own.
	classbinds whose = "classbind"
	// called is a library's that classbind's packages called.
	called whose = "library, called by classbind"
	// others have nothing of classbind on their stack.
	others whose = "library or runtime"
)

// locks profiles a replica under full load. It is one of its own, since to record
// each wait takes time of every request.
func (m *many) locks(ctx context.Context) (_ *Locks, err error) {
	if err := m.replica.stop(); err != nil {
		return nil, err
	}
	if err := m.startReplica(ctx, "--contention-profiling"); err != nil {
		return nil, err
	}
	d := max(m.settings.Round, time.Second).Round(time.Second)
	_, _ = fmt.Fprintf(m.progress, "profiling locks under load for %s\n", d)
	l := &Locks{}
	var raw []byte
	all, profiling := errgroup.WithContext(ctx)
	all.Go(func() (err error) { // What is waited for from now on.
		raw, err = get(profiling, fmt.Sprintf("%s/debug/pprof/mutex?seconds=%d", m.replica.pprof, int(d.Seconds())))
		return err
	})
	all.Go(func() error {
		r, err := m.bound().drive(profiling, d, 0)
		l.Requests = r.Requests
		return err
	})
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("cannot profile locks: %w", err)
	}
	p, err := profile.Parse(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("cannot read the profile of locks: %w", err)
	}
	l.Contended = contended(p)
	return l, nil
}

// contended are the locks in a mutex profile, of which the first value counts
// waits and the second is how long they were, in nanoseconds.
func contended(p *profile.Profile) []Lock {
	locks := map[[2]string]*Lock{}
	for _, s := range p.Sample {
		holder, whose := holderOf(stack(s))
		key := [2]string{holder, string(whose)}
		if locks[key] == nil {
			locks[key] = &Lock{Holder: holder, Whose: whose}
		}
		locks[key].Waits += s.Value[0]
		locks[key].WaitedMillis += millis(time.Duration(s.Value[1]))
	}
	var sorted []Lock
	for _, l := range locks {
		sorted = append(sorted, *l)
	}
	slices.SortFunc(sorted, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(b.WaitedMillis, a.WaitedMillis), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Whose, b.Whose))
	})
	return sorted
}

// stack of a sample: functions, the innermost first.
func stack(s *profile.Sample) []string {
	var functions []string
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				functions = append(functions, line.Function.Name)
			}
		}
	}
	return functions
}

// holderOf a lock that was let go of on a stack. One of the runtime itself, of its
// memory for example, is the runtime's, whoever called it.
func holderOf(stack []string) (holder string, _ whose) {
	isRuntimes := func(f string) bool { return strings.HasPrefix(f, "runtime.") }
	i := slices.IndexFunc(stack, func(f string) bool {
		return !strings.HasPrefix(f, "sync.") && !strings.HasPrefix(f, "internal/sync.") && !strings.HasPrefix(f, "runtime.unlock")
	})
	if i < 0 {
		return "(unknown)", others
	}
	switch holder = stack[i]; {
	case isClassbinds(holder):
		return holder, classbinds
	case !isRuntimes(stack[0]) && slices.ContainsFunc(stack, isClassbinds):
		return holder, called
	}
	return holder, others
}

// isClassbinds says whether a function is of one of its packages, its main among them.
func isClassbinds(function string) bool {
	return strings.HasPrefix(function, "github.com/classbind/classbind/") || strings.HasPrefix(function, "main.")
}

// waits for locks that are of those.
func (l *Locks) waits(w whose) (n int64) {
	for _, lock := range l.Contended {
		if lock.Whose == w {
			n += lock.Waits
		}
	}
	return n
}
