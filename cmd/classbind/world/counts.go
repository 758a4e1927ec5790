package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Count the claims of the cluster that use the capacities of the classes of a claim kind. Each claim kind is listed once. It returns the
// class kinds of whose classes it is not known how much is taken, and why.
func (w *World) Count(ctx context.Context, k *v1beta1.ClaimKind) (unknown []string, err error) {
	for _, ck := range rules.Serving(k, w.ClassKinds) {
		if !ck.HasCapacity() {
			continue
		}
		isUnknown := w.Cluster == nil
		for _, served := range rules.Served(ck, w.ClaimKinds) {
			if failed := w.countClaims(ctx, served); failed != nil {
				isUnknown, err = true, fmt.Errorf("cannot list the claims of %q: %w", served.Name, failed)
			}
		}
		if isUnknown {
			unknown = append(unknown, ck.Name)
		}
	}
	slices.Sort(unknown)
	return unknown, err
}

// countClaims of a kind by class, once.
func (w *World) countClaims(ctx context.Context, k *v1beta1.ClaimKind) error {
	if w.inCluster[k.Name] != nil || w.Cluster == nil {
		return w.uncounted[k.Name]
	}
	serving := rules.Serving(k, w.ClassKinds)
	kind, offer := selector.NewClaimKind(k, serving...), []*inventory.Classes{}
	kind.Tally = &selector.Tally{}
	for _, ck := range serving { // A view lists whose claims a reference cannot distinguish.
		if compiled, err := (&Kind{world: w}).classKind(ctx, ck); err == nil && compiled != nil {
			offer = append(offer, inventory.NewClasses(compiled.ClassKind, nil))
		}
	}
	counted := &Kind{world: w, View: selector.NewView(kind, offer)}
	counted.View.Conflict = selector.ConflictOf(k, w.ClaimKinds)
	w.inCluster[k.Name] = counted.View
	of := w.Resource(ctx, k)
	err := of.Unread
	if err == nil && kind.Rules.UsageReadsOthers {
		var related []*inventory.Objects
		var fault *inventory.Fault
		related, fault, err = counted.relate(ctx, kind)
		counted.View = counted.View.WithRelated(related)
		counted.View.Fault = cmp.Or(counted.View.Fault, fault)
	}
	decider := w.Decider(nil, nil)
	decider.Patient = true
	if of.new || NotServed(err) { // There are none.
		return nil
	}
	if err == nil {
		err = w.Cluster.Objects.Pages(ctx, of.Of(k.Resource()), "", func(raw []byte) error {
			s, _ := latebinding.ReadStored(kind, raw)
			if !s.Bound { // It may be unreadable. Others are counted nevertheless.
				return nil
			}
			usage, err := decider.UsageOf(ctx, counted.View, s.Claim)
			for _, class := range s.Classes {
				kind.Tally.Bind(class, kind.ShareOf(s.Namespace, usage.Or(claim.Failed)))
			}
			return err
		}, ctx.Err)
	}
	w.uncounted[k.Name] = err
	return err
}

// CountRoom has the kind know how much of each class is taken. A note lists the class kinds for which that is unknown.
func (k *Kind) CountRoom(ctx context.Context) {
	if !k.View.Kind.Limited || k.View.Kind.Room != nil {
		return
	}
	k.View.Kind.Room = k.world.inCluster.Room
	switch unknown, err := k.world.Count(ctx, k.spec); {
	case err != nil:
		k.note("not all is known that is taken of each class of %s: %v", selector.List(unknown), err)
	case len(unknown) > 0:
		k.note("how much is taken of each class of %s is not known here: each counts as empty", selector.List(unknown))
	}
}

// Count the claims of the cluster by class, where the strategy or a capacity goes by that, for commands that bind claims. It goes on with
// the counts of the same kind as it was before, unless they would differ.
func (k *Kind) Count(ctx context.Context, before *Kind) error {
	if !k.View.Kind.Limited && !k.View.Kind.Strategy.Counted {
		return nil
	}
	w := k.world
	if before != nil && before.View.Kind.Tally != nil && before.View.Kind.Same(k.View.Kind) {
		w.inCluster, w.uncounted = before.world.inCluster, before.world.uncounted
	}
	err := w.countClaims(ctx, k.spec)
	k.CountRoom(ctx)
	k.View.Kind.Tally = w.inCluster[k.spec.Name].Kind.Tally
	_, failed := w.Count(ctx, k.spec)
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("cannot count the claims of each class: %w", err)
	}
	return nil
}
