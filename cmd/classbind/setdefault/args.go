package setdefault

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/near"
)

type className struct{ kind, namespace, name string }

func (c className) String() string { return c.kind + "/" + klog.KRef(c.namespace, c.name).String() }

type registry struct {
	claimKinds map[string]*selector.ClaimKind
	classKinds []*world.ClassKind
	// lookUp finds the resource of a claim kind. One that is not found has its name alone.
	lookUp func(*selector.ClaimKind) lookup.Resource
}

// unserved returns the claim kinds that its classes cannot satisfy.
func unserved(k *world.ClassKind, claimKinds []string) []string {
	return slices.DeleteFunc(slices.Clone(claimKinds), func(name string) bool { return slices.Contains(k.ClaimKinds, name) })
}

// findClaimKinds finds claim kinds by the values of a flag, their names or those of their resources, and sorts them.
func (r *registry) findClaimKinds(flag string, texts []string) ([]string, error) {
	all := slices.Sorted(maps.Keys(r.claimKinds))
	var found []string
	for _, text := range texts {
		named, known := lookup.Find(text, all, func(name string) string { return name }, func(name string) (string, lookup.Resource) {
			return r.claimKinds[name].Reader.Resource.String(), r.lookUp(r.claimKinds[name])
		})
		switch {
		case len(all) == 0:
			return nil, fmt.Errorf("--%s=%q: no claim kind is registered: create a ClaimKind", flag, text)
		case len(named) == 0:
			return nil, fmt.Errorf("--%s=%q: no such claim kind is registered: name one of %s, or create its ClaimKind%s",
				flag, text, strings.Join(all, ", "), near.Meant(text, known))
		case len(named) > 1:
			return nil, fmt.Errorf("--%s=%q: may be any of %s: name one in full", flag, text, strings.Join(named, ", "))
		}
		found = append(found, named...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// findClassKind finds the kind of a class that is to become the default of the claim kinds.
func (r *registry) findClassKind(c connect.Name, claimKinds []string) (*world.ClassKind, error) {
	found, known := lookup.Find(c.Kind, r.classKinds, (*world.ClassKind).String,
		func(k *world.ClassKind) (string, lookup.Resource) { return k.Name, k.Found.Resource })
	serving := slices.DeleteFunc(slices.Clone(found), func(k *world.ClassKind) bool { return len(unserved(k, claimKinds)) > 0 })
	switch {
	case len(r.classKinds) == 0:
		return nil, fmt.Errorf("%q: no class kind is registered: create a ClassKind", c)
	case len(found) == 0:
		return nil, fmt.Errorf("%q: no such class kind is registered: KIND must be one of %s, or create its ClassKind%s",
			c, list(r.classKinds), near.Meant(c.Kind, known))
	case len(serving) == 0 && len(found) == 1:
		return nil, fmt.Errorf("%q: %s does not serve %s: add it to spec.claimKinds of the ClassKind, or choose a class of another kind",
			c, list(found), strings.Join(unserved(found[0], claimKinds), ", "))
	case len(serving) == 0:
		return nil, fmt.Errorf("%q: none of %s serves %s: add it to spec.claimKinds of a ClassKind, or choose a class of another kind",
			c, list(found), strings.Join(claimKinds, " and "))
	case len(serving) > 1:
		return nil, fmt.Errorf("%q: may be of any of %s: name one in the place of %q", c, list(serving), c.Kind)
	}
	if err := serving[0].Err; err != nil {
		return nil, fmt.Errorf("%q: cannot find its kind: %w", c, err)
	}
	return serving[0], nil
}

// related returns the class kinds whose defaults matter when the default of the claim
// kinds changes: those that serve a claim kind of any class kind that serves them.
func (r *registry) related(claimKinds []string) []*world.ClassKind {
	var kinds []*world.ClassKind
	for range 2 { // First the kinds that serve them, then those that share a claim kind with these.
		kinds = nil
		for _, k := range r.classKinds {
			if len(unserved(k, claimKinds)) < len(claimKinds) {
				kinds = append(kinds, k)
			}
		}
		for _, k := range kinds {
			claimKinds = slices.Concat(claimKinds, k.ClaimKinds)
		}
	}
	return kinds
}

func list[T fmt.Stringer](all []T) string { return listFunc(all, T.String) }

func listFunc[T any](all []T, text func(T) string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = text(one)
	}
	return strings.Join(texts, ", ")
}
