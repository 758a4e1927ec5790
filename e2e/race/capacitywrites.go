package race

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// names of claims are so many in each namespace, so that some come again.
	names = 2000
	// fillPatience is how long it may take until a pool is full to the last place: windows of what was not stored are over.
	fillPatience = 30 * time.Second
)

// write anything to any claim, and say what. More is created than deleted until the pools are nearly full.
func (a *arena) write(ctx context.Context, contested string) (what string, o Outcome, err error) {
	a.mu.Lock()
	c, there, used := a.auditor.Any()
	a.mu.Unlock()
	creations, deletions, largest := 10, 1, 8
	if used > poolsOfArena*capacityOfPool*9/10 {
		creations, deletions, largest = 5, 4, 3
	}
	class := contested
	if oneIn(2) {
		class = anyOf(a.pools)
	}
	fields := map[string]any{}
	switch n := below(16); {
	case n < creations || !there:
		if !oneIn(3) {
			fields["size"] = int64(1 + below(largest))
		}
		if oneIn(2) {
			fields["classRef"] = a.reference(class)
		}
		o, err = a.create(ctx, Claim{anyOf(namespaces), fmt.Sprint("claim-", below(names))}, fields)
		return "a creation", o, err
	case n >= 16-deletions:
		what, err = "a deletion", a.claims(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{})
	case oneIn(2):
		fields["classRef"] = a.reference(class)
		what, err = "a move", a.change(ctx, c, fields)
	default:
		fields["size"] = int64(1 + below(6))
		what, err = "a change of size", a.change(ctx, c, fields)
	}
	return what, outcomeOf(err, Class{}, nil), err
}

func (a *arena) reference(class string) map[string]any {
	return map[string]any{"apiVersion": a.resource(pool).GroupVersion().String(), "kind": pool, "name": class}
}

// useOf a claim, as its ClaimKind has it.
func useOf(u *unstructured.Unstructured) Use {
	class, _, _ := unstructured.NestedString(u.Object, "spec", "classRef", "name")
	if size, is, _ := unstructured.NestedInt64(u.Object, "spec", "size"); is {
		return Use{class, size}
	}
	return Use{class, 1}
}

func (a *arena) create(ctx context.Context, c Claim, spec map[string]any) (Outcome, error) {
	object := a.object(Class{claim, c.Name}, nil)
	object.Object["spec"] = spec
	object, err := a.claims(c.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err == nil && useOf(object).Class == "" {
		return NoClass, nil
	}
	return outcomeOf(err, Class{}, nil), err
}

// change fields of a claim, by a patch, or by an update with the version that was read.
func (a *arena) change(ctx context.Context, c Claim, fields map[string]any) error {
	claims := a.claims(c.Namespace)
	if oneIn(2) {
		patch, _ := json.Marshal(map[string]any{"spec": fields}) // It has strings and numbers.
		_, err := claims.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	object, err := claims.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	maps.Copy(spec, fields)
	object.Object["spec"] = spec
	_, err = claims.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// fill the emptiest pool to the last place, with claims that use 1. Whoever is told that it is full tries again, because
// what is reserved may come to nothing.
func (a *arena) fill(ctx context.Context, number, writers int, r *report) error {
	a.mu.Lock()
	class := slices.MinFunc(a.pools, func(x, y string) int { return int(a.auditor.Used(x, "") - a.auditor.Used(y, "")) })
	a.mu.Unlock()
	last := make([]error, writers)
	for start, try := time.Now(), 0; ; try++ {
		a.burst(ctx, number, writers, r, func(ctx context.Context, i int) (_ string, o Outcome, _ error) {
			c := Claim{anyOf(namespaces), fmt.Sprintf("fill-%d-%d-%d", number, try, i)}
			o, last[i] = a.create(ctx, c, map[string]any{"classRef": a.reference(class)})
			return "a claim that fills", o, last[i]
		})
		if err := a.replay(ctx, number, r); err != nil {
			return err
		}
		a.mu.Lock()
		used := a.auditor.Used(class, "")
		a.mu.Unlock()
		switch {
		case used == capacityOfPool:
			r.count(func() { r.fills++ })
			return nil
		case time.Since(start) > fillPatience || ctx.Err() != nil:
			r.violation("%s, round %d: the claims of %s use %d of %d, not all: %v", a.group, number, class, used, capacityOfPool, last)
			return ctx.Err()
		}
		pause(ctx, guardPoll)
	}
}
