package selector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/classbind/classbind/api/v1alpha1"
)

// The index is a faster way to what Kubernetes' own Matches says of each class.
func TestIndexMatchesAsAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	kind := newKind("as.example.org", "A")
	for range 100 {
		var classes []*Class
		for i := range random.IntN(60) {
			classes = append(classes, &Class{Kind: kind, Name: fmt.Sprintf("class-%02d", i), Labels: NewLabels(randomLabels(random))})
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
	x := NewIndex(kind, []*Class{{Kind: kind, Name: "a", Labels: NewLabels(map[string]string{"tier": "gold"})}})
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
			q := newQuery(s)
			_, _, looked := x.shortest(&q)
			assert.Equal(t, tc.want, looked, tc.reason)
		})
	}
}

func matching(x *Index, s labels.Selector) []*Class {
	var found []*Class
	q := newQuery(s)
	x.each(&q, func(c *Class) { found = append(found, c) })
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
	for _, c := range x.Classes() {
		got = append(got, c.String())
	}
	assert.Equal(t, []string{"A/c", "A/a/a", "A/a/b", "A/b/a"}, got, "We should order by namespace, then name")
	assert.Equal(t, []*Class{x.Classes()[1], x.Classes()[2]}, x.Defaults(), "We should keep the order among defaults")
}

// An index that comes of many changes is the one that is made of all classes at once.
func TestIndexChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	kind := newKind("as.example.org", "A")
	randomClass := func(i int) *Class {
		annotations := map[string]string{}
		if random.IntN(4) == 0 {
			annotations[defaultAnnotation] = "true"
		}
		if random.IntN(4) == 0 {
			annotations[weightAnnotation] = []string{"heavy", "7"}[random.IntN(2)]
		}
		return kind.NewClass(&metav1.ObjectMeta{Namespace: fmt.Sprint(i % 3), Name: fmt.Sprint("class-", i), Labels: randomLabels(random), Annotations: annotations}, nil)
	}
	x, all := NewIndex(kind, nil), map[className]*Class{}
	older, oldClasses := x, []*Class{}
	for i := range 3000 {
		c := randomClass(random.IntN(150))
		name := className{c.Namespace, c.Name}
		before := x
		if random.IntN(3) > 0 {
			if x = x.With(c); x != before {
				all[name] = c
			}
		} else {
			x = x.Without(c.Namespace, c.Name)
			delete(all, name)
		}
		if i%50 > 0 {
			continue
		}
		want := NewIndex(kind, slices.Collect(maps.Values(all)))
		require.Equal(t, len(all), x.Len())
		require.Equal(t, want.Classes(), x.Classes(), "We should have each class as it was last put there (%d)", i)
		require.Equal(t, want.Defaults(), x.Defaults(), "We should know the default classes (%d)", i)
		require.Equal(t, want.Malformed(), x.Malformed(), "We should know the malformed classes (%d)", i)
		for range 20 {
			s := randomSelector(t, random)
			require.ElementsMatch(t, matching(want, s), matching(x, s), "We should find what matches %q (%d)", s, i)
			q := newQuery(s)
			_, _, fewest := want.shortest(&q)
			_, _, looked := x.shortest(&q)
			require.Equal(t, fewest, looked, "We should count the classes of each label (%d)", i)
		}
		require.Equal(t, oldClasses, older.Classes(), "We should leave an index as it was.")
		older, oldClasses = x, x.Classes()
	}
	for name := range all {
		x = x.Without(name.namespace, name.name)
	}
	assert.Equal(t, &Index{Kind: kind}, x, "We should keep nothing of classes that are gone.")
}

func TestIndexIsTheSame(t *testing.T) {
	kind := newKind("as.example.org", "A")
	gold := func(change func(*metav1.ObjectMeta)) *Class {
		m := &metav1.ObjectMeta{Name: "gold", Labels: map[string]string{"tier": "gold", "region": "eu"}, Annotations: map[string]string{weightAnnotation: "3"}}
		if change != nil {
			change(m)
		}
		return kind.NewClass(m, nil)
	}
	x := NewIndex(kind, []*Class{gold(nil), kind.NewClass(&metav1.ObjectMeta{Name: "other"}, nil)})
	assert.Same(t, x, x.Without("", "none"), "We should not change without a class that is not there.")
	now := metav1.Now()
	for name, tc := range map[string]struct {
		reason          string
		change          func(*metav1.ObjectMeta)
		same, resembles bool
	}{
		"Nothing":       {"We should not change with what is there.", nil, true, true},
		"NothingOfOurs": {"We should not change with what choosing does not need.", func(m *metav1.ObjectMeta) { m.Annotations["a"], m.ResourceVersion = "b", "2" }, true, true},
		"Label":         {"We should change with a label.", func(m *metav1.ObjectMeta) { m.Labels["region"] = "us" }, false, true},
		"FewerLabels":   {"We should change without a label.", func(m *metav1.ObjectMeta) { delete(m.Labels, "region") }, false, true},
		"Weight":        {"We should change with the weight.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "4" }, false, true},
		"Cordoned":      {"We should change with a cordon.", func(m *metav1.ObjectMeta) { m.Annotations[v1alpha1.CordonedAnnotation] = "true" }, false, true},
		"Terminating":   {"We should change with a deletion.", func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, false, true},
		"Default":       {"We should tell that another class is default.", func(m *metav1.ObjectMeta) { m.Annotations[defaultAnnotation] = "true" }, false, false},
		"Malformed":     {"We should tell that another class is malformed.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "x" }, false, false},
		"Another":       {"We should tell that there is one more.", func(m *metav1.ObjectMeta) { m.Name = "third" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			with := x.With(gold(tc.change))
			assert.Equal(t, tc.same, x == with, tc.reason)
			assert.Equal(t, tc.resembles, with.Resembles(x), tc.reason)
		})
	}
	marked := x.With(gold(func(m *metav1.ObjectMeta) { m.Annotations[defaultAnnotation] = "true" }))
	assert.False(t, marked.With(gold(func(m *metav1.ObjectMeta) {
		m.Annotations[defaultAnnotation], m.DeletionTimestamp = "true", &now
	})).Resembles(marked), "We should tell that the default class is being deleted.")
	assert.False(t, NewIndex(newKind("as.example.org", "A"), x.Classes()).Resembles(x), "We should tell the kind from one that is registered anew.")
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
