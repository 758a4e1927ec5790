package race

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// The kinds of an arena, which has so many pools. Each holds so much, and a part of that for one namespace.
const (
	pool, claim, ledger                               = "Pool", "CLAIM", "Ledger"
	poolsOfArena, capacityOfPool, capacityOfNamespace = 10, 50, 20
	namespaceCapacity                                 = "per-namespace"
)

// arenaPause is the longest between two kills. A leader that is killed has a successor after 15 s, and only a leader counts.
const arenaPause = 15 * time.Second

// quiet is how long it may take after the last write until nothing is reserved: there is a leader again, and the window is over.
const quiet = time.Minute

var (
	pools      = Kinds{pool: {claim}}
	namespaces = []string{"race-1", "race-2", "race-3", "race-4"}
)

// arena is a lane in which claims fight for the last places of pools. The mutex of the lane guards what watches show.
type arena struct {
	*lane

	pools   []string
	auditor *auditor[Claim]
	ledgers map[string]v1beta1.LedgerSpec // by class
}

func newArena(l *lane) *arena {
	grace := l.scenario.Timing.Window + slack
	a := &arena{lane: l, auditor: newAuditor[Claim](capacityOfNamespace, grace), ledgers: map[string]v1beta1.LedgerSpec{}}
	for i := range poolsOfArena {
		a.pools = append(a.pools, fmt.Sprint("pool-", i))
	}
	l.note = a.noteChange
	return a
}

// claims of a namespace, through any of the API servers.
func (a *arena) claims(namespace string) dynamic.ResourceInterface {
	return a.api().Resource(a.resource(claim)).Namespace(namespace)
}

// fenced has the fence of a kind. That of claims is in a namespace that classbind leaves alone.
func (a *arena) fenced(kind string) dynamic.ResourceInterface {
	if kind == claim {
		return a.claims(metav1.NamespaceSystem)
	}
	return a.classes(kind)
}

func (a *arena) noteChange(kind string, version uint64, there bool, u *unstructured.Unstructured) {
	c := change[Claim]{version: version, seen: time.Now()}
	switch {
	case u.GetName() == fenceName:
		return
	case kind == ledger:
		l := v1beta1.Ledger{}
		a.err = errors.Join(a.err, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &l))
		if a.ledgers[l.Spec.Class] = l.Spec; !there {
			delete(a.ledgers, l.Spec.Class)
		}
		return
	case kind == pool:
		c.account = &account{u.GetName(), ""}
		c.holds, _ = strconv.ParseInt(u.GetAnnotations()[v1beta1.CapacityAnnotation], 10, 64)
	default:
		if c.user = (Claim{u.GetNamespace(), u.GetName()}); there {
			c.uses = usesOf(u)
		}
	}
	a.auditor.observe(c)
}

// ledger of a pool, with the lane's mu held.
func (a *arena) ledger(name string) v1beta1.LedgerSpec {
	return a.ledgers[a.resource(pool).GroupResource().String()+"/"+name]
}

// prepareArenas one beside the other: each waits for a window.
func (f *Fleet) prepareArenas(ctx context.Context, lanes []*lane) error {
	var manifest strings.Builder
	for _, name := range namespaces {
		manifest.WriteString("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n")
	}
	for _, l := range lanes {
		claims := l.resource(claim).GroupResource().String()
		manifest.WriteString(l.definitions() + classbind.Vendor(l.group))
		manifest.WriteString(classbind.ClaimKind(claims, "{reference: {path: .spec.classRef}, selector: {whenAbsent: Any}, "+
			"classes: {usage: 'has(claim.spec.size) ? claim.spec.size : 1'}}"))
		manifest.WriteString(classbind.ClassKind(l.resource(pool).GroupResource().String(), "{claimKinds: [{name: "+claims+"}], "+
			"capacity: {enforcement: Hard, perNamespace: {annotation: "+namespaceCapacity+"}}}"))
	}
	if _, _, err := f.cluster.Kubectl(ctx, strings.NewReader(manifest.String()), "apply", "-f", "-"); err != nil {
		return err
	}
	var all errgroup.Group
	for _, l := range lanes {
		all.Go(func() error { return l.arena.prepare(ctx) })
	}
	return all.Wait()
}

// prepare watches all kinds, creates the pools, and waits until their capacities are enforced.
func (a *arena) prepare(ctx context.Context) (err error) {
	err = a.watch(ctx, map[string]dynamic.ResourceInterface{
		pool: a.classes(pool), claim: a.claims(""),
		ledger: a.api().Resource(v1beta1.GroupVersion.WithResource("ledgers")).Namespace(classbind.Namespace),
	})
	if err != nil {
		return err
	}
	// No claim gets the fence: nobody would judge it.
	capacities := map[Class]int{{claim, fenceName}: 0, {pool, fenceName}: 0}
	for _, name := range a.pools {
		capacities[Class{pool, name}] = capacityOfPool
	}
	for c, total := range capacities {
		holds := map[string]string{
			v1beta1.CapacityAnnotation: strconv.Itoa(total), namespaceCapacity: strconv.Itoa(capacityOfNamespace),
		}
		err := eventually(ctx, "create "+c.String(), func() error {
			_, err := a.fenced(c.Kind).Create(ctx, a.object(c, holds), metav1.CreateOptions{})
			return client.IgnoreAlreadyExists(err)
		})
		if err != nil {
			return err
		}
	}
	return eventually(ctx, "enforce capacities", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if slices.ContainsFunc(a.pools, func(name string) bool { return !a.ledger(name).Open }) {
			return errors.New("a ledger is not open")
		}
		return nil
	})
}

// round of writers of any claims. Some of them fight for one pool.
func (a *arena) round(ctx context.Context, writers int) error {
	contested := anyOf(a.pools)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, writeTimeout)
			defer cancel()
			what, o, err := a.write(limited, contested)
			a.count(func() { a.tally[o]++ })
			if ctx.Err() == nil && (o == Unexpected || o.guarded() || o.inChaosOnly() && o != Overtaken && !a.scenario.Chaos) {
				a.violation("%s was %s: %v", what, o, err)
			}
		})
	}
	all.Wait()
	return a.replay(ctx)
}

// replay all that happened up to now.
func (a *arena) replay(ctx context.Context) error {
	version, err := a.fence(ctx, []string{pool, claim}, a.fenced)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.auditor.until(version) {
		a.worst("%s/%s had claims of namespace %q use %d of %d of %s at resourceVersion %d",
			e.user.Namespace, e.user.Name, e.account.part, e.used, e.limit, e.account.of, e.version)
	}
	return nil
}

// settle waits until nothing is reserved, and all that is used is counted.
func (a *arena) settle(ctx context.Context) error {
	for start := time.Now(); ; pause(ctx, tryAgain) {
		if err := a.replay(ctx); err != nil {
			return err
		}
		why := a.unsettled()
		if why == nil || time.Since(start) > quiet {
			if why != nil {
				a.violation("ledgers are wrong %s after the last write: %v", quiet, why)
			}
			return nil
		}
	}
}

func (a *arena) unsettled() (why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.pools {
		l, used := a.ledger(name), map[string]int64{}
		for _, n := range namespaces {
			if amount := a.auditor.used[account{name, n}]; amount > 0 {
				used[n] = amount
			}
		}
		if len(l.Reservations) > 0 || l.Used != a.auditor.used[account{name, ""}] || !maps.Equal(l.Namespaces, used) {
			why = errors.Join(why, fmt.Errorf("claims use %v of %s, and its ledger is %+v", used, name, l))
		}
	}
	return why
}

// administer has the capacities of pools go down and up, until the context ends.
func (a *arena) administer(ctx context.Context) error {
	for pauseUpTo(ctx, 2*time.Second); ctx.Err() == nil; pauseUpTo(ctx, 2*time.Second) {
		amount := capacityOfPool
		if oneIn(2) {
			amount -= below(capacityOfPool / 2)
		}
		err := plainly(ctx, func() error {
			_, err := annotate(ctx, a.classes(pool), anyOf(a.pools), v1beta1.CapacityAnnotation, fmt.Sprintf(`"%d"`, amount))
			return err
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot change a capacity: %w", err)
		}
	}
	return nil
}
