package setdefault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
		m.progress.printf("%v; but it was stored", failure)
		m.printResult(m.started.lines()...)
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
		m.printResult(fmt.Sprintf("%s: the default for %s again", c, strings.Join(c.claimKinds(), ", ")))
		text = fmt.Sprintf("%s is the default again", c)
		return nil
	}, func(err error) string {
		if !inFlight(err) && !unanswered(err) && !apierrors.IsConflict(err) {
			return ""
		}
		if !waited {
			waited = true
			m.progress.printf("%s is to get its mark back; to leave that to you, interrupt again, and later run: %s",
				c, c.markCommand())
		}
		return "waiting"
	})
	return text, err
}

func sameObject(a, b *storedClass) bool { return a.object.GetUID() == b.object.GetUID() }
