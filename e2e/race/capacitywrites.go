package race

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// names of claims are so many in each namespace, so that some come again.
const names = 2000

// Claim is named as the API server names it.
type Claim struct{ Namespace, Name string }

// write anything to any claim, and say what. More is created than deleted until the pools are nearly full.
func (a *arena) write(ctx context.Context, contested string) (what string, o Outcome, err error) {
	a.mu.Lock()
	used, there, c := int64(0), false, Claim{}
	for _, name := range a.pools {
		used += a.auditor.used[account{name, ""}]
	}
	for c = range a.auditor.uses { // The order of a map is random.
		there = true
		break
	}
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

// usesOf a claim, as its ClaimKind has it: of its class, and of the part of its namespace. Without a class, it uses nothing.
func usesOf(u *unstructured.Unstructured) map[account]int64 {
	class, _, _ := unstructured.NestedString(u.Object, "spec", "classRef", "name")
	if class == "" {
		return map[account]int64{}
	}
	size, is, _ := unstructured.NestedInt64(u.Object, "spec", "size")
	if !is {
		size = 1
	}
	return map[account]int64{{class, ""}: size, {class, u.GetNamespace()}: size}
}

func (a *arena) create(ctx context.Context, c Claim, spec map[string]any) (Outcome, error) {
	object := a.object(Class{claim, c.Name}, nil)
	object.Object["spec"] = spec
	object, err := a.claims(c.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err == nil && len(usesOf(object)) == 0 {
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
