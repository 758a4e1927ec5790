package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/classbind/classbind/e2e/load"
)

// namespace of the claims that are created.
const namespace = "default"

// clientsOfCreates create claims, first one alone and then several at once.
var clientsOfCreates = []int{1, 8}

const (
	// turn is how many claims of one sort are created before those of the next sort:
	// what the machine does otherwise lasts longer, and meets all sorts alike.
	turn = 25
	// warmTurns of each sort are not counted.
	warmTurns = 8
)

// Create is what creating a claim through the API server takes, by who is asked.
type Create struct {
	Creates []Created
}

// Created are claims of one sort, created by so many clients.
type Created struct {
	// Asked about the claim, and whether it has a reference to a class.
	Asked     string
	Reference bool
	Clients   int
	// P50Millis and P99Millis are of all claims.
	P50Millis float64
	P99Millis float64
	// AddedMillis is how much more the p50 of a turn is than in the same turn when
	// nobody is asked: the mean of the middle half of all turns (see load.Shift).
	AddedMillis float64
	// BeyondDoNothingMillis is the same beside the do-nothing webhook; nothing where the claims have a reference.
	BeyondDoNothingMillis float64
}

// Who is asked about a claim.
const (
	askedNobody = "nobody"
	// askedPolicy is the API server's own, which classbind's leader wrote. Its claims have no opinion.
	askedPolicy = "policy"
	// askedDoNothing is called as classbind is: on the same conditions, over HTTP/1.1.
	askedDoNothing = "do-nothing webhook"
	askedClassbind = "classbind"
)

// sort of claims that are created.
type sort struct {
	asked, kind string
	reference   bool
	p50         []float64       // of each turn, in ms
	took        []time.Duration // each claim
}

func (s *sort) String() string {
	if s.reference {
		return s.asked + " with reference"
	}
	return s.asked
}

// opinion of the i-th claim of a turn.
func (s *sort) opinion(i, pools int) opinion {
	switch {
	case s.reference:
		return referring()
	case s.asked == askedPolicy:
		return nil
	}
	return askingFor(poolLabels(i%pools, map[string]string{}))
}

// sorts of claims, of kinds that differ in nothing but who is asked: classbind is about the bound.
func sorts(bound string) []*sort {
	return []*sort{
		{asked: askedNobody, kind: freeClaim},
		{asked: askedPolicy, kind: policyClaim},
		{asked: askedDoNothing, kind: constantClaim},
		{asked: askedClassbind, kind: bound},
		{asked: askedNobody, kind: freeClaim, reference: true},
		{asked: askedClassbind, kind: bound, reference: true},
	}
}

// create claims of all sorts.
func (m *many) create(ctx context.Context, doNothingCommand string) (_ *Create, err error) {
	d, err := m.startConstant(ctx, doNothingCommand)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	entry, err := m.entry(ctx, m.kinds.claims[0])
	if err != nil {
		return nil, err
	}
	configuration, err := d.configuration(constantClaim, entry)
	if err != nil {
		return nil, err
	}
	if err := m.kubectl(ctx, string(configuration), "create", "-f", "-"); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, m.kubectl(context.WithoutCancel(ctx), string(configuration), "delete", "-f", "-"))
	}()
	for _, kind := range []string{constantClaim, m.kinds.claims[0]} {
		if err := m.awaitWebhook(ctx, kind); err != nil {
			return nil, err
		}
	}
	if err := m.awaitPolicy(ctx, policyClaim); err != nil {
		return nil, err
	}
	result := &Create{}
	for _, clients := range clientsOfCreates {
		all := sorts(m.kinds.claims[0])
		for n := range m.settings.Rounds + 1 {
			if err := m.createRound(ctx, all, clients, n); err != nil {
				return nil, err
			}
		}
		for _, s := range all {
			result.Creates = append(result.Creates, s.created(clients, all))
		}
	}
	return result, nil
}

// createRound of turns of all sorts, each time in another order. The first round warms
// up. Of all claims, classbind has to be called about those of one sort.
func (m *many) createRound(ctx context.Context, all []*sort, clients, n int) error {
	turns := max(1, m.settings.Creates/turn)
	if n == 0 {
		turns = min(turns, warmTurns)
	}
	before, err := m.calls(ctx)
	if err != nil {
		return err
	}
	orders := rand.New(rand.NewPCG(uint64(clients), uint64(n))) //nolint:gosec // Nobody has to guess it, and a run can be repeated.
	for t := range turns {
		for _, i := range orders.Perm(len(all)) {
			took, err := m.createClaims(ctx, all[i], clients, fmt.Sprintf("orders-%d-%03d-%04d", clients, n, t))
			if err != nil {
				return err
			}
			if n > 0 {
				all[i].p50, all[i].took = append(all[i].p50, millis(load.Quantile(took, .5))), append(all[i].took, took...)
			}
		}
	}
	after, err := m.calls(ctx)
	if err != nil {
		return err
	}
	if got, want := after-before, turns*min(turn, m.settings.Creates); got != want {
		return fmt.Errorf("classbind was called about %d claims, not about %d", got, want)
	}
	if n == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = fmt.Sprintf("%s %.2f", s, load.Median(s.p50))
	}
	m.settings.say("  create: round %d of %d, clients %d, p50 in ms: %s\n",
		n, m.settings.Rounds, clients, strings.Join(texts, "; "))
	return nil
}

// createClaims of a turn, with names that begin alike, by so many clients. What they took is sorted. Nothing deletes them but the end of
// the control plane, for that would take it as long as to create them, beside the turns that follow.
func (m *many) createClaims(ctx context.Context, s *sort, clients int, names string) ([]time.Duration, error) {
	// They are encoded beforehand: that is no part of what is compared.
	bodies := make([][]byte, min(turn, m.settings.Creates))
	for i := range bodies {
		name := fmt.Sprintf("%s-%03d", names, i)
		if s.reference {
			name += "-r"
		}
		var err error
		bodies[i], err = json.Marshal(claim(s.kind, name, namespace, s.opinion(i, m.settings.Classes/m.settings.Matches)))
		if err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, len(bodies))
	err := load.InParallel(ctx, clients, len(bodies), func(ctx context.Context, i int) error {
		begin := time.Now()
		answer, err := m.createClaim(ctx, s.kind, bodies[i], false)
		took[i] = time.Since(begin)
		if err != nil {
			return err
		}
		if wants := s.reference || s.asked != askedNobody; wants != bytes.Contains(answer, []byte(`"classRef"`)) {
			return fmt.Errorf("a claim (%s) is stored as %s", s, answer)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return took, nil
}

// createClaim and return it as it is stored.
func (m *many) createClaim(ctx context.Context, kind string, manifest []byte, dryRun bool) ([]byte, error) {
	request := m.client.Post().Namespace(namespace).Resource(plural(kind)).Body(manifest).SetHeader("Content-Type", "application/json")
	if dryRun {
		request.Param("dryRun", "All")
	}
	answer, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("cannot create a claim: %w: %s", err, answer)
	}
	return answer, nil
}

// created is what came of the turns, beside those of all.
func (s *sort) created(clients int, all []*sort) Created {
	beside := func(asked string) float64 {
		i := slices.IndexFunc(all, func(b *sort) bool { return b.asked == asked && b.reference == s.reference })
		if i < 0 {
			return 0
		}
		return load.Shift(s.p50, all[i].p50)
	}
	slices.Sort(s.took)
	return Created{
		Asked: s.asked, Reference: s.reference, Clients: clients,
		P50Millis: millis(load.Quantile(s.took, .5)), P99Millis: millis(load.Quantile(s.took, .99)),
		AddedMillis: beside(askedNobody), BeyondDoNothingMillis: beside(askedDoNothing),
	}
}

// of claims of a sort, created by so many clients. All sorts were measured.
func (c *Create) of(asked string, reference bool, clients int) Created {
	i := slices.IndexFunc(c.Creates, func(c Created) bool {
		return c.Asked == asked && c.Reference == reference && c.Clients == clients
	})
	return c.Creates[i]
}
