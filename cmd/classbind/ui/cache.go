package ui

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// Between two reads of the cluster is a pause of pauseFactor times what the last one took, within these limits.
	minPause, maxPause = 5 * time.Second, 30 * time.Second
	pauseFactor        = 5
	// maxWaiting limits the claims without a class that are held of each kind.
	maxWaiting = 1000
)

// cache has a cluster as it was read last. It is read in the background, once for all who look.
type cache struct {
	config *rest.Config
	own    string
	read   func(context.Context) (*snapshot, error)
	// wanted reports whether somebody looks, and hurry whether he waits.
	wanted, hurry chan struct{}

	mu    sync.Mutex // Guards what follows.
	state state
	// idle reports whether the next read begins once somebody looks.
	idle bool
	// changed is closed when state changes.
	changed chan struct{}
}

type state struct {
	// version counts the reads.
	version int
	// snapshot is nil before the first read that succeeded.
	snapshot *snapshot
	// err is why the last read failed, at failed.
	err    error
	failed time.Time
	// reading reports whether a read goes on, or begins now.
	reading bool
}

// age of what is shown, in words.
func (s *state) age() string {
	if s.snapshot == nil {
		return ""
	}
	since, unit := time.Since(s.snapshot.at), time.Second
	name := "second"
	switch {
	case since >= time.Hour:
		unit, name = time.Hour, "hour"
	case since >= time.Minute:
		unit, name = time.Minute, "minute"
	}
	n := int64(since / unit)
	if n != 1 {
		name += "s"
	}
	text := fmt.Sprintf("%d %s ago", n, name)
	if s.reading {
		text += ", reading…"
	}
	return text
}

type snapshot struct {
	at     time.Time
	status *status.Report
	kinds  []*kind

	mu      sync.Mutex // Guards what follows.
	cluster *world.World
}

type kind struct {
	Name string
	Spec v1beta1.ClaimKindSpec
	// Findings and Notes are those of status.
	Findings []status.Finding
	Notes    []string
	// Err is why the claims or the classes could not be read.
	Err     error
	Classes []*class
	// Claims are all, and Without those that have no class. Waiting are the first of these.
	Claims, Without int
	Waiting         []waiting
	// Stored are the first most claims.
	Stored []stored
	// Certain reports whether every replica would give all claims the same classes.
	Certain bool
	// Unread reports whether the claims were not read.
	Unread bool

	simulated *simulate.Comparison
	most      int
}

type class struct {
	simulate.Row
	// Share and Expected are percentages of all claims of the kind.
	Share, Expected float64
	Labels          string
	Marks           []string
	Problems        []string
	Weight          int64
	// Capacity is what is taken of each quantity, empty where there is no limit.
	Capacity string
}

type waiting struct {
	Claim     claimName
	Gets, Why string
}

type claimName struct{ Kind, Namespace, Name string }

func (c claimName) String() string { return klog.KRef(c.Namespace, c.Name).String() }

func newCache(config *rest.Config, own string) *cache {
	c := &cache{config: config, own: own, wanted: make(chan struct{}, 1), hurry: make(chan struct{}, 1), changed: make(chan struct{})}
	c.read = c.readCluster
	return c
}

// run reads the cluster until the context ends, while somebody looks.
func (c *cache) run(ctx context.Context) {
	for {
		start := time.Now()
		c.mark(true, false)
		s, err := c.read(ctx)
		if ctx.Err() != nil {
			return
		}
		c.replace(s, err)
		wanted, pause := (chan struct{})(nil), time.After(min(maxPause, max(minPause, pauseFactor*time.Since(start))))
		for waits := true; waits; {
			select {
			case <-pause:
				wanted = c.wanted
				c.mark(false, true)
			case <-wanted:
				waits = false
			case <-c.hurry:
				waits = false
			case <-ctx.Done():
				return
			}
		}
	}
}

func (c *cache) mark(reading, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.reading, c.idle = reading, idle
	c.wake()
}

func (c *cache) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cache) reload() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
	c.mark(true, false)
}

// replace the state. What was read before stays where a read fails.
func (c *cache) replace(s *snapshot, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.version++
	c.state.reading = false
	if c.state.err = err; err != nil {
		c.state.failed = time.Now()
	} else {
		c.state.snapshot = s
	}
	c.wake()
}

// now returns the state, and a channel that is closed when there is another. It records that somebody looks.
func (c *cache) now() (state, <-chan struct{}) {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.reading, c.idle = c.state.reading || c.idle, false
	return c.state, c.changed
}

// readCluster reads what is registered, the classes and the claims of all kinds, each once.
func (c *cache) readCluster(ctx context.Context) (*snapshot, error) {
	s := &snapshot{at: time.Now()}
	var err error
	if s.cluster, err = world.OfCluster(ctx, c.config, c.own, ""); err != nil {
		return nil, err
	}
	again, specs, kinds := s.cluster.Again(), s.cluster.ClaimKinds, map[string]*kind{}
	for i := range specs {
		k := &kind{Name: specs[i].Name, Spec: specs[i].Spec, Certain: true, most: max(1, maxClaims/len(specs))}
		k.simulated, k.Err = simulate.Now(ctx, again, k.Name, k.seen)
		s.kinds, kinds[k.Name] = append(s.kinds, k), k
	}
	s.status, err = status.Read(ctx, s.cluster, io.Discard, func(name string, claim []byte) {
		if k := kinds[name]; k.Err == nil {
			k.Err = k.simulated.Add(ctx, claim)
		}
	})
	if err != nil {
		return nil, err
	}
	for i, k := range s.kinds {
		k.read(ctx, s, &specs[i])
	}
	return s, nil
}

// read the findings and the classes of a kind whose claims were read.
func (k *kind) read(ctx context.Context, s *snapshot, spec *v1beta1.ClaimKind) {
	for _, section := range s.status.Sections {
		for _, f := range section.Findings {
			if slices.Contains(strings.Split(f.Where, ", "), "claimkind/"+k.Name) {
				k.Findings = append(k.Findings, f)
			}
		}
		k.Err = cmp.Or(k.Err, section.Failed[k.Name])
	}
	byName, unread := map[selector.ClassName]*class{}, k.Err
	view, err := s.cluster.Bindable(ctx, spec)
	if k.Err = cmp.Or(err, unread); view != nil {
		view.CountRoom(ctx)
		k.Notes = view.Notes
		for _, classes := range view.View.Classes {
			classes.Each(func(c *inventory.Class) {
				added := newClass(c, view.View.Kind)
				byName[added.Class] = added
				k.Classes = append(k.Classes, added)
			})
		}
	}
	if k.Unread = unread != nil; k.Unread {
		return
	}
	simulated := k.simulated.End()
	k.simulated = nil // It holds all classes.
	k.Claims, k.Certain = simulated.Claims, simulated.Unpredictable == 0
	for _, row := range simulated.Rows {
		if row.Outcome != "" { // It is no class.
			continue
		}
		of := byName[row.Class]
		if of == nil { // It is no longer offered.
			of = &class{Marks: []string{"not offered"}}
			k.Classes = append(k.Classes, of)
		}
		of.Row = row
		of.Share, of.Expected = simulated.Share(simulate.Estimate{Sample: row.Has}), simulated.Share(row.Before)
	}
	slices.SortFunc(k.Classes, func(a, b *class) int {
		return cmp.Or(b.Has-a.Has, cmp.Compare(b.Expected, a.Expected), strings.Compare(a.String(), b.String()))
	})
}

func newClass(of *inventory.Class, k *selector.ClaimKind) *class {
	c := &class{Labels: labels.Set(of.Labels.Set()).String(), Weight: of.Weight}
	c.Class = selector.NameOf(of)
	mark := func(is bool, text string) {
		if is {
			c.Marks = append(c.Marks, text)
		}
	}
	mark(of.Default, "default")
	mark(of.Cordoned, "cordoned")
	mark(of.Terminating, "being deleted")
	mark(of.NotOffered, "not offered")
	mark(of.TooManyLabels, "too many labels")
	var capacities []string
	if k.Room != nil {
		room := k.Room("", of)
		for i, quantity := range of.Kind.Quantities {
			if total := of.Capacity[i].Total; total != inventory.Unlimited {
				capacities = append(capacities, fmt.Sprintf("%s of %s %s", count(room[i].All()), count(total), quantity))
			}
		}
	}
	c.Capacity = strings.Join(capacities, ", ")
	for _, problem := range []*field.Error{of.WeightErr, of.MarkErr, of.OfferErr, of.CapacityErr()} {
		if problem != nil {
			c.Problems = append(c.Problems, problem.Error())
		}
	}
	return c
}

// seen is called for each claim of the kind.
func (k *kind) seen(claim *world.Recreated, gets world.Place, why string) {
	if len(k.Stored) < k.most {
		k.Stored = append(k.Stored, stored{claim.Namespace, claim.Name, claim.Has})
	}
	if claim.Has.Outcome != world.WithoutClass || gets.Outcome == world.Ignored {
		return
	}
	if k.Without++; len(k.Waiting) < maxWaiting {
		k.Waiting = append(k.Waiting, waiting{claimName{k.Name, claim.Namespace, claim.Name}, gets.String(), why})
	}
}

func (s *snapshot) find(name string) (*kind, error) {
	if i := slices.IndexFunc(s.kinds, func(k *kind) bool { return k.Name == name }); i >= 0 {
		return s.kinds[i], nil
	}
	return nil, notFound(fmt.Sprintf("There is no ClaimKind %q.", truncate.Printable(name)))
}

// explanation of a claim: as it is stored, and as if it was created now.
type explanation struct{ Stored, Fresh *explain.Item }

// explain a claim by the registrations and classes of the snapshot.
func (s *snapshot) explain(ctx context.Context, name claimName) (e explanation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Stored, err = explain.Stored(ctx, s.cluster, name.Kind, name.Namespace, name.Name, false); err == nil {
		e.Fresh, err = explain.Stored(ctx, s.cluster, name.Kind, name.Namespace, name.Name, true)
	}
	return e, err
}
