package inventory

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
)

// Classes after many changes, and their index, equal those that are built at once, and nothing is left of classes that are gone.
func TestClassesChange(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // It has to be reproducible.
	kinds := []*ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	kinds[1].Namespaced = true
	randomClass := func(kind *ClassKind) *Class {
		i, annotations := random.IntN(150), map[string]string{}
		if random.IntN(4) == 0 {
			annotations[defaultAnnotation] = "true"
		}
		if random.IntN(4) == 0 {
			annotations[weightAnnotation] = []string{"heavy", "7"}[random.IntN(2)]
		}
		set := randomLabels(random)
		if random.IntN(4) == 0 {
			set["long"] = strings.Repeat("x", v1beta1.MaxClassLabelBytes)
		}
		m := &metav1.ObjectMeta{Name: fmt.Sprint("class-", i), Labels: set, Annotations: annotations}
		if kind.Namespaced {
			m.Namespace = fmt.Sprint(i % 3)
		}
		return kind.NewClass(m, nil)
	}
	reach := claimKind()
	reach.Spec.Classes.Namespaces.From = v1beta1.FromAll
	model, current := []map[className]*Class{{}, {}}, []*Classes{NewClasses(kinds[0], nil), NewClasses(kinds[1], nil)}
	offers := []*Offer{newOffer(reach, current...), newOffer(claimKind(), current...), newOffer(reach, current[0])}
	change := func(from, to *Classes, namespace, name string) {
		for _, o := range offers {
			assert.Equal(t, len(o.Classes) == 2 || to.Kind == kinds[0], o.Change(from, to, namespace, name))
		}
	}
	older, oldClasses := current[0], []*Class{}
	for i := range 4000 {
		k := random.IntN(2)
		before, c := current[k], randomClass(kinds[k])
		if random.IntN(3) > 0 {
			if current[k] = before.With(c); current[k] != before {
				model[k][c.name()] = c
			}
		} else {
			current[k] = before.Without(c.Namespace, c.Name)
			delete(model[k], c.name())
		}
		change(before, current[k], c.Namespace, c.Name)
		if i%100 > 0 {
			continue
		}
		for k, got := range current {
			want := NewClasses(kinds[k], slices.Collect(maps.Values(model[k])))
			require.Equal(t, len(model[k]), got.Len(), "We should count the classes (%d)", i)
			require.Equal(t, want.All(), got.All(), "We should have each class as it was last put there (%d)", i)
			require.Equal(t, want.defaults(), got.defaults(), "We should know the default classes (%d)", i)
			require.Equal(t, want.Faulty(isFaulty), got.Faulty(isFaulty), "We should know the faulty classes (%d)", i)
			require.Equal(t, newIndex(got.members.base), got.index, "We should index what is there, and nothing else (%d)", i)
		}
		for _, o := range offers {
			fresh := newOffer(reach, o.Classes...)
			fresh.demand = o.demand
			for _, namespace := range []string{"", "0", "1", "none"} {
				require.Equal(t, fresh.LenOffered(namespace), o.LenOffered(namespace), "We should know the classes of each namespace (%d)", i)
				s := randomSelector(t, random)
				require.Equal(t, scanned(o, namespace, s), visited(o, namespace, s), "We should find what matches %q (%d)", s, i)
			}
		}
		for k := range kinds {
			require.Same(t, current[k], offers[0].Classes[k], "We should hold one index of the same classes.")
			require.Same(t, current[k], offers[1].Classes[k], "We should hold one index of the same classes.")
		}
		require.Equal(t, oldClasses, older.All(), "We should leave classes as they were.")
		older, oldClasses = current[0], current[0].All()
	}
	for k, all := range model {
		for name := range all {
			before := current[k]
			current[k] = before.Without(name.namespace, name.name)
			change(before, current[k], name.namespace, name.name)
		}
		assert.Zero(t, current[k].members, "We should keep nothing of classes that are gone.")
		assert.Equal(t, newIndex(nil), current[k].index, "We should keep nothing of classes that are gone.")
	}
}

func TestClassesAreTheSame(t *testing.T) {
	kind := newKind("as.example.org", "A")
	gold := func(change func(*metav1.ObjectMeta)) *Class {
		m := &metav1.ObjectMeta{Name: "gold", Labels: map[string]string{"tier": "gold", "region": "eu"}, Annotations: map[string]string{weightAnnotation: "3"}}
		if change != nil {
			change(m)
		}
		return kind.NewClass(m, nil)
	}
	x := NewClasses(kind, []*Class{gold(nil), kind.NewClass(&metav1.ObjectMeta{Name: "other"}, nil)})
	assert.Same(t, x, x.Without("", "none"), "We should not change without a class that is not there.")
	now := metav1.Now()
	for name, tc := range map[string]struct {
		reason            string
		change            func(*metav1.ObjectMeta)
		same, sameSummary bool
	}{
		"Nothing": {"We should not change with what is there.", nil, true, true},
		"NothingOfOurs": {
			"We should not change with what choosing does not need.",
			func(m *metav1.ObjectMeta) { m.Annotations["a"], m.ResourceVersion = "b", "2" }, true, true,
		},
		"Label":       {"We should change with a label.", func(m *metav1.ObjectMeta) { m.Labels["region"] = "us" }, false, true},
		"FewerLabels": {"We should change without a label.", func(m *metav1.ObjectMeta) { delete(m.Labels, "region") }, false, true},
		"Weight":      {"We should change with the weight.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "4" }, false, true},
		"WithInvalidMark": {
			"We should change with a mark that cannot be read.", func(m *metav1.ObjectMeta) { m.Annotations[v1beta1.CordonedAnnotation] = "yes" },
			false, false,
		},
		"Cordoned":    {"We should change with a cordon.", func(m *metav1.ObjectMeta) { m.Annotations[v1beta1.CordonedAnnotation] = "true" }, false, true},
		"Terminating": {"We should change with a deletion.", func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, false, true},
		"Default": {
			"We should report that another class is default.", func(m *metav1.ObjectMeta) { m.Annotations[defaultAnnotation] = "true" }, false,
			false,
		},
		"TooMany": {
			"We should report that the labels of a class are too many.",
			func(m *metav1.ObjectMeta) { m.Labels["long"] = strings.Repeat("x", v1beta1.MaxClassLabelBytes) }, false, false,
		},
		"Malformed": {"We should report that another class is malformed.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "x" }, false, false},
		"Another":   {"We should report that there is one more.", func(m *metav1.ObjectMeta) { m.Name = "third" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			with := x.With(gold(tc.change))
			assert.Equal(t, tc.same, x == with, tc.reason)
			assert.Equal(t, tc.sameSummary, with.SameSummary(x), tc.reason)
		})
	}
	marked := x.With(gold(func(m *metav1.ObjectMeta) { m.Annotations[defaultAnnotation] = "true" }))
	assert.False(t, marked.With(gold(func(m *metav1.ObjectMeta) {
		m.Annotations[defaultAnnotation], m.DeletionTimestamp = "true", &now
	})).SameSummary(marked), "We should report that the default class is being deleted.")
	assert.False(t, NewClasses(newKind("as.example.org", "A"), x.All()).SameSummary(x), "We should distinguish the kind from one that is registered anew.")
}

// A list after many changes has what a map has, in order, and is never changed itself.
func TestList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	const steps = 20_000
	byName := func(a, b object) int { return a.compare(b.className) }
	sorted := func(model map[className]object) []object { return slices.SortedFunc(maps.Values(model), byName) }
	l, model := list[object]{}, map[className]object{}
	before, modelBefore := l, maps.Clone(model)
	for i := range steps {
		n := className{fmt.Sprint(random.IntN(5)), fmt.Sprint(random.IntN(200))}
		// First it grows, and then it shrinks to nothing.
		if random.IntN(steps) > i {
			model[n] = object{className: n, fields: new(expression.Object)}
			l = l.with(n, model[n])
		} else {
			delete(model, n)
			l = l.with(n)
		}
		got, ok := l.find(n)
		want, has := model[n]
		require.Equal(t, has, ok, "We should find what is there, and nothing else (%d)", i)
		require.Same(t, want.fields, got.fields, "We should find what was put there last (%d)", i)
		require.Len(t, model, l.len(), "We should count what is there (%d)", i)
		changes := max(len(l.added), len(l.gone))
		require.LessOrEqual(t, changes*changes, max(len(l.base), minChanged*minChanged), "We should look at few changes one by one (%d)", i)
		if i%100 > 0 {
			continue
		}
		require.Equal(t, sorted(model), l.all(), "We should visit all that is there, in order (%d)", i)
		for namespace := range 6 {
			var of []object
			for _, o := range sorted(model) {
				if o.namespace == fmt.Sprint(namespace) {
					of = append(of, o)
				}
			}
			var visited []object
			all := l.in(fmt.Sprint(namespace), func(o object) bool {
				visited = append(visited, o)
				return len(visited) < 50
			})
			require.Equal(t, of[:min(len(of), 50)], visited, "We should visit those of a namespace alone, in order (%d)", i)
			require.Equal(t, len(of) < 50, all, "We should end when a visit does (%d)", i)
		}
		require.Equal(t, sorted(modelBefore), before.all(), "We should never change a list (%d)", i)
		before, modelBefore = l, maps.Clone(model)
	}
	for n := range model {
		l = l.with(n)
	}
	require.Zero(t, l, "We should be left with nothing.")
}

// TestCraftedClasses plays an author who makes up names and keys for one place of a map: another process has other places.
func TestCraftedClasses(t *testing.T) {
	kind := newKind("as.example.org", "A")
	places := func() []uint64 {
		c := kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "gold"}, nil)
		return []uint64{c.Place, hashOf("team"), c.groupless, c.kindless}
	}
	before, seed := places(), claim.Seed
	defer func() { claim.Seed = seed }()
	claim.Seed = maphash.MakeSeed()
	for i, place := range places() {
		assert.NotEqual(t, before[i], place, "Nobody should know the place %d of a class.", i)
	}
}
