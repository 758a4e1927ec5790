package setdefault

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/selector"
)

// className is a class as the command line names it.
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

func (c className) String() string {
	if c.namespace == "" {
		return c.kind + "/" + c.name
	}
	return c.kind + "/" + c.namespace + "/" + c.name
}

// registry is what is registered.
type registry struct {
	claimKinds map[string]*selector.ClaimKind
	classKinds []*classKind
}

// classKind is a registered one.
type classKind struct {
	*selector.ClassKind
	// ready is what classbind says of it, nil if nothing yet.
	ready *metav1.Condition
	// missing is why there is no telling what its classes are; nil, there is.
	missing error
}

func (k *classKind) serves(claimKind string) bool { return slices.Contains(k.ClaimKinds, claimKind) }

// unserved are those of the claim kinds that its classes cannot satisfy.
func (k *classKind) unserved(claimKinds []string) []string {
	return slices.DeleteFunc(slices.Clone(claimKinds), k.serves)
}

// called says whether the text is the name of the kind, as the command line may have it.
func (k *classKind) called(text string) bool {
	plural, _, _ := strings.Cut(k.Name, ".")
	return slices.ContainsFunc([]string{k.Name, plural, k.GroupVersionKind.Kind}, func(s string) bool { return strings.EqualFold(s, text) })
}

// findClaimKinds by the names or plurals that a flag has, in the order of their names.
func (r *registry) findClaimKinds(flag string, texts []string) ([]string, error) {
	all := slices.Sorted(maps.Keys(r.claimKinds))
	var found []string
	for _, text := range texts {
		if r.claimKinds[text] != nil {
			found = append(found, text)
			continue
		}
		var named []string
		for _, name := range all {
			if plural, _, _ := strings.Cut(name, "."); plural == text {
				named = append(named, name)
			}
		}
		switch {
		case len(all) == 0:
			return nil, fmt.Errorf("--%s=%q: no claim kind is registered: create a ClaimKind", flag, text)
		case len(named) == 0:
			return nil, fmt.Errorf("--%s=%q: no such claim kind is registered: name one of %s, or create its ClaimKind", flag, text, strings.Join(all, ", "))
		case len(named) > 1:
			return nil, fmt.Errorf("--%s=%q: may be any of %s: name one in full", flag, text, strings.Join(named, ", "))
		}
		found = append(found, named...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// findClassKind of a class that is to be the default of the claim kinds.
func (r *registry) findClassKind(c className, claimKinds []string) (*classKind, error) {
	candidates := r.classKinds
	if i := slices.IndexFunc(candidates, func(k *classKind) bool { return k.Name == c.kind }); i >= 0 {
		candidates = candidates[i : i+1]
	}
	var found, serving []*classKind
	for _, k := range candidates {
		if !k.called(c.kind) {
			continue
		}
		found = append(found, k)
		if len(k.unserved(claimKinds)) == 0 {
			serving = append(serving, k)
		}
	}
	switch {
	case len(r.classKinds) == 0:
		return nil, fmt.Errorf("%q: no class kind is registered: create a ClassKind", c)
	case len(found) == 0:
		return nil, fmt.Errorf("%q: no such class kind is registered: KIND must be one of %s, or create its ClassKind", c, names(r.classKinds))
	case len(serving) == 0 && len(found) == 1:
		return nil, fmt.Errorf("%q: %s does not serve %s: add it to spec.claimKinds of the ClassKind, or choose a class of another kind", c, names(found), strings.Join(found[0].unserved(claimKinds), ", "))
	case len(serving) == 0:
		return nil, fmt.Errorf("%q: none of %s serves %s: add it to spec.claimKinds of a ClassKind, or choose a class of another kind", c, names(found), strings.Join(claimKinds, " and "))
	case len(serving) > 1:
		return nil, fmt.Errorf("%q: may be of any of %s: name one in the place of %q", c, names(serving), c.kind)
	}
	k := serving[0]
	switch {
	case k.missing != nil:
		return nil, fmt.Errorf("%q: cannot find its kind: %w", c, k.missing)
	case k.Namespaced && c.namespace == "":
		return nil, fmt.Errorf("%q: classes of %s are namespaced: name it %s/NAMESPACE/%s", c, k.Name, c.kind, c.name)
	case !k.Namespaced && c.namespace != "":
		return nil, fmt.Errorf("%q: classes of %s have no namespace: name it %s/%s", c, k.Name, c.kind, c.name)
	}
	return k, nil
}

// related are the kinds of the classes that may be default for a claim kind
// whose default can change when one of these changes.
func (r *registry) related(claimKinds []string) []*classKind {
	var kinds []*classKind
	for range 2 { // Those that serve them; those that serve what these do.
		kinds = nil
		for _, k := range r.classKinds {
			if slices.ContainsFunc(claimKinds, k.serves) {
				kinds = append(kinds, k)
			}
		}
		for _, k := range kinds {
			claimKinds = slices.Concat(claimKinds, k.ClaimKinds)
		}
	}
	return kinds
}

func names(kinds []*classKind) string {
	list := make([]string, len(kinds))
	for i, k := range kinds {
		list[i] = k.Name
	}
	return strings.Join(list, ", ")
}
