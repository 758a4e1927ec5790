package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/load"
	"github.com/classbind/classbind/e2e/progress"
)

const (
	// namespace of the claims that are created.
	namespace = "default"
	// warmTurns of each sort are not counted.
	warmTurns = 8
)

// clientsOfCreates create claims, first one alone and then several at once.
var clientsOfCreates = []int{1, 8}

// sort of claims that are created, by what the API server calls about them, and whether they have a reference to a class.
func (r *run) sort(name, kind string, bound bool, opinion func(i int) opinion) *load.Sort {
	s := &load.Sort{Name: name}
	s.Prepare = func(names string) func(context.Context, int) error {
		bodies := make([][]byte, load.Turn)
		for i := range bodies {
			bodies[i] = encoded(claim(kind, fmt.Sprintf("%s-%03d", names, i), namespace, opinion(i)))
		}
		return func(ctx context.Context, i int) error {
			answer, err := r.createClaim(ctx, kind, bodies[i])
			if err == nil && bound != bytes.Contains(answer, []byte(`"classRef"`)) {
				err = fmt.Errorf("a claim is stored as %s", answer)
			}
			return err
		}
	}
	return s
}

// measureCreate creates claims of all sorts through the API server. They are of kinds that differ in nothing but what the API server calls.
func (r *run) measureCreate(ctx context.Context) error {
	bound := r.claimKindNames()[0]
	if err := r.configureDoNothing(ctx, constantClaim, bound); err != nil {
		return err
	}
	policy := "--for=condition=" + v1beta1.ConditionDefaultedByPolicy
	if err := r.kubectl(ctx, "", "wait", policy, "claimkinds", resource(policyClaim), "--timeout=60s"); err != nil {
		return err
	}
	asking := func(i int) opinion { return askingFor(i % (r.classes / r.matches)) }
	none := func(int) opinion { return nil }
	for kind, of := range map[string]func(int) opinion{constantClaim: asking, bound: asking, policyClaim: none} {
		if err := r.awaitBound(ctx, kind, of(0)); err != nil {
			return err
		}
	}
	r.line("\ncreate: claims through the API server (added to the p50 of those about which nothing is called, turn by turn)")
	rows := []string{"called|clients|p50 ms|p99 ms|added ms"}
	for _, clients := range clientsOfCreates {
		free, doNothing := r.sort("nothing", freeClaim, false, asking), r.sort("do-nothing webhook", constantClaim, true, asking)
		ours, byPolicy := r.sort("classbind", bound, true, asking), r.sort("policy", policyClaim, true, none)
		freeReferring := r.sort("nothing, with a reference", freeClaim, true, referring)
		oursReferring := r.sort("classbind, with a reference", bound, true, referring)
		all := []*load.Sort{free, byPolicy, doNothing, ours, freeReferring, oursReferring}
		turns := r.turns * r.Rounds
		what := fmt.Sprintf("creating %d claims of each sort, clients: %d", turns*load.Turn, clients)
		err := progress.During(r.Progress, what, func() error {
			before, err := r.calls(ctx)
			if err != nil {
				return err
			}
			if err := load.TakeTurns(ctx, clients, turns, warmTurns, all...); err != nil {
				return err
			}
			after, err := r.calls(ctx)
			if want := (turns + warmTurns) * load.Turn; err == nil && after-before != want {
				err = fmt.Errorf("classbind was called about %d claims, not about %d", after-before, want)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, s := range all {
			base := free
			if s == freeReferring || s == oursReferring {
				base = freeReferring
			}
			rows = append(rows, fmt.Sprintf("%s|%d|%.2f|%.2f|%+.3f", s.Name, clients, s.Millis(.5), s.Millis(.99),
				load.Shift(s.P50, base.P50)))
		}
		shift := func(of, base *load.Sort, from, to int) float64 { return load.Shift(of.P50[from:to], base.P50[from:to]) }
		for name, of := range map[string]func(from, to int) float64{
			"create":    func(from, to int) float64 { return shift(ours, doNothing, from, to) / free.Millis(.5) },
			"policy":    func(from, to int) float64 { return shift(byPolicy, free, from, to) / shift(doNothing, free, from, to) },
			"reference": func(from, to int) float64 { return shift(oursReferring, freeReferring, from, to) },
		} {
			r.measure(fmt.Sprintf("%s-%d", name, clients), turns, of)
		}
	}
	r.table(rows...)
	return nil
}

// awaitBound until claims of a kind are bound: the API server learns a little later of what it has stored.
func (r *run) awaitBound(ctx context.Context, kind string, of opinion) error {
	manifest := encoded(claim(kind, "probe", namespace, of))
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		before, err := r.calls(ctx)
		if err != nil {
			return false, err
		}
		answer, err := r.createClaim(ctx, kind, manifest, "All")
		if err != nil {
			return false, err
		}
		after, err := r.calls(ctx)
		called := after > before
		return bytes.Contains(answer, []byte(`"classRef"`)) && (of != nil || !called), err // The policy's claims have no opinion.
	})
	if err != nil {
		return fmt.Errorf("the API server does not have claims of %s bound: %w", kind, err)
	}
	return nil
}

// createClaim and return it as it is stored.
func (r *run) createClaim(ctx context.Context, kind string, manifest []byte, dryRun ...string) ([]byte, error) {
	request := r.client.Post().Namespace(namespace).Resource(plural(kind)).Body(manifest).SetHeader("Content-Type", "application/json")
	for _, d := range dryRun {
		request.Param("dryRun", d)
	}
	answer, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("cannot create a claim: %w: %s", err, answer)
	}
	return answer, nil
}

// calls that classbind has answered about claims.
func (r *run) calls(ctx context.Context) (int, error) {
	return r.processes[0].Answered(ctx, v1beta1.BindPath+"{name}")
}
