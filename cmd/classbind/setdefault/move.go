package setdefault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// maxRetries limits the retries after a conflict with somebody else's write, or
	// after a write without an answer while there may be no default.
	maxRetries = 5
	// retryInterval is much shorter than the guard advises. The guard assumes the worst case; writes in flight are mostly stored soon.
	retryInterval = 500 * time.Millisecond
)

type mover struct {
	*cluster
	options       *options
	name          connect.Name
	namespace     string // namespace of the class, if its kind has any.
	out, progress io.Writer
	reported      time.Time
	results       []Result

	planned bool
	// started is the plan at the first write; nil before any write.
	started *plan
	// unmarked are the classes whose mark was taken, or may have been if no answer came.
	unmarked []*storedClass
	// uncertain is the class whose mark was to be taken when no answer came.
	uncertain *storedClass
}

func (m *mover) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.options.timeout, fmt.Errorf("timed out after %s", m.options.timeout))
	defer cancel()
	p, err := m.move(ctx)
	switch {
	case m.started == nil && m.planned && err != nil:
		return fmt.Errorf("%w\nnothing was changed", err)
	case m.started == nil: // There was no plan, or a dry run, or nothing to do.
		return err
	case err != nil:
		if err := m.putBack(ctx, err); err != nil {
			return err
		}
		p = m.started
	}
	return m.confirm(ctx, p)
}

func (m *mover) move(ctx context.Context) (p *plan, err error) {
	retries := 0
	err = m.retry(ctx, func() (err error) {
		p, err = m.attempt(ctx)
		return err
	}, func(err error) string {
		switch {
		case (apierrors.IsConflict(err) || m.started != nil && unanswered(err)) && retries < maxRetries:
			retries++
			return "trying again"
		case inFlight(err) && m.options.dryRun == connect.NoDryRun:
			return "waiting"
		}
		return ""
	})
	return p, err
}

// retry until do succeeds, or fails with an error for which again has no word.
func (m *mover) retry(ctx context.Context, do func() error, again func(error) string) error {
	var obstacle error
	for {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			word := again(err)
			if word == "" {
				return err
			}
			m.waiting("%s: %v", word, err)
			obstacle = err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return stopped(ctx, obstacle)
		}
	}
}

// attempt does the whole move, from reading to marking. move repeats it from the start if something changed meanwhile.
func (m *mover) attempt(ctx context.Context) (*plan, error) {
	p, err := m.plan(ctx)
	if err != nil {
		return nil, err
	}
	if m.uncertain != nil && !contains(p.unmark, m.uncertain) {
		m.printResult(unmarked(m.uncertain))
	}
	m.uncertain = nil
	switch {
	case p.done() && m.started != nil: // The answer to the last write did not arrive.
		m.printResult(m.started.results()...)
		return p, nil
	case p.done():
		m.printResult(Result{p.target.String(), AlreadyDefault, fmt.Sprintf("the default for %s already", listFunc(p.seats, seatText))})
		return p, nil
	}
	if m.options.dryRun != connect.ClientDryRun {
		if err := m.check(ctx, p); err != nil {
			return nil, err
		}
	}
	if m.options.dryRun != connect.NoDryRun {
		for _, d := range p.unmark {
			m.printResult(unmarked(d))
		}
		m.printResult(p.results()...)
		return p, nil
	}
	if m.started == nil {
		m.started = p
	}
	for _, d := range p.unmark {
		err := m.write(ctx, d, nil, false)
		if unanswered(err) {
			m.uncertain = d
		}
		if err == nil || unanswered(err) {
			m.unmarked = append(m.unmarked, d)
		}
		if err != nil {
			return nil, err
		}
		m.printResult(unmarked(d))
	}
	if p.mark {
		// A dry run first: if anything but the guard refuses the mark, it should do so here. Once the guard has admitted the target, it
		// holds back all others for a while, the former default included.
		for _, dryRun := range []bool{true, false} {
			if err := m.write(ctx, p.target, p.target.defaultMark(), dryRun); err != nil {
				return nil, err
			}
		}
	}
	m.printResult(m.started.results()...)
	return p, nil
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
	name := className{m.name.Kind, m.namespace, m.name.Name}
	if !kind.Namespaced { // As for kubectl, it does not matter.
		name.namespace = ""
	}
	target, err := m.class(ctx, kind.ClassKind, name.namespace, name.name)
	if apierrors.IsNotFound(err) {
		names := m.Names(ctx, kind.GroupVersionKind, name.namespace)
		return nil, fmt.Errorf("there is no class %s: create it, without the mark of a default, or name another%s: %w",
			name, near.Meant(name.name, names), err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get the class %s: %w", name, err)
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
	for _, d := range p.unmark {
		if m.started != nil && !contains(m.started.unmark, d) {
			return nil, fmt.Errorf("%s was made the default meanwhile", d)
		}
	}
	m.planned = true
	return p, nil
}

func (m *mover) check(ctx context.Context, p *plan) error {
	for _, d := range p.unmark {
		if err := m.write(ctx, d, nil, true); err != nil {
			return err
		}
	}
	if !p.mark {
		return nil
	}
	err := m.write(ctx, p.target, p.target.defaultMark(), true)
	// A refusal because of the present default is no obstacle. It proves that the request reached the guard: the user has the permission,
	// and the schema and the policies, which come before webhooks, accept it.
	if len(p.unmark) > 0 && refusedByGuard(err, p.target.Kind) && !inFlight(err) {
		return nil
	}
	return err
}

// write the mark of a class, or take it if it is empty.
func (m *mover) write(ctx context.Context, c *storedClass, to mark, dryRun bool) error {
	err := m.setMark(ctx, c, to, dryRun)
	switch {
	case err == nil:
		return nil
	case len(to) == 0:
		return fmt.Errorf("cannot take the mark from %s: %w", c, err)
	}
	return fmt.Errorf("cannot mark %s as the default: %w", c, err)
}

// putBackTimeout is longer than the guard can hold back the former default.
const putBackTimeout = 2 * time.Minute

// putBack restores the taken marks after a failure, and returns the failure with the outcome. It returns nil if the target is the default
// after all, because an answer got lost.
func (m *mover) putBack(ctx context.Context, failure error) error {
	if !m.started.mark { // The target had its mark before, and is still the default.
		return failure
	}
	// The failure may be a timeout or an interrupt, so ctx may have ended.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), putBackTimeout, fmt.Errorf("timed out after %s", putBackTimeout))
	defer cancel()
	target := m.started.target
	now, err := m.class(ctx, target.Kind, target.Namespace, target.Name)
	if err == nil && now.Default && sameObject(now, target) {
		m.reportf("%v; but it was stored", failure)
		m.printResult(m.started.results()...)
		return nil
	}
	var outcome []string
	for _, c := range m.unmarked {
		text, err := m.putBackOne(ctx, c)
		if err != nil {
			text = fmt.Sprintf("%s did not get its mark back: %v", c, err)
			if !refusedByGuard(err, c.Kind) { // The guard would refuse that command too; its error names one that works.
				text += "; to give it back, run: " + c.markCommand()
			}
		}
		if text != "" {
			outcome = append(outcome, text)
		}
	}
	if len(outcome) == 0 {
		outcome = append(outcome, "nothing was changed")
	}
	return fmt.Errorf("%w\n%s", failure, strings.Join(outcome, "\n"))
}

// putBackOne returns what it did, empty if nothing was necessary.
func (m *mover) putBackOne(ctx context.Context, c *storedClass) (text string, err error) {
	tried, waited := false, false
	err = m.retry(ctx, func() error {
		now, err := m.class(ctx, c.Kind, c.Namespace, c.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && (!sameObject(now, c) || now.Terminating):
			return errors.New("it was deleted meanwhile")
		case err != nil:
			return err
		case now.Default && !tried: // It was never taken.
			return nil
		case !now.Default:
			tried = true
			if err = m.setMark(ctx, now, c.mark(), false); err != nil {
				return err
			}
		}
		m.printResult(Result{c.String(), DefaultAgain, fmt.Sprintf("the default for %s again", strings.Join(c.claimKinds(), ", "))})
		text = fmt.Sprintf("%s is the default again", c)
		return nil
	}, func(err error) string {
		if !inFlight(err) && !unanswered(err) && !apierrors.IsConflict(err) {
			return ""
		}
		if !waited {
			waited = true
			m.reportf("%s is to get its mark back; to leave that to you, interrupt again, and later run: %s", c, c.markCommand())
		}
		return "waiting"
	})
	return text, err
}

func sameObject(a, b *storedClass) bool { return a.object.GetUID() == b.object.GetUID() }

// progressInterval, plus one retryInterval, is less than the 2 s after which people wonder what happens.
const progressInterval = 1400 * time.Millisecond

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
