package selector

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// All claims, classes and seeds below are fixed, so that a test that passes once always passes.

// claims are so many that a share of a tenth has a standard deviation of 0.2 percent.
const claims = 20_000

var gold = labels.SelectorFromSet(labels.Set{"tier": "gold"})

// A controller per class kind cannot meet this demand: a class's share must not
// depend on how many of its own kind match, nor on how many do not.
func TestDrawIsFair(t *testing.T) {
	for _, seed := range []v1beta1.SeedSource{v1beta1.SeedClaim, v1beta1.SeedRequest} {
		view := NewView(kindOf(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed.From = seed }), []*inventory.Classes{
			manyClasses("as.example.org", 200, 6), manyClasses("bs.example.org", 90, 3), manyClasses("cs.example.org", 10, 1),
		})
		require.Equal(t, 300, view.Len())
		fresh := rand.New(rand.NewPCG(1, 2)).Uint64 //nolint:gosec // It has to be reproducible.
		got := tally(t, view, fresh, claims)
		require.Len(t, got, 10)
		assertShares(t, got, equalShares(slices.Collect(maps.Keys(got))...), "We should give each class a tenth of the claims")
	}
}

func TestDrawFollowsWeights(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		strategy v1beta1.Strategy
		weights  map[string]int64
		want     map[string]float64 // shares, which add up to 1
	}{
		"WeightedRandom": {
			reason:   "We should give shares proportional to the weights, across class kinds",
			strategy: v1beta1.WeightedRandom,
			weights:  map[string]int64{"as/one": 1, "bs/three": 3, "cs/six": 6},
			want:     map[string]float64{"as/one": 0.1, "bs/three": 0.3, "cs/six": 0.6},
		},
		"WeightedRandomWithinAKind": {
			reason: "We should give shares proportional to the weights, within a class kind", strategy: v1beta1.WeightedRandom,
			weights: map[string]int64{"as/one": 100, "as/three": 300, "as/six": 600}, want: map[string]float64{"as/one": 0.1, "as/three": 0.3, "as/six": 0.6},
		},
		"WeightedRandomExtremes": {
			reason: "We should give next to nothing to a millionth, and nothing to 0", strategy: v1beta1.WeightedRandom,
			weights: map[string]int64{"as/one": 1_000_000, "as/two": 1_000_000, "bs/none": 0}, want: map[string]float64{"as/one": 0.5, "as/two": 0.5},
		},
		"HighestWeight": {
			reason: "We should take the heaviest alone, with equal shares among ties", strategy: v1beta1.HighestWeight,
			weights: map[string]int64{"as/light": 1, "as/heavy": 5, "bs/heavy": 5, "cs/heavy": 5, "cs/none": 0}, want: equalShares("as/heavy", "bs/heavy", "cs/heavy"),
		},
		"HighestWeightAlone": {
			reason:   "We should take the one heaviest for every claim",
			strategy: v1beta1.HighestWeight,
			weights:  map[string]int64{"as/light": 999_999, "bs/heavy": 1_000_000},
			want:     equalShares("bs/heavy"),
		},
		"Random": {
			reason:   "We should ignore weights, 0 among them",
			strategy: v1beta1.Random,
			weights:  map[string]int64{"as/one": 1, "as/thousand": 1000, "bs/none": 0},
			want:     equalShares("as/one", "as/thousand", "bs/none"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Choice.Strategy = tc.strategy
			assertShares(t, tally(t, weighed(k, tc.weights), nil, claims), tc.want, tc.reason)
		})
	}
}

// Names that people and StatefulSets give differ in a digit or two. The class of one claim must say nothing about the class of the next.
func TestDrawsOfSimilarNamesAreIndependent(t *testing.T) {
	weights := map[string]int64{}
	for i := range 10 {
		weights[fmt.Sprintf("as/class-%d", i)] = 1
	}
	view := weighed(postgres(), weights)
	got, want := map[string]int{}, map[string]float64{}
	for i := 0; i < claims; i += 2 {
		got[choose(view, nthClaim(i), 0).Class.Name+" "+choose(view, nthClaim(i+1), 0).Class.Name]++
	}
	for a := range weights {
		for b := range weights {
			want[a[len("as/"):]+" "+b[len("as/"):]] = 0.01
		}
	}
	assertShares(t, got, want, "We should give two claims in a row each pair of classes equally often")
}

func TestDrawBreaksTies(t *testing.T) {
	as, bs := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	first := &inventory.Class{Kind: as, Namespace: "a", Name: "a", Weight: 1}
	for name, tc := range map[string]struct {
		reason string
		other  *inventory.Class
	}{
		"Kind":      {reason: "We should take the first class kind", other: &inventory.Class{Kind: bs, Namespace: "a", Name: "a", Weight: 1}},
		"Namespace": {reason: "We should take the first namespace", other: &inventory.Class{Kind: as, Namespace: "b", Name: "a", Weight: 1}},
		"Name":      {reason: "We should take the first name", other: &inventory.Class{Kind: as, Namespace: "a", Name: "b", Weight: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := order{view: &View{Kind: NewClaimKind(postgres())}}
			a, b := d.place(first, 0), d.place(tc.other, 0) // Both have the hash 0.
			assert.True(t, a.before(&b), tc.reason)
			assert.False(t, b.before(&a), tc.reason)
		})
	}
}

func TestUniform(t *testing.T) {
	// The hash for which the mixed bits are those given, whatever the seed.
	hashFor := func(seed, mixed uint64) uint64 { return mix(seed) ^ unmix(mixed) }
	extremes := []uint64{0, 1, 1 << 11, 1 << 12, 1 << 63, math.MaxUint64 - 1<<11, math.MaxUint64 - 1, math.MaxUint64}
	for _, seed := range extremes {
		for _, x := range extremes {
			require.Equal(t, x, mix(unmix(x)))
			for _, hash := range []uint64{x, hashFor(seed, x)} {
				u := uniform(seed, hash)
				require.Greater(t, u, 0.0, "We should exclude 0, of which there is no logarithm (%x, %x)", seed, hash)
				require.Less(t, u, 1.0, "We should exclude 1, whose key any weight leaves at 0 (%x, %x)", seed, hash)
				for name, s := range strategies {
					for _, weight := range []int64{1, maxWeight} {
						_, key := s.place(u, weight)
						require.Greater(t, key, 0.0, "%s of weight %d (%x, %x)", name, weight, seed, hash)
						require.False(t, math.IsInf(key, 0) || math.IsNaN(key), "%s of weight %d (%x, %x)", name, weight, seed, hash)
					}
				}
			}
		}
	}
	assert.InDelta(t, 0, uniform(7, hashFor(7, 0)), 1e-15, "We should reach down to 0")
	assert.InDelta(t, 1, uniform(7, hashFor(7, math.MaxUint64)), 1e-15, "We should reach up to 1")

	_, key := strategies[v1beta1.Random].place(0.5, 0)
	assert.InDelta(t, math.Ln2, key, 1e-15, "We should not divide by a weight that we ignore")
}

// claim asks for gold, and its name differs little from the others'.
func nthClaim(i int) claim.Claim {
	return claim.Claim{Namespace: "team", Name: fmt.Sprintf("claim-%05d", i), Selector: gold}
}

// tally counts the claims that each class gets.
func tally(t *testing.T, view *View, fresh func() uint64, n int) map[string]int {
	t.Helper()
	if fresh == nil {
		fresh = func() uint64 { return 0 }
	}
	got := map[string]int{}
	for i := range n {
		d := choose(view, nthClaim(i), fresh())
		require.NotNil(t, d.Class)
		got[d.Class.String()]++
	}
	return got
}

func equalShares(classes ...string) map[string]float64 {
	shares := map[string]float64{}
	for _, c := range classes {
		shares[c] = 1 / float64(len(classes))
	}
	return shares
}

// assertShares is Pearson's chi-square test at p = 0.001: one in a thousand sets of seeds would fail it although the draw is right.
func assertShares(t *testing.T, got map[string]int, shares map[string]float64, reason string) {
	t.Helper()
	critical := map[int]float64{0: 0, 1: 10.828, 2: 13.816, 9: 27.877, 99: 148.230} // by degrees of freedom
	total := 0
	for class, n := range got {
		require.Contains(t, shares, class, reason)
		total += n
	}
	statistic := 0.0
	for class, share := range shares {
		expected := share * float64(total)
		require.Greater(t, expected, 5.0, "too few claims for the test")
		statistic += math.Pow(float64(got[class])-expected, 2) / expected
	}
	df := len(shares) - 1
	require.Contains(t, critical, df)
	assert.LessOrEqual(t, statistic, critical[df], "%s: chi-square of %v", reason, got)
}

// manyClasses of one kind, the first few of which are gold.
func manyClasses(kind string, n, ofGold int) *inventory.Classes {
	k := newKind(kind, kind)
	var classes []*inventory.Class
	for i := range n {
		tier := "other"
		if i < ofGold {
			tier = "gold"
		}
		classes = append(classes, k.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("class-%03d", i), Labels: map[string]string{"tier": tier}}, nil))
	}
	return inventory.NewClasses(k, classes)
}

// weighed is a view of golden classes, by kind/name.
func weighed(k *v1beta1.ClaimKind, weights map[string]int64) *View {
	classes := map[string][]*inventory.Class{}
	kinds := map[string]*inventory.ClassKind{}
	for id, weight := range weights {
		kind, name := id[:2], id[3:]
		if kinds[kind] == nil {
			kinds[kind] = newKind(kind+".example.org", kind)
		}
		classes[kind] = append(classes[kind], kinds[kind].NewClass(&metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"tier": "gold"}, Annotations: map[string]string{weightAnnotation: fmt.Sprint(weight)},
		}, nil))
	}
	var offered []*inventory.Classes
	for kind := range classes {
		offered = append(offered, inventory.NewClasses(kinds[kind], classes[kind]))
	}
	return NewView(NewClaimKind(k), offered)
}

// unmix is the inverse of mix.
func unmix(z uint64) uint64 {
	z ^= z>>31 ^ z>>62
	z *= 0x319642b2d24d8ec3 // the inverse of 0x94d049bb133111eb
	z ^= z>>27 ^ z>>54
	z *= 0x96de1b173f119089 // the inverse of 0xbf58476d1ce4e5b9
	z ^= z>>30 ^ z>>60
	return z - 0x9e3779b97f4a7c15
}

func TestPackageIsTheEngineAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/classbind/classbind/selector")

	for _, dep := range deps {
		for _, other := range []string{
			"k8s.io/client-go", "sigs.k8s.io/controller-runtime",
			"k8s.io/api/admission", "k8s.io/api/admissionregistration", "k8s.io/apiserver/pkg/admission", "k8s.io/apiserver/pkg/server",
		} {
			assert.Falsef(t, strings.HasPrefix(dep+"/", other+"/"), "We should know nothing of %s, but import %s", other, dep)
		}
	}
}

// TestLongNamesAreNoLabels keeps a claim from a class for which the API server would refuse it.
func TestLongNamesAreNoLabels(t *testing.T) {
	labelled := spec(`{reference: {path: "", label: kueue.x-k8s.io/queue-name, form: Name}}`)
	annotated := spec(`{reference: {path: "", annotation: example.org/class, form: Name}}`)
	for name, tc := range map[string]struct {
		reason  string
		kind    func(*v1beta1.ClaimKindSpec)
		length  int
		dropped string
	}{
		"Longest":    {"We should offer a class whose name a label may have.", labelled, 63, ""},
		"TooLong":    {"We should not offer a class whose name no label may have.", labelled, 64, "NameTooLong=1"},
		"Annotation": {"We should offer any class where the name is in an annotation.", annotated, 64, ""},
	} {
		as := newKind("as.example.org", "A")
		class := as.NewClass(&metav1.ObjectMeta{Name: strings.Repeat("a", tc.length)}, nil)
		d := choose(NewView(kindOf(tc.kind), []*inventory.Classes{inventory.NewClasses(as, []*inventory.Class{class})}), claim.Claim{
			Name:     "db",
			Selector: labels.Everything(),
		}, 0)
		assert.Equal(t, tc.dropped, d.DroppedText(), "%s: %s", name, tc.reason)
		assert.Equal(t, tc.dropped == "", d.Class != nil, "%s: %s", name, tc.reason)
	}
}

func TestDrawMovesNoMoreThanItMust(t *testing.T) {
	ten := func() map[string]int64 {
		weights := map[string]int64{}
		for i := range 10 {
			weights[fmt.Sprintf("%s/class-%d", []string{"as", "bs", "cs"}[i%3], i)] = 1
		}
		return weights
	}
	with := func(name string, weight int64) map[string]int64 {
		weights := ten()
		weights[name] = weight
		return weights
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after map[string]int64
		class         string
		share         float64 // of the claims that move
		away          bool    // from the class, rather than to it
	}{
		"Added": {
			reason: "We should move to a new class its own share, and nothing else",
			before: ten(),
			after:  with("ds/new", 1),
			class:  "ds/new",
			share:  1.0 / 11,
		},
		"AddedHeavy": {
			reason: "We should move to a new class its own share, and nothing else",
			before: ten(),
			after:  with("as/new", 10),
			class:  "as/new",
			share:  0.5,
		},
		"Removed": {
			reason: "We should move the claims of the class that is gone, and no others",
			before: with("bs/old", 1),
			after:  ten(),
			class:  "bs/old",
			share:  1.0 / 11,
			away:   true,
		},
		"Raised": {
			reason: "We should move to a class what its weight gains, and nothing else",
			before: ten(),
			after:  with("as/class-0", 6),
			class:  "as/class-0",
			share:  6.0/15 - 1.0/10,
		},
		"Drained": {
			reason: "We should move the claims of a class of weight 0, and no others",
			before: ten(),
			after:  with("as/class-0", 0),
			class:  "as/class-0",
			share:  0.1,
			away:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := weighed(postgres(), tc.before), weighed(postgres(), tc.after)
			moved := 0
			for i := range claims {
				from, to := choose(before, nthClaim(i), 0).Class.String(), choose(after, nthClaim(i), 0).Class.String()
				if from == to {
					continue
				}
				moved++
				if tc.away {
					require.Equal(t, tc.class, from, tc.reason)
				} else {
					require.Equal(t, tc.class, to, tc.reason)
				}
			}
			assertShares(t, map[string]int{"moved": moved, "stayed": claims - moved},
				map[string]float64{"moved": tc.share, "stayed": 1 - tc.share}, tc.reason)
		})
	}
}
