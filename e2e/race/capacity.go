package race

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

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
	auditor *Auditor
	ledgers map[string]v1beta1.LedgerSpec // by class
	// reservations in one ledger, and bytes of its JSON, at most.
	reservations, bytes int
}

func newArena(l *lane) *arena {
	a := &arena{lane: l, auditor: NewAuditor(capacityOfNamespace, l.timing.Window+slack), ledgers: map[string]v1beta1.LedgerSpec{}}
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

func (a *arena) noteChange(kind string, version uint64, there bool, object metav1.Object) {
	u, _ := object.(*unstructured.Unstructured)
	c := Change{Version: version, Seen: time.Now()}
	switch {
	case u.GetName() == fenceName:
		return
	case kind == ledger:
		l := v1beta1.Ledger{}
		text, _ := json.Marshal(u) // It was JSON before.
		a.err = errors.Join(a.err, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &l))
		a.reservations, a.bytes = max(a.reservations, len(l.Spec.Reservations)), max(a.bytes, len(text))
		if a.ledgers[l.Spec.Class] = l.Spec; !there {
			delete(a.ledgers, l.Spec.Class)
		}
		return
	case kind == pool:
		c.Class = u.GetName()
		c.Amount, _ = strconv.ParseInt(u.GetAnnotations()[v1beta1.CapacityAnnotation], 10, 64)
	default:
		if c.Claim = (Claim{u.GetNamespace(), u.GetName()}); there {
			c.Use = useOf(u)
		}
	}
	a.auditor.Observe(c)
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
	if a.cluster, err = a.cluster.impatient(); err != nil {
		return err
	}
	for kind, resource := range map[string]dynamic.ResourceInterface{
		pool: a.classes(pool), claim: a.claims(""),
		ledger: a.api().Resource(v1beta1.GroupVersion.WithResource("ledgers")).Namespace(classbind.Namespace),
	} {
		list := &unstructured.UnstructuredList{}
		if err := eventually(ctx, "list "+kind, func() (err error) {
			list, err = resource.List(ctx, metav1.ListOptions{})
			return err
		}); err != nil {
			return err
		}
		if err := Follow(ctx, list.GetResourceVersion(), resource.Watch, func(e watch.Event) { a.observe(kind, e) }); err != nil {
			return fmt.Errorf("cannot watch %q: %w", kind, err)
		}
	}
	capacities := map[Class]int{{claim, fenceName}: 0, {pool, fenceName}: 0}
	for _, name := range a.pools {
		capacities[Class{pool, name}] = capacityOfPool
	}
	for c, total := range capacities {
		object := a.object(c, map[string]string{
			v1beta1.CapacityAnnotation: strconv.Itoa(total), namespaceCapacity: strconv.Itoa(capacityOfNamespace),
		})
		if err := eventually(ctx, "create "+c.String(), func() error {
			_, err := a.fenced(c.Kind).Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}); err != nil {
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

// eventually it can be done: API servers serve a new CRD a little later, and are slow while all begins.
func eventually(ctx context.Context, what string, do func() error) error {
	why := error(nil)
	err := wait.PollUntilContextTimeout(ctx, guardPoll, guardPatience, true, func(context.Context) (bool, error) {
		why = do()
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot %s: %w: %w", what, err, why)
	}
	return nil
}

// round of writers of any claims. Some of them fight for one pool. Where nothing disturbs them, every tenth round also
// fills a pool to the last place.
func (a *arena) round(ctx context.Context, number, writers int, r *report) error {
	contested := anyOf(a.pools)
	a.burst(ctx, number, writers, r, func(ctx context.Context, _ int) (string, Outcome, error) { return a.write(ctx, contested) })
	if err := a.replay(ctx, number, r); err != nil || r.chaos || number%10 != 0 {
		return err
	}
	return a.fill(ctx, number, writers, r)
}

// burst has writers write at once, and judges the answers.
func (a *arena) burst(
	ctx context.Context, number, writers int, r *report, write func(ctx context.Context, writer int) (what string, o Outcome, err error),
) {
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, writeTimeout)
			defer cancel()
			what, o, err := write(limited, i)
			r.count(func() { r.tally[o]++ })
			if ctx.Err() == nil && (o == Unexpected || o.guarded() || o.inChaosOnly() && o != Overtaken && !r.chaos) {
				r.violation("%s, round %d: %s was %s: %v", a.group, number, what, o, err)
			}
		})
	}
	all.Wait()
}

// replay all that happened up to now.
func (a *arena) replay(ctx context.Context, number int, r *report) error {
	version, err := a.fence(ctx, []string{pool, claim}, a.fenced)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.auditor.Until(version) {
		r.over("%s, round %d: %s/%s had claims of namespace %q use %d of %d of %s at resourceVersion %d",
			a.group, number, e.Claim.Namespace, e.Claim.Name, e.Namespace, e.Used, e.Limit, e.Class, e.Version)
	}
	return nil
}

// settle waits until nothing is reserved, and all that is used is counted.
func (a *arena) settle(ctx context.Context, number int, r *report) error {
	for start := time.Now(); ; pause(ctx, tryAgain) {
		if err := a.replay(ctx, number, r); err != nil {
			return err
		}
		why := a.unsettled()
		if why == nil || time.Since(start) > quiet {
			if why != nil {
				r.violation("%s: ledgers are wrong %s after the last write: %v", a.group, quiet, why)
			}
			r.count(func() { r.reservations, r.bytes = max(r.reservations, a.reservations), max(r.bytes, a.bytes) })
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
			if amount := a.auditor.Used(name, n); amount > 0 {
				used[n] = amount
			}
		}
		if len(l.Reservations) > 0 || l.Used != a.auditor.Used(name, "") || !maps.Equal(l.Namespaces, used) {
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
			_, err := a.annotate(ctx, Class{pool, anyOf(a.pools)}, v1beta1.CapacityAnnotation, fmt.Sprintf(`"%d"`, amount))
			return err
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot change a capacity: %w", err)
		}
	}
	return nil
}

// obstruct refuses a third of the writes of claims, and holds others up for as long as an API server lets it.
func (c *Cluster) obstruct(ctx context.Context, lanes []*lane) (stop func() error, err error) {
	end, err := c.askToo(ctx, lanes, "has(object.spec)", func(ctx context.Context, _ *review) *admissionv1.AdmissionResponse {
		if oneIn(4) {
			pauseUpTo(ctx, lanes[0].timing.Request)
		}
		if oneIn(3) {
			return refusal()
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	return func() error { end(); return nil }, err
}
