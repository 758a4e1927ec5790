package explain

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// countedFor are the claim kinds whose claims use the capacity of a class kind, none if its classes have none.
func countedFor(ck *v1beta1.ClassKind, among []v1beta1.ClaimKind) []*v1beta1.ClaimKind {
	if !ck.HasCapacity() {
		return nil
	}
	return rules.Served(ck, among)
}

// count the claims of the cluster that use the capacities of the classes of a claim kind. Each claim kind is listed once.
func (w *World) count(ctx context.Context, k *v1beta1.ClaimKind) {
	for _, ck := range rules.Serving(k, w.classKinds) {
		for _, served := range countedFor(ck, w.claimKinds) {
			countClaims(ctx, w, served)
		}
	}
}

// countClaims of a kind by class, once.
func countClaims(ctx context.Context, w *World, k *v1beta1.ClaimKind) {
	if w.inCluster[k.Name] != nil || w.cluster == nil {
		return
	}
	serving := rules.Serving(k, w.classKinds)
	kind, offer := selector.NewClaimKind(k, serving...), []*inventory.Classes{}
	kind.Tally = &selector.Tally{}
	for _, ck := range serving { // A view says whose claims a reference cannot tell apart.
		if compiled, _, err := (&Kind{world: w}).classKind(ctx, ck); err == nil && compiled != nil {
			offer = append(offer, inventory.NewClasses(compiled, nil))
		}
	}
	view := selector.NewView(kind, offer)
	view.Conflict = selector.ConflictOf(k, w.claimKinds)
	w.inCluster[k.Name] = view
	of := w.resourceOf(ctx, k)
	switch {
	case of.new, notServed(of.unread): // There are none.
	case of.unread != nil:
		w.uncounted[k.Name] = of.unread
	default:
		resource := of.GroupVersion().WithResource(schema.ParseGroupResource(k.Resource()).Resource)
		w.uncounted[k.Name] = w.stream.Pages(ctx, resource, "", func(raw []byte) error {
			s, err := latebinding.ReadStored(kind, raw)
			if err == nil { // Others are counted nevertheless.
				for _, class := range s.Classes {
					kind.Tally.Bind(class, kind.ShareOf(s.Namespace, s.Usage))
				}
			}
			return nil
		}, func() error { return nil })
	}
}

// countRoom has the kind know how much of each class is taken. A note says of which class kinds that is not known.
func (k *Kind) countRoom(ctx context.Context) {
	if !k.Kind.Limited || k.Kind.Room != nil {
		return
	}
	k.world.count(ctx, k.spec)
	k.Kind.Room = k.world.inCluster.Room
	switch unknown, err := k.uncounted(); {
	case err != nil:
		k.note("not all is known that is taken of each class of %s: %v", selector.List(unknown), err)
	case len(unknown) > 0:
		k.note("how much is taken of each class of %s is not known here: each counts as empty", selector.List(unknown))
	}
}

// uncounted are the class kinds of whose classes it is not known how much is taken, and why.
func (k *Kind) uncounted() (classKinds []string, err error) {
	w, unknown := k.world, sets.New[string]()
	for _, ck := range rules.Serving(k.spec, w.classKinds) {
		for _, served := range countedFor(ck, w.claimKinds) {
			if failed := w.uncounted[served.Name]; failed != nil {
				unknown.Insert(ck.Name)
				err = fmt.Errorf("cannot list the claims of %q: %w", served.Name, failed)
			}
		}
		if ck.HasCapacity() && w.cluster == nil {
			unknown.Insert(ck.Name)
		}
	}
	return sets.List(unknown), err
}

// Count the claims of the cluster by class, where the strategy or a capacity goes by that, for whoever binds claims. It goes on with the
// counts of the same kind as it was before, unless they would differ.
func (k *Kind) Count(ctx context.Context, before *Kind) error {
	if !k.Kind.Limited && !k.Kind.Strategy.Counted {
		return nil
	}
	w := k.world
	if before != nil && before.Kind.Tally != nil && before.Kind.Same(k.Kind) {
		w.inCluster, w.uncounted = before.world.inCluster, before.world.uncounted
	}
	countClaims(ctx, w, k.spec)
	k.countRoom(ctx)
	k.Kind.Tally = w.inCluster[k.spec.Name].Kind.Tally
	_, err := k.uncounted()
	if err = errors.Join(w.uncounted[k.spec.Name], err); err != nil {
		return fmt.Errorf("cannot count the claims of each class: %w", err)
	}
	return nil
}
