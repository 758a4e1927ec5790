// Package simulate is the command that predicts which claims a change of registrations or classes moves. run decides on each claim
// as if it was created now, before and after the change, with the code of the server. report is the result for programs and for
// people.
package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
)

const (
	// maxPatterns is how many claims at most are patterns for those that are made up. Of more, some are taken at random. Those that
	// are longer than maxPatternBytes are left out: authors of claims decide how much memory all take.
	maxPatterns, maxPatternBytes = 1000, 64 << 10
)

// Input is what is simulated.
type Input struct {
	World *world.World
	// Change is what to compare with. Without one, both sides are the same.
	Change world.Change
	// ClaimKinds to simulate, by their names or those of their claims, as kubectl takes them; empty for all.
	ClaimKinds []string
	// Claims is how many claims of each kind are made up, 0 for those that exist.
	Claims int
}

type run struct {
	Input
	after *world.World
}

// Run simulates a change.
func Run(ctx context.Context, in Input) (*Report, error) {
	r := &run{in, in.World}
	if len(in.Change.Manifests)+len(in.Change.Remove) > 0 {
		var err error
		if r.after, err = in.World.After(ctx, in.Change); err != nil {
			return nil, fmt.Errorf("after the change: %w", err)
		}
	}
	names := sets.New(world.Names(r.World.ClaimKinds)...).Insert(world.Names(r.after.ClaimKinds)...)
	if len(in.ClaimKinds) > 0 {
		var err error
		if names, err = r.named(ctx); err != nil {
			return nil, err
		}
	}
	unused, err := r.after.Check(ctx, in.Change)
	if err != nil {
		return nil, err
	}
	report := &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}, Kinds: []Kind{}}
	if len(unused) > 0 {
		report.Notes = append(report.Notes, "left out, because it matters to no claim: "+selector.List(unused))
	}
	for _, name := range sets.List(names) {
		kind, err := r.kind(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("cannot simulate the claims of %q: %w", name, err)
		}
		report.Kinds = append(report.Kinds, *kind)
	}
	return report, nil
}

// named are the ClaimKinds that the input names, before the change or after it.
func (r *run) named(ctx context.Context) (sets.Set[string], error) {
	names := sets.New[string]()
	for _, word := range r.ClaimKinds {
		before, _, err := r.World.Named(ctx, word)
		after, _, errAfter := r.after.Named(ctx, word)
		if err != nil && errAfter != nil {
			return nil, err
		}
		for _, k := range slices.Concat(before, after) {
			names.Insert(k.Name)
		}
	}
	return names, nil
}

// Now returns the comparison of the claims of a kind with themselves. It calls seen for each that is added, with what it gets and why.
func Now(
	ctx context.Context, w *world.World, name string, seen func(claim *world.Recreated, gets world.Place, why string),
) (*Comparison, error) {
	c, err := (&run{Input{World: w}, w}).compare(ctx, name)
	if err == nil {
		c.seen = seen
	}
	return c, err
}

func (r *run) kind(ctx context.Context, name string) (*Kind, error) {
	c, err := r.compare(ctx, name)
	if err == nil {
		err = r.claims(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return c.End(), nil
}

func (r *run) compare(ctx context.Context, name string) (*Comparison, error) {
	before, err := r.World.Simulated(ctx, name)
	if err != nil {
		return nil, err
	}
	after := before
	if r.after != r.World {
		if after, err = r.after.Simulated(ctx, name); err != nil {
			return nil, fmt.Errorf("after the change: %w", err)
		}
	}
	c := &Comparison{
		before: before, after: after, rows: map[world.Place]*tallied{}, moves: map[[2]world.Place]*Move{},
		result: &Kind{ClaimKind: name, MadeUp: r.Claims > 0, Rows: []Row{}, Moves: []Move{}},
	}
	for _, k := range []*world.Kind{before, after} {
		if k == nil {
			continue
		}
		kind := k.View.Kind
		c.remembers, c.limited = c.remembers || kind.Strategy.Depends != "" || kind.Limited, c.limited || kind.Limited
		for _, note := range k.Notes {
			c.result.warned = c.result.warned || before == nil || !slices.Contains(before.Notes, note)
			c.result.note("%s", note)
		}
	}
	if k := c.either(); k.View.Kind != nil {
		c.result.Strategy = k.View.Kind.Strategy.Name
	}
	return c, nil
}

func (r *run) claims(ctx context.Context, c *Comparison) error {
	if r.Claims == 0 {
		return r.existing(ctx, c, func(raw []byte) error { return c.Add(ctx, raw) })
	}
	var patterns [][]byte
	seen, random := 0, rand.New(rand.NewPCG(1, 2)) //nolint:gosec // Nothing is secret here, and a simulation can be repeated.
	err := r.existing(ctx, c, func(raw []byte) error {
		if len(raw) > maxPatternBytes {
			c.result.note("claims of more than %d KiB are not copied", maxPatternBytes>>10)
			return nil
		}
		seen++
		if at := random.IntN(seen); len(patterns) < maxPatterns {
			patterns = append(patterns, slices.Clone(raw))
		} else if at < maxPatterns {
			patterns[at] = slices.Clone(raw)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(patterns) == 0 {
		patterns = invented(c.either())
		c.result.note("there are no claims to copy: in turn, the generated claims select no class, or the labels of one class")
	}
	for n := range r.Claims {
		object := map[string]any{}
		if err := json.Unmarshal(patterns[n%len(patterns)], &object); err != nil {
			return fmt.Errorf("cannot read a claim: %w", err)
		}
		err := unstructured.SetNestedField(object, fmt.Sprintf("simulated-%d", n+1), "metadata", "name")
		raw, _ := json.Marshal(object) // It was JSON.
		if err != nil {
			return fmt.Errorf("cannot generate a claim: %w", err)
		}
		if err := c.Add(ctx, raw); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) existing(ctx context.Context, c *Comparison, each func(raw []byte) error) error {
	k := c.either()
	if r.World.Cluster != nil && k.Resource.Version == "" {
		c.result.note("the claims are not read: the cluster does not have their kind")
		return nil
	}
	return k.Each(ctx, each)
}

// invented claims ask for the labels of each class, and one asks for none.
func invented(k *world.Kind) (all [][]byte) {
	for _, s := range append([]string{""}, k.Selectors()...) {
		metadata := map[string]any{"namespace": metav1.NamespaceDefault}
		if s != "" {
			metadata["annotations"] = map[string]any{k.SelectorAnnotation(): s}
		}
		raw, _ := json.Marshal(map[string]any{"metadata": metadata}) // It has strings alone.
		all = append(all, raw)
	}
	return all
}

// Comparison of the claims of one kind. A side is nil where no ClaimKind registers them.
type Comparison struct {
	before, after *world.Kind
	result        *Kind
	rows          map[world.Place]*tallied
	moves         map[[2]world.Place]*Move // from and to
	seen          func(*world.Recreated, world.Place, string)
	unsure        [2]int // unsure claims may get other classes, before and after
	// remembers reports whether what a claim gets depends on those before it, and limited whether classes have a capacity.
	remembers, limited bool
}

// tallied claims of a row: those that exist, and on each side those that are certain, and the others.
type tallied struct {
	has           int
	before, after counted
}

type counted struct{ certain, drawn int }

// add a claim. What is predictable is certain, and that a claim gets no class, unless others may take what there is. It counts the claim if
// it is not certain.
func (c *counted) add(to world.Place, predictable, limited bool) (drawn int) {
	if !predictable && (hasClass(to) || limited) {
		drawn = 1
	}
	c.drawn, c.certain = c.drawn+drawn, c.certain+1-drawn
	return drawn
}

// either side, that after the change if there are both.
func (c *Comparison) either() *world.Kind {
	return cmp.Or(c.after, c.before)
}

// Add a claim, which is JSON.
func (c *Comparison) Add(ctx context.Context, raw []byte) error {
	var sides [2]*world.Recreated
	for i, k := range []*world.Kind{c.before, c.after} {
		if k == nil || i > 0 && k == c.before {
			continue
		}
		claim, err := k.Read(ctx, raw)
		if err != nil {
			return err
		}
		sides[i] = claim
	}
	first := cmp.Or(sides[0], sides[1])
	for _, unsure := range first.Unsure {
		c.result.note("%s", unsure)
	}
	c.result.Claims++
	if !c.result.MadeUp {
		c.row(first.Has).has++
	}
	fresh := rand.NewPCG(uint64(c.result.Claims), 0).Uint64() //nolint:gosec // It is a count. The same on both sides.
	from, why, err := sides[0].Decide(ctx, fresh)
	to := from
	if c.before != c.after && err == nil {
		to, why, err = sides[1].Decide(ctx, fresh)
	}
	if err != nil {
		return err
	}
	before, after := sides[0].Predictable(), sides[1].Predictable()
	if c.before == c.after {
		after = before
	}
	c.unsure[0] += c.row(from).before.add(from, before, c.limited)
	c.unsure[1] += c.row(to).after.add(to, after, c.limited)
	if !before || !after { // Which class it gets is not known, but mostly whether it gets one.
		c.result.Unpredictable++
		from, to = anyClass(from), anyClass(to)
	}
	if c.moved(first, from, to, why); c.seen != nil {
		c.seen(first, to, why)
	}
	return nil
}

func hasClass(p world.Place) bool { return p.Outcome == "" || p.Outcome == world.AnyClass }

func anyClass(p world.Place) world.Place {
	if hasClass(p) {
		return world.Place{Outcome: world.AnyClass}
	}
	return p
}

func (c *Comparison) row(p world.Place) *tallied {
	t := c.rows[p]
	if t == nil {
		t = &tallied{}
		c.rows[p] = t
	}
	return t
}

func (c *Comparison) moved(claim *world.Recreated, from, to world.Place, why string) {
	if from == to {
		return
	}
	m := c.moves[[2]world.Place{from, to}]
	if m == nil {
		m = &Move{From: from, To: to, Why: why, Claims: []string{}}
		c.moves[[2]world.Place{from, to}] = m
	}
	if m.Count++; len(m.Claims) < maxNames {
		m.Claims = append(m.Claims, klog.KRef(claim.Namespace, claim.Name).String())
	}
	switch {
	case hasClass(from) && !hasClass(to):
		c.result.Lost++
	case hasClass(to):
		c.result.Moved++
	}
}
