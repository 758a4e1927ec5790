package setdefault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector/inventory"
)

const confirmInterval = 200 * time.Millisecond

// confirm waits until the status of every claim kind names the new default. It does not wait for the default of a single namespace or
// partition: there may be thousands, and the status does not name them. It ends at once if somebody else took the mark of the new default
// meanwhile: the status would never name it.
func (m *mover) confirm(ctx context.Context, p *plan) error {
	m.reported = time.Now() // It usually takes less than a second.
	var missing []string
	err := wait.PollUntilContextCancel(ctx, confirmInterval, true, func(ctx context.Context) (bool, error) {
		now := m.unconfirmed(ctx, p)
		if ctx.Err() != nil { // The previous result says more.
			return false, ctx.Err()
		}
		missing = now
		if len(missing) > 0 {
			if err := m.overtaken(ctx, p); err != nil {
				return false, err
			}
			m.waiting("waiting for classbind to see it: %s", strings.Join(missing, "; "))
		}
		return len(missing) == 0, nil
	})
	if err == nil || exit.Status(err) == exit.Found {
		return err
	}
	if missing == nil { // There was no time for a single look.
		missing = p.claimKinds
	}
	return fmt.Errorf("%w; the marks are set, but classbind has not confirmed it: %s; "+
		"see whether classbind runs and may read the classes: kubectl get claimkinds,classkinds",
		stopped(ctx, nil), strings.Join(missing, "; "))
}

// overtaken returns an error if the new default has lost its mark again, with the class
// that is the default now. It returns nil if that is unknown.
func (m *mover) overtaken(ctx context.Context, p *plan) error {
	target := p.target
	now, err := m.class(ctx, target.Kind, target.Namespace, target.Name)
	gone := apierrors.IsNotFound(err) || err == nil && (!sameObject(now, target) || now.Terminating)
	if err != nil && !gone || err == nil && !gone && now.Default {
		return nil
	}
	did := "its mark was taken"
	if gone {
		did = "it was deleted"
	}
	return exit.Finding(fmt.Errorf("%s was the default for %s, but %s meanwhile; %s",
		target, listFunc(p.seats, seatText), did, m.successor(ctx, p)))
}

// successor names which classes are the default now where the target was.
func (m *mover) successor(ctx context.Context, p *plan) string {
	var defaults []*storedClass
	r, err := m.registry(ctx)
	if err == nil {
		defaults, err = m.defaults(ctx, r.related(p.target.Kind.ClaimKinds))
	}
	if err != nil {
		return fmt.Sprintf("cannot determine which class is the default now: %v", err)
	}
	now := r.takers(defaults, p.seats...)
	if len(now) == 0 {
		return "no class is the default now; if another set-default is running, it may be about to set one; " +
			"otherwise, run this command again"
	}
	return fmt.Sprintf("the default is %s now; to move it all the same, run this command again", list(now))
}

// unconfirmed returns, for each claim kind without the new default, what its status says instead.
func (m *mover) unconfirmed(ctx context.Context, p *plan) []string {
	var missing []string
	for _, seat := range p.seats {
		name := seat.ClaimKind
		if seat != (inventory.Seat{ClaimKind: name}) {
			continue
		}
		k := &v1beta1.ClaimKind{}
		if err := m.API.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
			missing = append(missing, fmt.Sprintf("cannot get ClaimKind %s: %v", name, err))
			continue
		}
		var seen []className
		for _, d := range k.Status.Defaults {
			seen = append(seen, className{d.Kind, d.Namespace, d.Name})
		}
		status := metav1.ConditionUnknown
		if single := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionSingleDefault); single != nil {
			status = single.Status
		}
		if status != metav1.ConditionTrue || list(seen) != p.target.Class.String() {
			missing = append(missing, fmt.Sprintf("ClaimKind %s has status.defaults %q and SingleDefault %s", name, list(seen), status))
		}
	}
	return missing
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
