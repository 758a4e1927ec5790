package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
	"github.com/classbind/classbind/webhook/capacity"
)

// ledgers are those of a cluster.
type ledgers struct {
	all *capacity.Ledgers
	// of has the names of class kinds that have one.
	of map[string]bool
	// err is why none is known.
	err error
}

// listLedgers lists them once, for a claim kind that needs them.
func (r *registrations) listLedgers(ctx context.Context) *ledgers {
	if r.ledgers != nil {
		return r.ledgers
	}
	r.ledgers = &ledgers{of: map[string]bool{}}
	listed := &v1beta1.LedgerList{}
	if err := r.cluster.API.List(ctx, listed, client.InNamespace(r.own)); err != nil {
		r.ledgers.err = fmt.Errorf("cannot list the ledgers of the namespace %q: %w", r.own, truncate.Error(err))
	}
	for i := range listed.Items {
		of, _, _ := strings.Cut(listed.Items[i].Spec.Class, "/")
		r.ledgers.of[of] = true
	}
	r.ledgers.all = capacity.Listed(listed.Items)
	return r.ledgers
}

// addRoom has a claim kind know how much is taken of each class whose capacity is enforced. A class that files add has no ledger
// and counts as empty.
func addRoom(ctx context.Context, r *registrations, kind *selector.ClaimKind, serving []*v1beta1.ClassKind, v *view) {
	known, why := map[string]bool{}, ""
	if kind.Hard && r.cluster != nil {
		l, onTop := r.listLedgers(ctx), len(r.source.classKinds)+len(r.objects) > 0
		if l.err != nil {
			why = fmt.Sprintf(" (%v)", l.err)
		}
		for _, ck := range serving {
			known[ck.Name] = ck.IsHard() && l.err == nil && (!onTop || l.of[ck.Name])
		}
		kind.Room = func(namespace string, c *inventory.Class) selector.Room {
			if !known[c.Kind.Name] || onTop && !l.all.Has(c) {
				return selector.Room{}
			}
			return l.all.Room(namespace, c)
		}
	}
	var unknown []string
	for _, ck := range serving {
		if ck.HasCapacity() && !known[ck.Name] {
			unknown = append(unknown, ck.Name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		v.unknownRoom = fmt.Sprintf("how much is taken of each class of %s is not known here%s: each counts as empty",
			selector.List(unknown), why)
		v.note("%s", v.unknownRoom)
	}
}
