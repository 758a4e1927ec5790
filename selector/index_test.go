package selector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// The index is a faster way to what Kubernetes' own Matches says of each class.
func TestIndexMatchesAsAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	kind := newKind("as.example.org", "A")
	for range 100 {
		var classes []*Class
		for i := range random.IntN(60) {
			classes = append(classes, &Class{Kind: kind, Name: fmt.Sprintf("class-%02d", i), Labels: randomLabels(random)})
		}
		x := NewIndex(kind, slices.Clone(classes))
		for range 100 {
			s := randomSelector(t, random)
			var want []*Class
			for _, c := range classes {
				if s.Matches(c.Labels) {
					want = append(want, c)
				}
			}
			require.Equal(t, names(want), names(matching(x, s)),
				"We should find each class that matches %q, and once", s)
		}
	}
}

func TestIndexMatchesNothing(t *testing.T) {
	kind := newKind("as.example.org", "A")
	x := NewIndex(kind, []*Class{{Kind: kind, Name: "a", Labels: labels.Set{"tier": "gold"}}})
	assert.Empty(t, matching(x, labels.Nothing()), "We should not take the selector of nothing, which has no requirements, for that of everything")
}

// How many classes are looked at is what makes a claim among 100,000 classes as quick as among ten.
func TestIndexTakesTheShortestWay(t *testing.T) {
	_, classes := crowd("as.example.org", 1000, 0, 1) // 10 of gold, 50 in each region, 10 of each team
	x := NewIndex(classes[0].Kind, classes)
	cases := map[string]struct {
		reason, selector string
		want             int
	}{
		"Everything":    {"We should look at all classes where all match", "", 1000},
		"Label":         {"We should look at the classes that have the label", "region=region-1", 50},
		"Shortest":      {"We should look at the classes of the rarest label", "region=region-1,tier=gold,team", 10},
		"In":            {"We should look at the classes of each value", "region in (region-1,region-2)", 100},
		"Exists":        {"We should look at the classes that have the key", "nothing", 0},
		"UnknownValue":  {"We should look at nothing where no class has the label", "region=region-1,tier=platinum", 0},
		"ExclusionOnly": {"We should look at all classes for a selector that only excludes", "tier!=gold,!nothing", 1000},
		"Exclusion":     {"We should look at the classes that an exclusion leaves to another requirement", "tier!=gold,region=region-1", 50},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := labels.Parse(tc.selector)
			require.NoError(t, err)
			_, looked := x.shortest(newQuery(s))
			assert.Equal(t, tc.want, looked, tc.reason)
		})
	}
}

func matching(x *Index, s labels.Selector) []*Class {
	var found []*Class
	x.each(newQuery(s), func(c *Class) { found = append(found, c) })
	return found
}

func TestIndexOrder(t *testing.T) {
	kind := newKind("as.example.org", "A")
	x := NewIndex(kind, []*Class{
		{Kind: kind, Namespace: "b", Name: "a"},
		{Kind: kind, Namespace: "a", Name: "b", Default: true},
		{Kind: kind, Name: "c"},
		{Kind: kind, Namespace: "a", Name: "a", Default: true},
	})
	var got []string
	for _, c := range x.Classes {
		got = append(got, c.String())
	}
	assert.Equal(t, []string{"A/c", "A/a/a", "A/a/b", "A/b/a"}, got, "We should order by namespace, then name")
	assert.Equal(t, []*Class{x.Classes[1], x.Classes[2]}, x.Defaults, "We should keep the order among defaults")
}

func BenchmarkChoose(b *testing.B) {
	everywhere := gold.Add(requirement(b, "region", selection.Exists))
	benchmarks := map[string]struct {
		classes, kinds int
		selector       labels.Selector
	}{
		"10Of1000":                   {1000, 1, gold},
		"10Of100000":                 {100_000, 1, gold},
		"10Of100000In50Kinds":        {100_000, 50, gold},
		"10Of100000ByTwoLabels":      {100_000, 1, everywhere},
		"10Of100000ByExpression":     {100_000, 1, labels.NewSelector().Add(requirement(b, "tier", selection.In, "gold", "platinum"))},
		"10Of100000WithoutASelector": {100_000, 1, nil},
	}
	for name, bm := range benchmarks {
		b.Run(name, func(b *testing.B) {
			var indexes []*Index
			for i := range bm.kinds {
				indexes = append(indexes, NewIndex(crowd(fmt.Sprintf("k%02ds.example.org", i), bm.classes/bm.kinds, i, bm.kinds)))
			}
			view := NewView(NewClaimKind(postgres()), indexes)
			claim := Claim{Namespace: "team", Name: "db", Selector: bm.selector}
			require.Equal(b, 10, view.Choose(claim, 0).Candidates)
			b.ReportAllocs()
			for b.Loop() {
				view.Choose(claim, 0)
			}
		})
	}
}

func BenchmarkNewIndex(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			kind, classes := crowd("as.example.org", n, 0, 1)
			rand.New(rand.NewPCG(7, 8)).Shuffle(n, func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
			b.ReportAllocs()
			for b.Loop() {
				NewIndex(kind, slices.Clone(classes))
			}
		})
	}
}

// crowd is n classes with three labels each. Of the crowds of all kinds
// together, ten are golden and default.
func crowd(name string, n, i, kinds int) (*ClassKind, []*Class) {
	kind := newKind(name, "Class")
	var classes []*Class
	for j := range n {
		meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%06d", j), Labels: map[string]string{
			"tier": "other", "region": fmt.Sprintf("region-%d", j%20), "team": fmt.Sprintf("team-%d", j%100),
		}}
		if j*kinds+i < 10 {
			meta.Labels["tier"] = "gold"
			meta.Annotations = map[string]string{defaultAnnotation: "true"}
		}
		classes = append(classes, kind.NewClass(meta, nil))
	}
	return kind, classes
}

var (
	someKeys   = []string{"a", "b", "c", "d"}
	someValues = []string{"", "1", "2", "3", "x"}
)

func randomLabels(random *rand.Rand) labels.Set {
	set := labels.Set{}
	for _, key := range someKeys {
		if random.IntN(3) > 0 {
			set[key] = someValues[random.IntN(len(someValues))]
		}
	}
	return set
}

// randomSelector has up to three requirements, of any operator and perhaps of
// one key, whose values may repeat: an author may write such a list.
func randomSelector(t *testing.T, random *rand.Rand) labels.Selector {
	t.Helper()
	selector := labels.NewSelector()
	for range random.IntN(4) {
		var values []string
		operator := []selection.Operator{
			selection.In, selection.NotIn, selection.Equals, selection.DoubleEquals, selection.NotEquals,
			selection.Exists, selection.DoesNotExist, selection.GreaterThan, selection.LessThan,
		}[random.IntN(9)]
		switch operator {
		case selection.In, selection.NotIn:
			for range 1 + random.IntN(3) {
				values = append(values, someValues[random.IntN(len(someValues))])
			}
		case selection.Exists, selection.DoesNotExist:
		case selection.GreaterThan, selection.LessThan:
			values = []string{fmt.Sprint(random.IntN(4))}
		default:
			values = []string{someValues[random.IntN(len(someValues))]}
		}
		selector = selector.Add(requirement(t, someKeys[random.IntN(len(someKeys))], operator, values...))
	}
	return selector
}

func requirement(tb testing.TB, key string, operator selection.Operator, values ...string) labels.Requirement {
	tb.Helper()
	r, err := labels.NewRequirement(key, operator, values)
	require.NoError(tb, err)
	return *r
}
