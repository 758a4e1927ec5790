package webhook

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/reference"
)

// result of a claim.
type result struct {
	// refused says that the claim is malformed, or, with unmatched, that there is no
	// class for it.
	refused, unmatched bool
	// class as a log has it; empty if the claim gets none.
	class string
	// among says that the class may be any of these, as by turns.
	among []string
	// either says that the claim may also be refused, because it is close to a limit.
	either bool
}

// allows reports whether a result that was seen is right.
func (r result) allows(got result) bool {
	switch {
	case r.either && got.refused && !got.unmatched:
		return true
	case r.refused != got.refused || r.unmatched != got.unmatched:
		return false
	case len(r.among) > 0:
		return slices.Contains(r.among, got.class)
	}
	return r.class == got.class
}

// decide on a claim as docs/claims.md says, slowly and with none of the product's code:
// Kubernetes' own code reads and matches the selector.
func (w *world) decide(c fuzzedClaim) result {
	name := c.name
	if c.which&generated != 0 {
		name = ""
	}
	if len(valid(c.namespace)) > v1beta1.MaxNameBytes || len(valid(name)) > v1beta1.MaxNameBytes {
		return result{refused: true} // No API server sends such a name.
	}
	var object struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct{ ClassSelector json.RawMessage }
	}
	if err := json.Unmarshal([]byte(c.object()), &object); err != nil {
		return result{refused: true}
	}
	var anything any
	if len(object.Spec.ClassSelector) > 0 && json.Unmarshal(object.Spec.ClassSelector, &anything) != nil {
		return result{refused: true} // Numbers beyond a float64, which JSON itself allows.
	}
	selector, err := reference.Of(anything, object.Metadata.Annotations)
	if err != nil {
		return result{refused: true}
	}
	r := w.choose(c, selector.Selector)
	r.either = selector.MayBeRefused
	return r
}

func (w *world) choose(c fuzzedClaim, selector labels.Selector) result {
	kind := w.claimKinds[c.claimKind()]
	weighted := kind.Choice.Strategy != v1beta1.Random && kind.Choice.Strategy != v1beta1.RoundRobin
	claimNamespace, claimName := valid(c.namespace), valid(c.name)
	seed := xxhash.Sum64String(c.claimKind() + "." + worldGroup + "/" + claimNamespace + "/" + claimName)
	if c.which&generated != 0 || claimName == "" {
		seed = 1
	}
	best, bestWeight, bestKey := result{}, int64(0), 0.0
	for _, class := range w.candidates(c, selector) {
		if weighted && class.weight == 0 {
			continue
		}
		u := referenceUniform(seed, xxhash.Sum64String(class.group+"/"+class.kind+"/"+class.namespace+"/"+class.name))
		key, rank := -math.Log(u), int64(0)
		switch kind.Choice.Strategy {
		case v1beta1.WeightedRandom, v1beta1.LeastClaims:
			key /= float64(class.weight)
		case v1beta1.HighestWeight:
			rank = class.weight
		default:
		}
		if kind.Choice.Strategy == v1beta1.RoundRobin {
			best.among = append(best.among, class.String())
		}
		if best.class == "" || rank > bestWeight || rank == bestWeight && key < bestKey {
			best.class, bestWeight, bestKey = class.String(), rank, key
		}
	}
	if best.class == "" && kind.WhenUnmatched == v1beta1.Deny {
		return result{refused: true, unmatched: true}
	}
	return best
}

// candidates before weights count. A claim without a selector gets a default of its own
// namespace, if there is one that it may get.
func (w *world) candidates(c fuzzedClaim, selector labels.Selector) (all []*plainClass) {
	namespace, kind := valid(c.namespace), w.claimKinds[c.claimKind()]
	var own []*plainClass
	for i := range w.classes {
		class := &w.classes[i]
		switch {
		case class.terminating, class.cordoned, !w.offers(c.claimKind(), namespace, class):
		case selector != nil && !selector.Matches(labels.Set(class.labels)):
		case selector == nil && !class.isDefault:
		default:
			all = append(all, class)
			if class.namespace != "" && (class.weight > 0 || kind.Choice.Strategy == v1beta1.Random || kind.Choice.Strategy == v1beta1.RoundRobin) {
				own = append(own, class)
			}
		}
	}
	if selector == nil && len(own) > 0 && w.from[c.claimKind()] == "SameAsClaim" {
		return own
	}
	return all
}

// referenceUniform is the draw of docs/claims.md: a number in (0,1), from both arguments.
func referenceUniform(seed, class uint64) float64 {
	mix := func(z uint64) uint64 {
		z += 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return (float64(mix(mix(seed)^class)>>12) + 0.5) / (1 << 52)
}

func (c *plainClass) String() string {
	if c.namespace == "" {
		return c.kind + "/" + c.name
	}
	return c.kind + "/" + c.namespace + "/" + c.name
}

// valid is the text after JSON, without invalid UTF-8.
func valid(text string) (back string) {
	quoted, _ := json.Marshal(text)
	_ = json.Unmarshal(quoted, &back)
	return back
}
