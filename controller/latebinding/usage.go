package latebinding

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// usages are how much the claims of one kind use of each class, and what the watch has seen of each claim: for kinds whose
// classes have a capacity with enforcement Hard. Nil keeps nothing.
type usages struct {
	version          uint64 // the highest resourceVersion that was seen
	claims           map[types.UID]claimUsage
	classes          map[uint64]map[string]int64 // by the class, as claims refer to it, and by the namespace of the claims
	gone, goneBefore map[types.UID]struct{}      // claims that were deleted; the latter are forgotten first
}

// claimUsage is what one claim uses of the class that it names.
type claimUsage struct {
	version   uint64
	namespace string
	classes   [2]uint64 // 0 is none
	amount    int64
}

// maxGone is how many deleted claims are remembered, twice at most.
const maxGone = 10_000

func newUsages(kind *selector.ClaimKind) *usages {
	if !kind.Hard {
		return nil
	}
	return &usages{claims: map[types.UID]claimUsage{}, classes: map[uint64]map[string]int64{}, gone: map[types.UID]struct{}{}}
}

func newClaimUsage(kind *selector.ClaimKind, namespace, version string, object map[string]any) (u claimUsage) {
	u.version, u.namespace = parseVersion(version), namespace
	to, has := kind.RefersTo(object)
	if !has {
		return u
	}
	u.classes, u.amount = kind.CountsFor(namespace, to), usageOf(kind, object)
	return u
}

// parseVersion of an object; 0 for one that is not a number, which no API server has.
func parseVersion(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

func (u *usages) put(uid types.UID, uses claimUsage) {
	if u == nil {
		return
	}
	u.version = max(u.version, uses.version)
	u.add(u.claims[uid], -1)
	u.claims[uid] = uses
	u.add(uses, 1)
}

func (u *usages) add(c claimUsage, sign int64) {
	for _, class := range c.classes {
		if class == 0 {
			continue
		}
		of := u.classes[class]
		if of == nil {
			of = map[string]int64{}
			u.classes[class] = of
		}
		if of[c.namespace] += sign * c.amount; of[c.namespace] == 0 {
			delete(of, c.namespace)
		}
		if len(of) == 0 {
			delete(u.classes, class)
		}
	}
}

func (u *usages) remove(uid types.UID, version uint64) {
	if u == nil {
		return
	}
	u.version = max(u.version, version)
	u.add(u.claims[uid], -1)
	delete(u.claims, uid)
	if len(u.gone) == maxGone {
		u.gone, u.goneBefore = map[types.UID]struct{}{}, u.gone
	}
	u.gone[uid] = struct{}{}
}

// shows reports whether the watch has seen what became of a write.
func (u *usages) shows(w selector.Write) bool {
	uid := types.UID(w.UID)
	if c, there := u.claims[uid]; there {
		return w.Base == "" || c.version > parseVersion(w.Base)
	}
	_, gone := u.gone[uid]
	_, goneBefore := u.goneBefore[uid]
	return gone || goneBefore
}

func (u *usages) addTo(usage *selector.Usage, class uint64) {
	for namespace, used := range u.classes[class] {
		usage.Used += used
		usage.Namespaces[namespace] += used
	}
}

func newUsage() selector.Usage {
	return selector.Usage{Namespaces: map[string]int64{}, Versions: map[string]uint64{}, Shown: map[selector.Write]bool{}}
}

// Usages are how much claims use of classes, for whoever keeps the ledgers.
type Usages struct{ Claims *Claims }

// OnChange calls a function after each change of the claims, until the context ends.
func (u Usages) OnChange(ctx context.Context, call func(claimKind string)) {
	u.Claims.OnChange(ctx, call)
}

// Usage of a class by the claims that are watched, and which of these writes the watches show. known is false until the
// claims of all kinds that can have the class are listed.
func (u Usages) Usage(class *inventory.Class, writes []selector.Write) (usage selector.Usage, known bool) {
	watches, known := u.using(class.Kind)
	usage = newUsage()
	for _, w := range watches {
		_, seen := w.LastConfirmed()
		version := parseVersion(seen)
		w.own(func(s *claimState) {
			if s.usages == nil {
				return
			}
			usage.Versions[w.kind.Name] = max(version, s.usages.version)
			s.usages.addTo(&usage, w.kind.CountedAs(class))
			for _, write := range writes {
				if write.ClaimKind == w.kind.Name && s.usages.shows(write) {
					usage.Shown[write] = true
				}
			}
		})
		known = known && usage.Versions[w.kind.Name] != 0 // It is not if the watch was stopped.
	}
	return usage, known
}

// using are the watches of all claims that can have classes of a kind. known is false while one is missing.
func (u Usages) using(kind *inventory.ClassKind) (watches []*claimWatch, known bool) {
	snapshot, all := u.Claims.registration.Inventory.Snapshot(), u.Claims.watches()
	for _, name := range kind.ClaimKinds {
		view := snapshot[name]
		if view == nil || view.Conflict != nil || errors.Is(u.Claims.Problem(name), cluster.ErrNotInstalled) {
			continue
		}
		w := all[name]
		if w == nil || !w.kind.Hard || !w.published.Load().synced {
			return nil, false
		}
		watches = append(watches, w)
	}
	return watches, snapshot != nil
}

// List all claims that can have classes of a kind, now. It returns what they use of each class.
func (u Usages) List(ctx context.Context, kind *inventory.ClassKind) (func(*inventory.Class) selector.Usage, error) {
	watches, known := u.using(kind)
	if !known {
		return nil, fmt.Errorf("cannot list all claims that can have classes of %q: %w", kind.Name, errNoAnswer)
	}
	listed := map[*claimWatch]*usages{}
	for _, w := range watches {
		all := newUsages(w.kind)
		version, err := u.Claims.client.list(ctx, w.resource, func(raw []byte) error {
			head, err := readHead(raw)
			if err != nil {
				return err
			}
			object, err := w.kind.DecodeValid(raw)
			if err != nil {
				return err
			}
			m := head.Metadata
			all.put(m.UID, newClaimUsage(w.kind, m.Namespace, m.ResourceVersion, object))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("cannot list the claims of %q: %w", w.kind.Name, err)
		}
		all.version = parseVersion(version)
		listed[w] = all
	}
	return func(class *inventory.Class) selector.Usage {
		usage := newUsage()
		for w, all := range listed {
			usage.Versions[w.kind.Name] = all.version
			all.addTo(&usage, w.kind.CountedAs(class))
		}
		return usage
	}, nil
}

// Landed reads whether a write is stored: its claim is there at another version than the base. A write of a claim kind
// that is not watched any more is not.
func (u Usages) Landed(ctx context.Context, write selector.Write) (bool, error) {
	w := u.Claims.watches()[write.ClaimKind]
	if w == nil {
		return false, nil
	}
	raw, err := u.Claims.client.Get(ctx, w.resource, write.Namespace, write.Name)
	if raw == nil || err != nil {
		return false, err
	}
	head, err := readHead(raw)
	return string(head.Metadata.UID) == write.UID && head.Metadata.ResourceVersion != write.Base, err
}
