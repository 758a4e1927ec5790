package setdefault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// maxRetries limits how often a write without an answer is repeated while there may be no default.
	maxRetries = 5
	// retryInterval is much shorter than the guard advises. The guard assumes the worst case; writes in flight are mostly stored soon.
	retryInterval = 500 * time.Millisecond
	// putBackTimeout is longer than the guard can hold back the former default.
	putBackTimeout = 2 * time.Minute
	// progressInterval, plus one retryInterval, is less than the 2 s after which people wonder what happens.
	progressInterval = 1400 * time.Millisecond
)

type mover struct {
	*cluster
	options       *options
	name          className
	out, progress io.Writer
	reported      time.Time

	// registered is as it was when the plan was made, and kind is that of the class.
	registered *registry
	kind       *classKind
}

func (m *mover) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.options.timeout, fmt.Errorf("timed out after %s", m.options.timeout))
	defer cancel()
	p, err := m.plan(ctx)
	if err != nil {
		return err
	}
	if p.done() {
		m.print(p.line() + " already")
		return nil
	}
	if err := m.move(ctx, p, true); err != nil {
		return fmt.Errorf("%w\nnothing was changed", err)
	}
	if !m.options.dryRun {
		if err := m.move(ctx, p, false); err != nil {
			if err := m.putBack(ctx, p, err); err != nil {
				return err
			}
		}
	}
	for _, d := range p.unmark {
		m.print(nameOf(d) + ": no longer the default for " + strings.Join(claimKindsOf(d), ", "))
	}
	m.print(p.line())
	for _, seat := range p.lose {
		m.print(seatText(seat) + ": no longer has a default")
	}
	if m.options.dryRun {
		return nil
	}
	return m.confirm(ctx, p)
}

func (p *plan) line() string {
	return nameOf(p.target) + ": the default for " + list(p.seats, seatText)
}

func claimKindsOf(c *inventory.Class) []string {
	return slices.Sorted(slices.Values(c.Kind.ClaimKinds))
}

func (m *mover) print(line string) {
	if m.options.dryRun {
		line += " (dry run)"
	}
	_, _ = fmt.Fprintln(m.out, truncate.Printable(line))
}

func (m *mover) plan(ctx context.Context) (*plan, error) {
	r, err := m.registry(ctx)
	if err != nil {
		return nil, err
	}
	claimKinds, err := r.findClaimKinds("for", m.options.claimKinds)
	if err != nil {
		return nil, err
	}
	without, err := r.findClaimKinds("leave-without-default", m.options.without)
	if err != nil {
		return nil, err
	}
	kind, err := r.findClassKind(m.name, claimKinds)
	if err != nil {
		return nil, err
	}
	if len(claimKinds) == 0 {
		claimKinds = slices.DeleteFunc(slices.Clone(kind.ClaimKinds), func(name string) bool { return r.claimKinds[name] == nil })
		if len(claimKinds) != 1 {
			return nil, fmt.Errorf("name the claim kind whose default the class is to be with --for: %s serves %s",
				kind, cmp.Or(strings.Join(claimKinds, ", "), "none"))
		}
	}
	target, err := m.class(ctx, kind.ClassKind, m.name.namespace, m.name.name)
	if apierrors.IsNotFound(err) {
		names := connect.Names(ctx, m.api, kind.GroupVersionKind, m.name.namespace)
		return nil, fmt.Errorf("there is no class %s: create it, without the mark of a default, or name another%s: %w",
			m.name, near.Meant(m.name.name, names), err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get the class %s: %w", m.name, err)
	}
	m.registered, m.kind = r, kind
	views, err := m.views(ctx, r, kind)
	if err != nil {
		return nil, err
	}
	return newPlan(views, target, claimKinds, without)
}

// move the mark, or check in a dry run what can be checked.
func (m *mover) move(ctx context.Context, p *plan, dryRun bool) error {
	for _, d := range p.unmark {
		if err := m.write(ctx, d, false, dryRun, maxRetries); err != nil {
			return err
		}
	}
	if p.target.Default {
		return nil
	}
	// A dry run first: if anything but the guard refuses the mark, it should do so here. Once the guard has admitted the target, it
	// holds back all others for a while, the former default included.
	err := m.write(ctx, p.target, true, true, maxRetries)
	switch {
	case dryRun && len(p.unmark) > 0 && refusedByGuard(err, p.target.Kind) && !inFlight(err):
		// A refusal because of the present default is no obstacle. It proves that the request reached the guard: the user has the
		// permission, and the schema and the policies, which come before webhooks, accept it.
		return nil
	case dryRun || err != nil:
		return err
	}
	return m.write(ctx, p.target, true, false, maxRetries)
}

// write the mark of a class, or remove it. It waits while another class may still become the default, and tries again up to so many times
// without an answer.
func (m *mover) write(ctx context.Context, c *inventory.Class, marked, dryRun bool, retries int) error {
	var obstacle error
	for {
		err := m.setMark(ctx, c, marked, dryRun)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			obstacle = fmt.Errorf("cannot take the mark from %s: %w", nameOf(c), err)
			if marked {
				obstacle = fmt.Errorf("cannot mark %s as the default: %w", nameOf(c), err)
			}
			switch {
			case inFlight(err) && !m.options.dryRun:
			case unanswered(err) && retries > 0:
				retries--
			default:
				return obstacle
			}
			m.waiting("waiting: %v", obstacle)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return stopped(ctx, obstacle)
		}
	}
}

// putBack restores the taken marks after a failure, and returns the failure with the outcome. It returns nil if the target is the default
// after all, because an answer got lost.
func (m *mover) putBack(ctx context.Context, p *plan, failure error) error {
	if p.target.Default { // It still is.
		return failure
	}
	// The failure may be a timeout or an interrupt, so ctx may have ended.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), putBackTimeout, fmt.Errorf("timed out after %s", putBackTimeout))
	defer cancel()
	isDefault := func(c *inventory.Class) bool {
		now, err := m.class(ctx, c.Kind, c.Namespace, c.Name)
		return err == nil && now.Default
	}
	if isDefault(p.target) {
		m.reportf("%v; but it was stored", failure)
		return nil
	}
	outcome := []string{failure.Error()}
	for _, c := range p.unmark {
		if isDefault(c) { // Its mark was never taken.
			continue
		}
		text := nameOf(c) + " is the default again"
		if err := m.write(ctx, c, true, false, math.MaxInt); err != nil {
			text = err.Error()
			if !refusedByGuard(err, c.Kind) { // The guard would refuse that command too; its error names one that works.
				text += "; to mark it again, run: " + markCommand(c)
			}
		}
		outcome = append(outcome, text)
	}
	if len(outcome) == 1 {
		outcome = append(outcome, "nothing was changed")
	}
	return errors.New(strings.Join(outcome, "\n"))
}

func (m *mover) reportf(format string, args ...any) {
	m.reported = time.Now()
	_, _ = fmt.Fprintln(m.progress, truncate.Printable(fmt.Sprintf(format, args...)))
}

// waiting prints at most one line every two seconds, however often it is called.
func (m *mover) waiting(format string, args ...any) {
	if time.Since(m.reported) >= progressInterval {
		m.reportf(format, args...)
	}
}

// stopped returns why a context ended, with the last obstacle, which may be nil.
func stopped(ctx context.Context, obstacle error) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if obstacle != nil {
		return fmt.Errorf("%w: %w", err, obstacle)
	}
	return err
}
