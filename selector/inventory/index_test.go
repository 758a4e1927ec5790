package inventory

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

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

// The index must find the classes that Kubernetes' own Matches finds.
func TestIndexMatchesAsAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // It has to be reproducible.
	kinds := []*ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	kinds[1].Namespaced = true
	for n := range 60 {
		kind := claimKind()
		kind.Spec.Classes.Namespaces = []v1beta1.ClassNamespaces{
			{}, {From: v1beta1.FromAll}, {From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"0", "2"}},
		}[n%3]
		offered := []*Classes{NewClasses(kinds[0], nil), NewClasses(kinds[1], nil)}
		changed := newOffer(kind, offered...) // class by class, so that its index lacks the last of them
		for k, kind := range kinds {
			for i := range random.IntN(40) {
				m := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%02d", i), Labels: randomLabels(random)}
				if kind.Namespaced {
					m.Namespace = fmt.Sprint(random.IntN(4))
				}
				before := changed.Classes[k]
				require.True(t, changed.Change(before, before.With(kind.NewClass(m, nil)), m.Namespace, m.Name))
			}
			offered[k] = NewClasses(kind, changed.Classes[k].All())
		}
		indexed := newOffer(kind, offered...)
		require.Equal(t, newSieve(changed.Classes), changed.sieve, "We should make the sieve as if no class had changed")
		without := changed.sieve.changedAt(1, offered[1], []*Classes{nil, NewClasses(kinds[1], nil)}) // Others may have many classes.
		require.LessOrEqual(t, slices.Max(slices.Concat(without.rows, without.changed)), uint64(1), "We should read no other kind, and forget this one")
		require.Empty(t, visited(indexed, "", labels.Nothing()), "We should not take the selector of nothing, which has no requirements, for that of everything")
		for range 50 {
			claim := claim.Claim{Namespace: []string{"", "0", "1"}[random.IntN(3)], Selector: randomSelector(t, random)}
			want, most := scanned(indexed, claim.Namespace, claim.Selector), len(scanned(indexed, claim.Namespace, labels.Everything()))
			for _, o := range []*Offer{indexed, changed} {
				require.Equal(t, want, visited(o, claim.Namespace, claim.Selector), "We should find each class that %v is offered and matches, and once", claim)
				require.Equal(t, most, o.LenOffered(claim.Namespace), "We should count the classes that %v is offered", claim)
			}
		}
	}
}

// A claim among 100,000 classes is as quick as among ten, because few are looked at. It pays for the classes that it is offered, not for
// those of a thousand other namespaces.
func TestIndexTakesTheShortestWay(t *testing.T) {
	kind := newKind("as.example.org", "Class")
	kind.Namespaced = true
	var classes []*Class
	for i := range 1000 { // 10 of gold, 50 in each region, 10 of each team, in a namespace of its own
		set := map[string]string{"tier": "other", "region": fmt.Sprint("region-", i%20), "team": fmt.Sprint("team-", i%100)}
		if i < 10 {
			set["tier"] = "gold"
		}
		classes = append(classes, kind.NewClass(&metav1.ObjectMeta{Namespace: set["team"], Name: fmt.Sprint("class-", i), Labels: set}, nil))
	}
	s := NewClasses(kind, classes)
	cases := map[string]struct {
		reason, namespace, selector string
		want                        int
	}{
		"Everything":       {"We should look at all classes where all match", "", "", 1000},
		"Label":            {"We should look at the classes that have the label", "", "region=region-1", 50},
		"Shortest":         {"We should look at the classes of the rarest label", "", "region=region-1,tier=gold,team", 10},
		"In":               {"We should look at the classes of each value", "", "region in (region-1,region-2)", 100},
		"Exists":           {"We should look at the classes that have the key", "", "nothing", 0},
		"UnknownValue":     {"We should look at nothing where no class has the label", "", "region=region-1,tier=platinum", 0},
		"ExclusionOnly":    {"We should look at all classes for a selector that only excludes", "", "tier!=gold,!nothing", 1000},
		"Exclusion":        {"We should look at the classes that an exclusion leaves to another requirement", "", "tier!=gold,region=region-1", 50},
		"Own":              {"We should look at the classes of its own namespace", "team-7", "", 10},
		"OwnOfCommonLabel": {"We should look at the classes of its own namespace rather than at all that have a label", "team-7", "region", 10},
		"OwnExclusionOnly": {"We should look at the classes of its own namespace rather than at all", "team-7", "!nothing", 10},
		"OwnOfRareLabel":   {"We should take the label where that is shorter", "team-7", "nothing", 0},
		"None":             {"We should look at nothing where it is offered nothing", "nobody", "tier=gold", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			require.NoError(t, err)
			terms, _ := newTerms(selector)
			reach := &claim.Reach{From: v1beta1.FromSameAsClaim}
			if tc.namespace == "" {
				reach = nil
			}
			_, _, _, _, looked := s.plan(terms, reach, tc.namespace)
			assert.Equal(t, tc.want, looked, tc.reason)
		})
	}
}

func visited(o *Offer, namespace string, s labels.Selector) (found []string) {
	o.Each(namespace, s, nil, func(c *Class) { found = append(found, c.String()) })
	slices.Sort(found)
	return found
}

// scanned asks each class for itself.
func scanned(o *Offer, namespace string, s labels.Selector) (found []string) {
	for _, classes := range o.Classes {
		classes.Each(func(c *Class) {
			if o.demand.Reach.Offers(namespace, c.Namespace) && s.Matches(c.Labels) {
				found = append(found, c.String())
			}
		})
	}
	slices.Sort(found)
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
