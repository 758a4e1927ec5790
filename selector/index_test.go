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

// newView has an index, as those of an inventory.
func newView(kind *ClaimKind, classes []*Classes) *View {
	v := NewView(kind, classes)
	v.index = newIndex(v.Classes)
	return v
}

// The index is a faster way to what Kubernetes' own Matches says of each class.
func TestIndexMatchesAsAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	kinds := []*ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	for range 50 {
		var offered []*Classes
		for _, kind := range kinds {
			var classes []*Class
			for i := range random.IntN(40) {
				classes = append(classes, kind.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("class-%02d", i), Labels: randomLabels(random)}, nil))
			}
			offered = append(offered, NewClasses(kind, classes))
		}
		indexed, scanned := newView(NewClaimKind(postgres()), offered), NewView(NewClaimKind(postgres()), offered)
		for range 50 {
			s := randomSelector(t, random)
			var want []*Class
			for _, classes := range offered {
				for _, c := range classes.All() {
					if s.Matches(c.Labels) {
						want = append(want, c)
					}
				}
			}
			require.Equal(t, names(want), names(matching(indexed, s)), "We should find each class that matches %q, and once", s)
			require.Equal(t, names(want), names(matching(scanned, s)), "We should find each class that matches %q, and once", s)
		}
	}
}

func TestIndexMatchesNothing(t *testing.T) {
	kind := newKind("as.example.org", "A")
	v := newView(NewClaimKind(postgres()), []*Classes{NewClasses(kind, []*Class{{Kind: kind, Name: "a", Labels: NewLabels(map[string]string{"tier": "gold"})}})})
	assert.Empty(t, matching(v, labels.Nothing()), "We should not take the selector of nothing, which has no requirements, for that of everything")
}

// How many classes are looked at is what makes a claim among 100,000 classes as quick as among ten.
func TestIndexTakesTheShortestWay(t *testing.T) {
	_, classes := crowd("as.example.org", 1000, 0, 1) // 10 of gold, 50 in each region, 10 of each team
	v := newView(NewClaimKind(postgres()), []*Classes{NewClasses(classes[0].Kind, classes)})
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
			counting := &countingSelector{Selector: s}
			visited := 0
			v.each(Claim{Selector: counting}, func(*Class) { visited++ })
			assert.Equal(t, tc.want, max(counting.looked, visited), tc.reason) // One label is not looked at again.
		})
	}
}

// countingSelector counts the classes that are looked at.
type countingSelector struct {
	labels.Selector

	looked int
}

func (s *countingSelector) Matches(l labels.Labels) bool {
	s.looked++
	return s.Selector.Matches(l)
}

func matching(v *View, s labels.Selector) []*Class {
	var found []*Class
	v.each(Claim{Selector: s}, func(c *Class) { found = append(found, c) })
	slices.SortFunc(found, compare)
	return found
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
