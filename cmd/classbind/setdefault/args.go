package setdefault

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
)

type className struct{ kind, namespace, name string }

func parseClassName(arg string) (className, error) {
	parts := strings.Split(arg, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return className{}, fmt.Errorf("%q: must be KIND/NAME, or KIND/NAMESPACE/NAME for a namespaced class", arg)
	}
	c := className{kind: parts[0], name: parts[len(parts)-1]}
	if len(parts) == 3 {
		c.namespace = parts[1]
	}
	return c, nil
}

func (c className) String() string { return c.kind + "/" + klog.KRef(c.namespace, c.name).String() }

// nameOf a class with the resource of its kind, as kubectl takes it. The Kind alone may be in several groups.
func nameOf(c *inventory.Class) string { return className{c.Kind.Name, c.Namespace, c.Name}.String() }

type registry struct {
	claimKinds map[string]*selector.ClaimKind
	classKinds []*classKind
	// lookUp finds the resource of a claim kind. One that is not found has its name alone.
	lookUp func(*selector.ClaimKind) lookup.Resource
}

type classKind struct {
	*inventory.ClassKind
	found lookup.Resource
	// err is why its classes are not known here. With leftOut, classbind offers none of them, either.
	err     error
	leftOut bool
}

func (k *classKind) String() string { return k.Name }

// findClaimKinds finds claim kinds by the values of a flag, their names or those of their resources, and sorts them.
func (r *registry) findClaimKinds(flag string, texts []string) ([]string, error) {
	all := slices.Sorted(maps.Keys(r.claimKinds))
	var found []string
	for _, text := range texts {
		named, known := lookup.Find(text, all, func(name string) string { return name }, func(name string) (string, lookup.Resource) {
			return r.claimKinds[name].Resource.String(), r.lookUp(r.claimKinds[name])
		})
		switch {
		case len(named) == 0:
			return nil, fmt.Errorf("--%s=%q: no such claim kind is registered: there are %q, or create its ClaimKind%s",
				flag, text, all, near.Meant(text, known))
		case len(named) > 1:
			return nil, fmt.Errorf("--%s=%q: may be any of %s: name one in full", flag, text, strings.Join(named, ", "))
		}
		found = append(found, named...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// findClassKind finds the kind of a class that is to become the default of the claim kinds.
func (r *registry) findClassKind(c className, claimKinds []string) (*classKind, error) {
	found, known := lookup.Find(c.kind, r.classKinds, (*classKind).String,
		func(k *classKind) (string, lookup.Resource) { return k.Name, k.found })
	serving := slices.DeleteFunc(slices.Clone(found), func(k *classKind) bool { return !sets.New(k.ClaimKinds...).HasAll(claimKinds...) })
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%q: no such class kind is registered: there are %q, or create its ClassKind%s",
			c, r.classKinds, near.Meant(c.kind, known))
	case len(serving) == 0:
		return nil, fmt.Errorf("%q: no class of %q serves all of %q: add them to spec.claimKinds of the ClassKind, "+
			"or choose a class of another kind", c, found, claimKinds)
	case len(serving) > 1:
		return nil, fmt.Errorf("%q: may be of any of %q: name one in the place of %q", c, serving, c.kind)
	}
	k := serving[0]
	switch {
	case k.err != nil:
		return nil, fmt.Errorf("%q: no claim is offered classes of %s: %w", c, k, k.err)
	case k.Namespaced && c.namespace == "":
		return nil, fmt.Errorf("%q: classes of %s are namespaced: name it %s/NAMESPACE/%s", c, k, c.kind, c.name)
	case !k.Namespaced && c.namespace != "":
		return nil, fmt.Errorf("%q: classes of %s have no namespace: name it %s/%s", c, k, c.kind, c.name)
	}
	return k, nil
}
