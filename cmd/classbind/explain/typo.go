package explain

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/selector"
)

// nearest returns the one of others that a name resembles most, empty if it resembles none.
func nearest(name string, others iter.Seq[string]) string {
	best := ""
	for _, other := range slices.Sorted(others) {
		if resembles(name, other) && (best == "" || typos(name, other) < typos(name, best)) {
			best = other
		}
	}
	return best
}

// nearestKind returns the one of the registered kinds, <plural>.<group>, that an unregistered kind resembles
// most. It is of the same group: vendors have like kinds in like groups.
func nearestKind(kind schema.GroupVersionKind, registered []string) string {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	names := map[string]string{} // by plural
	for _, name := range registered {
		if other := schema.ParseGroupResource(name); other.Group == kind.Group {
			names[other.Resource] = name
		}
	}
	for _, other := range slices.Sorted(maps.Keys(names)) {
		if isPlural(other, kind.Kind) {
			return names[other] // The kind may differ in case alone.
		}
	}
	return names[nearest(plural.Resource, maps.Keys(names))]
}

// isOf says whether a resource, <plural>.<group>, may be that of a kind.
func isOf(resource string, kind schema.GroupVersionKind) bool {
	name := schema.ParseGroupResource(resource)
	return name.Group == kind.Group && isPlural(name.Resource, kind.Kind)
}

// isPlural says whether a resource may be that of a kind: English has three plurals.
func isPlural(resource, kind string) bool {
	kind = strings.ToLower(kind)
	stem, y := strings.CutSuffix(kind, "y")
	return resource == kind || resource == kind+"s" || resource == kind+"es" || y && resource == stem+"ies"
}

// resembles says whether a name differs from another one only by case or by a typing error.
// Long names may have two, and short ones none.
func resembles(name, other string) bool {
	if name == other {
		return false
	}
	most := 1
	switch {
	case len(other) < 4:
		most = 0
	case len(other) >= 10:
		most = 2
	}
	return typos(name, other) <= most
}

// typos counts the typing errors between two names in any case.
func typos(a, b string) int { return selector.Edits(strings.ToLower(a), strings.ToLower(b)) }
