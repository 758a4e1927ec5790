package setdefault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	missing := []string{"its status was not read"}
	err := wait.PollUntilContextCancel(ctx, confirmInterval, true, func(ctx context.Context) (bool, error) {
		now := m.unconfirmed(ctx, p)
		if ctx.Err() != nil { // The previous result says more.
			return false, ctx.Err()
		}
		if missing = now; len(missing) == 0 {
			return true, nil
		}
		m.waiting("waiting for classbind to see it: %s", strings.Join(missing, "; "))
		return false, m.overtaken(ctx, p)
	})
	if err == nil || errors.As(err, new(*exit.Error)) {
		return err
	}
	return fmt.Errorf("%w; the marks are set, but classbind has not confirmed it: %s; "+
		"see whether classbind runs and may read the classes: kubectl get claimkinds,classkinds",
		stopped(ctx, nil), strings.Join(missing, "; "))
}

// overtaken returns an error if the new default has lost its mark again, with the class
// that is the default now. It returns nil if it cannot tell.
func (m *mover) overtaken(ctx context.Context, p *plan) error {
	target := p.target
	now, err := m.class(ctx, target.Kind, target.Namespace, target.Name)
	if err == nil && now.Default || err != nil && !apierrors.IsNotFound(err) {
		return nil
	}
	var is string
	views, err := m.views(ctx, m.registered, m.kind)
	var defaults []*inventory.Class
	for _, seat := range p.seats {
		if v := views[seat.ClaimKind]; v != nil {
			defaults = append(defaults, v.DefaultsOf(seat)...)
		}
	}
	switch {
	case err != nil:
		is = fmt.Sprintf("cannot tell which class is the default now: %v", err)
	case len(defaults) == 0:
		is = "no class is the default now; if another set-default is running, it may be about to set one; otherwise, run this command again"
	default:
		is = fmt.Sprintf("the default is %s now; to move it all the same, run this command again", list(slices.Compact(defaults), nameOf))
	}
	return &exit.Error{Status: exit.Overtaken, Err: fmt.Errorf("%s, but lost its mark meanwhile; %s", p.line(), is)}
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
		if err := m.api.Get(ctx, client.ObjectKey{Name: name}, k); err != nil {
			missing = append(missing, fmt.Sprintf("cannot get ClaimKind %s: %v", name, err))
			continue
		}
		seen := list(k.Status.Defaults, func(d v1beta1.DefaultClass) string { return className{d.Kind, d.Namespace, d.Name}.String() })
		if seen != p.target.String() || !meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionSingleDefault) {
			missing = append(missing, fmt.Sprintf("ClaimKind %s has status.defaults %q", name, seen))
		}
	}
	return missing
}
