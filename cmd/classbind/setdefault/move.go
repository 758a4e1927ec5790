package setdefault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// mostRetries are how often somebody else may be faster, or an answer may fail
	// to come while no default is there.
	mostRetries = 5
	// retryInterval is short beside what the guard advises, which is the worst
	// case: what is in flight is mostly stored a moment later.
	retryInterval = 500 * time.Millisecond
)

// mover carries out a plan.
type mover struct {
	*cluster
	options  *options
	name     className
	out      io.Writer
	progress *progressWriter

	// planned says that there was a plan, and that its warnings were printed.
	planned bool
	// started is the plan when the first write was about to be sent; nil, none was.
	started *plan
	// unmarked are the classes whose mark was taken, or may have been where no answer came.
	unmarked []*storedClass
	// doubtful is the class of which no answer came.
	doubtful *storedClass
}

func (m *mover) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.options.timeout, fmt.Errorf("timed out after %s", m.options.timeout))
	defer cancel()
	p, err := m.move(ctx)
	switch {
	case err == nil && m.started == nil: // A dry run, or there was nothing to do.
		return nil
	case err == nil:
	case m.started == nil && m.planned:
		return fmt.Errorf("%w\nnothing was changed", err)
	case m.started == nil:
		return err
	default:
		if err := m.putBack(ctx, err); err != nil {
			return err
		}
		p = m.started
	}
	return m.confirm(ctx, p)
}

// move until it is done or cannot be.
func (m *mover) move(ctx context.Context) (*plan, error) {
	var obstacle error
	for retries := 0; ; {
		p, err := m.attempt(ctx)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return nil, stopped(ctx, obstacle)
		case (apierrors.IsConflict(err) || m.started != nil && unanswered(err)) && retries < mostRetries:
			retries++
			m.progress.waiting("trying again: %v", err)
		case inFlight(err) && !m.options.dryRun:
			m.progress.waiting("waiting: %v", err)
		default:
			return nil, err
		}
		obstacle = err
		if sleep(ctx, retryInterval) != nil {
			return nil, stopped(ctx, obstacle)
		}
	}
}

// attempt to move, from reading to marking. It is repeated as a whole where
// something changed meanwhile.
func (m *mover) attempt(ctx context.Context) (*plan, error) {
	p, err := m.plan(ctx)
	if err != nil {
		return nil, err
	}
	if m.doubtful != nil && !contains(p.unmark, m.doubtful) {
		m.say(unmarkedLine(m.doubtful))
	}
	m.doubtful = nil
	switch {
	case p.done() && m.started != nil: // The answer to the last write did not arrive.
		m.say(m.started.lines()...)
		return p, nil
	case p.done():
		m.say(fmt.Sprintf("%s: the default for %s already", p.target, seatTexts(p.seats)))
		return p, nil
	}
	if err := m.check(ctx, p); err != nil {
		return nil, err
	}
	if m.options.dryRun {
		for _, d := range p.unmark {
			m.say(unmarkedLine(d))
		}
		m.say(p.lines()...)
		return p, nil
	}
	if m.started == nil {
		m.started = p
	}
	for _, d := range p.unmark {
		err := m.unmark(ctx, d, false)
		if unanswered(err) {
			m.doubtful = d
		}
		if err == nil || unanswered(err) {
			m.unmarked = append(m.unmarked, d)
		}
		if err != nil {
			return nil, err
		}
		m.say(unmarkedLine(d))
	}
	if p.mark {
		// What others than the guard refuse is better refused in a dry run: once the
		// guard has admitted the target, it holds back everybody else for a while, the
		// former default included.
		if err := m.mark(ctx, p.target, true); err != nil {
			return nil, err
		}
		if err := m.mark(ctx, p.target, false); err != nil {
			return nil, err
		}
	}
	m.say(m.started.lines()...)
	return p, nil
}

// plan from what the API server has now.
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
	target, err := m.class(ctx, kind.ClassKind, m.name.namespace, m.name.name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no class %s: create it, without the mark of a default, or name another: %w", m.name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get the class %s: %w", m.name, err)
	}
	defaults, err := m.defaults(ctx, r.related(kind.ClaimKinds))
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(defaults, func(d *storedClass) bool { return d.String() == target.String() })
	p, err := newPlan(r, target, others, claimKinds, without)
	if err != nil {
		return nil, err
	}
	if m.started != nil {
		for _, d := range p.unmark {
			if !contains(m.started.unmark, d) {
				return nil, fmt.Errorf("%s was made the default meanwhile", d)
			}
		}
	}
	if !m.planned {
		m.planned = true
		m.warn(r, kind, p)
	}
	return p, nil
}

// check with dry runs whether the plan can be carried out.
func (m *mover) check(ctx context.Context, p *plan) error {
	for _, d := range p.unmark {
		if err := m.unmark(ctx, d, true); err != nil {
			return err
		}
	}
	if !p.mark {
		return nil
	}
	err := m.mark(ctx, p.target, true)
	// That the guard sees the present default is no obstacle, and proves that the
	// request got as far as that: the user is permitted to make it, and the schema
	// and the policies, which are asked before webhooks are, have nothing against it.
	if len(p.unmark) > 0 && refusedByGuard(err, p.target.Kind) && !inFlight(err) {
		return nil
	}
	return err
}

func (m *mover) unmark(ctx context.Context, c *storedClass, dryRun bool) error {
	after, err := m.setMark(ctx, c, nil, dryRun)
	if err == nil && after.Default {
		err = errKept
	}
	if err != nil {
		return fmt.Errorf("cannot take the mark from %s: %w", c, err)
	}
	return nil
}

func (m *mover) mark(ctx context.Context, c *storedClass, dryRun bool) error {
	after, err := m.setMark(ctx, c, c.marked(), dryRun)
	if err == nil && !after.Default {
		err = errKept
	}
	if err != nil {
		return fmt.Errorf("cannot mark %s as the default: %w", c, err)
	}
	return nil
}

// errKept says that the API server took the write and made something else of it.
var errKept = errors.New("the mark does not change, because the schema or a webhook changes it back: see spec.default of the ClassKind")
