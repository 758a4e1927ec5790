package registry

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

// What is read of a claim depends on the expressions of the ClassKinds that serve its ClaimKind, and what is held of a class on those of
// the ClaimKinds that its ClassKind serves. So a change of one is a change of the other. A ClassKind may also need the claims counted.

// registeredClaimKind is what a ClaimKind was compiled to, and what the schema of its claims says.
type registeredClaimKind struct {
	kind  *selector.ClaimKind
	paths Paths
}

// register a new or changed claim kind, compiled with the class kinds that serve it. One that is the same stays, with what its strategy
// remembers. It keeps its serial if only the status or the schema of its claims differs.
func (r *Registration) register(kind *selector.ClaimKind, paths Paths) {
	old := r.RelatedKinds.claimKind(kind.Name)
	same := old.kind != nil && old.kind.Same(kind)
	if same && paths.Version == old.paths.Version && reflect.DeepEqual(old.paths.Check, paths.Check) {
		old.kind.CannotBindLater.Store(kind.CannotBindLater.Load())
		if !reflect.DeepEqual(old.paths, paths) { // The status says why the schema cannot be read.
			r.RelatedKinds.need(kind.Name, registeredClaimKind{old.kind, paths})
			r.registered.Notify(kind.Name)
		}
		return
	}
	kind.SetPaths(paths.Check)
	kind.Reader.Version = paths.Version
	if kind.Watched {
		kind.Tally = r.Tallies.Tally(kind)
	}
	if kind.Limited {
		kind.Room = r.Tallies.room
	}
	if same {
		kind.Serial = old.kind.Serial
	} else {
		kind.Serial = r.serial.Add(1)
	}
	r.Inventory.SetClaimKind(kind)
	r.RelatedKinds.need(kind.Name, registeredClaimKind{kind, paths})
	r.registered.Notify(kind.Name)
}

// OnRegistered calls a function with the name of each claim kind that is compiled, until the context ends.
func (r *Registration) OnRegistered(ctx context.Context, call func(claimKind string)) {
	r.registered.Add(ctx, call)
}

// List returns all registrations, which are read-only, by name: every new order would be a change of what is written.
func List(ctx context.Context, from client.Reader) (claimKinds []v1beta1.ClaimKind, classKinds []v1beta1.ClassKind, err error) {
	claims, classes := &v1beta1.ClaimKindList{}, &v1beta1.ClassKindList{}
	if err := from.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("cannot list claim kinds: %w", err)
	}
	if err := from.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("cannot list class kinds: %w", err)
	}
	slices.SortFunc(claims.Items, func(a, b v1beta1.ClaimKind) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(classes.Items, func(a, b v1beta1.ClassKind) int { return strings.Compare(a.Name, b.Name) })
	return claims.Items, classes.Items, nil
}

// classKindsServing are the ClassKinds that serve a ClaimKind.
func classKindsServing(ctx context.Context, cache client.Reader, k *v1beta1.ClaimKind) ([]*v1beta1.ClassKind, error) {
	_, all, err := List(ctx, cache)
	return rules.Serving(k, all), err
}

// claimKindsServed are the ClaimKinds that a ClassKind serves.
func claimKindsServed(ctx context.Context, cache client.Reader, k *v1beta1.ClassKind) ([]*v1beta1.ClaimKind, error) {
	all, _, err := List(ctx, cache)
	return rules.Served(k, all), err
}

// claimKindsLookedAt requests the ClaimKinds whose claims a ClassKind may look at or count. What fails here fails in the reconciliation,
// too.
func (r *Registration) claimKindsLookedAt(ctx context.Context, classKind client.Object) (names []string) {
	if k, ok := classKind.(*v1beta1.ClassKind); ok && (len(k.Spec.Fits) > 0 || k.CountsClaims()) {
		served, _ := claimKindsServed(ctx, r.Resources.reader, k)
		for _, c := range served {
			names = append(names, c.Name)
		}
	}
	return names
}

// classKindsLookedAt requests the ClassKinds that a ClaimKind names, and those whose classes it may look at.
func (r *Registration) classKindsLookedAt(ctx context.Context, claimKind client.Object) (names []string) {
	k, ok := claimKind.(*v1beta1.ClaimKind)
	if !ok {
		return nil
	}
	for _, named := range k.Spec.Classes.Kinds {
		names = append(names, named.Name)
	}
	if len(k.Spec.Classes.Fits) > 0 || k.Spec.Classes.Partition != nil || k.Spec.Choice.Score != "" || k.Spec.Choice.External != nil {
		serving, _ := classKindsServing(ctx, r.Resources.reader, k)
		for _, c := range serving {
			names = append(names, c.Name)
		}
	}
	return names
}
