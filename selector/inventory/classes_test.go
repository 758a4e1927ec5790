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
	offers := []*Offer{newIndexed(reach, current...), newOffer(reach, current...), newIndexed(reach, current[0])}
	require.True(t, offers[1].ShareIndex(offers[0]))
	change := func(from, to *Classes, namespace, name string) {
		change := NewChange(from, to, namespace, name)
		for _, o := range offers {
			assert.Equal(t, len(o.Classes) == 2 || to.Kind == kinds[0], change.Apply(o))
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
			require.Equal(t, sorted(want.defaults), sorted(got.defaults), "We should know the default classes (%d)", i)
			require.Equal(t, sorted(want.faulty), sorted(got.faulty), "We should know the faulty classes (%d)", i)
			require.Equal(t, want.byNamespace, got.byNamespace, "We should know the classes of each namespace (%d)", i)
		}
		for _, o := range offers {
			require.Equal(t, newIndex(o.Classes, nil), o.index, "We should index what is there, and nothing else (%d)", i)
			for range 20 {
				s := randomSelector(t, random)
				require.Equal(t, matching(newOffer(reach, o.Classes...), s), matching(o, s), "We should find what matches %q (%d)", s, i)
			}
		}
		require.Same(t, offers[0].index, offers[1].index, "We should hold one index of the same classes.")
		require.Equal(t, oldClasses, older.All(), "We should leave classes as they were.")
		older, oldClasses = current[0], current[0].All()
	}
	for k, all := range model {
		for name := range all {
			before := current[k]
			current[k] = before.Without(name.namespace, name.name)
			change(before, current[k], name.namespace, name.name)
		}
		assert.Equal(t, &Classes{Kind: kinds[k]}, current[k], "We should keep nothing of classes that are gone.")
	}
	assert.Equal(t, &index{}, offers[0].index, "We should keep nothing of classes that are gone.")
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
		"Nothing":         {"We should not change with what is there.", nil, true, true},
		"NothingOfOurs":   {"We should not change with what choosing does not need.", func(m *metav1.ObjectMeta) { m.Annotations["a"], m.ResourceVersion = "b", "2" }, true, true},
		"Label":           {"We should change with a label.", func(m *metav1.ObjectMeta) { m.Labels["region"] = "us" }, false, true},
		"FewerLabels":     {"We should change without a label.", func(m *metav1.ObjectMeta) { delete(m.Labels, "region") }, false, true},
		"Weight":          {"We should change with the weight.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "4" }, false, true},
		"WithInvalidMark": {"We should change with a mark that cannot be read.", func(m *metav1.ObjectMeta) { m.Annotations[v1beta1.CordonedAnnotation] = "yes" }, false, false},
		"Cordoned":        {"We should change with a cordon.", func(m *metav1.ObjectMeta) { m.Annotations[v1beta1.CordonedAnnotation] = "true" }, false, true},
		"Terminating":     {"We should change with a deletion.", func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, false, true},
		"Default":         {"We should tell that another class is default.", func(m *metav1.ObjectMeta) { m.Annotations[defaultAnnotation] = "true" }, false, false},
		"TooMany":         {"We should tell that the labels of a class are too many.", func(m *metav1.ObjectMeta) { m.Labels["long"] = strings.Repeat("x", v1beta1.MaxClassLabelBytes) }, false, false},
		"Malformed":       {"We should tell that another class is malformed.", func(m *metav1.ObjectMeta) { m.Annotations[weightAnnotation] = "x" }, false, false},
		"Another":         {"We should tell that there is one more.", func(m *metav1.ObjectMeta) { m.Name = "third" }, false, false},
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
	})).SameSummary(marked), "We should tell that the default class is being deleted.")
	assert.False(t, NewClasses(newKind("as.example.org", "A"), x.All()).SameSummary(x), "We should tell the kind from one that is registered anew.")
}

// twin is a key that shares its hash with many others.
type twin int

func (k twin) Hash() uint64 { return uint64(k%7) << 61 } //nolint:gosec // No key is negative.

// number is a key whose hash few others come near to, or many.
type number int

func (k number) Hash() uint64 { return uint64(k) * 0x9e3779b97f4a7c15 &^ (uint64(k%3) * 0xfff) } //nolint:gosec // No key is negative.

func TestTable(t *testing.T) {
	t.Run("Twins", func(t *testing.T) { testTable[twin](t, 7*(maxChunk+50)) })
	t.Run("Numbers", func(t *testing.T) { testTable[number](t, 5000) })
}

func testTable[K interface {
	~int
	tableKey
}](t *testing.T, keys int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	d, model := table[K, int]{}, map[K]int{}
	before, modelBefore := d, map[K]int{}
	for i := range 20 * keys {
		k := K(random.IntN(keys))
		// First it grows, and then it shrinks to nothing.
		if random.IntN(20*keys) > i {
			d, model[k] = d.With(k, i), i
		} else {
			d = d.Without(k)
			delete(model, k)
		}
		value, ok := d.Get(k)
		want, has := model[k]
		require.Equal(t, has, ok, "We should find a key that is there, and no other (%d)", i)
		require.Equal(t, want, value, "We should find what was put there last (%d)", i)
		require.Len(t, model, d.size, "We should count the keys (%d)", i)
		if i%keys == 0 {
			requireTable(t, model, d)
			requireTable(t, modelBefore, before) // We should never change a table.
			before, modelBefore = d, maps.Clone(model)
		}
	}
	for k := range maps.Clone(model) {
		d = d.Without(k)
		delete(model, k)
		requireTable(t, model, d)
	}
	require.Zero(t, d, "We should be left with nothing.")
}

func requireTable[K tableKey](t *testing.T, model map[K]int, d table[K, int]) {
	t.Helper()
	all := map[K]int{}
	d.Each(func(k K, v int) {
		_, twice := all[k]
		require.False(t, twice, "We should visit each key once.")
		all[k] = v
	})
	require.Equal(t, model, all, "We should visit all that is there.")
}

// TestCraftedClasses plays an author who makes up names for one place of a table: another process has other places.
func TestCraftedClasses(t *testing.T) {
	kind := newKind("as.example.org", "A")
	places := func() []uint64 {
		c := kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "gold"}, nil)
		return []uint64{c.Hash(), c.name().Hash(), text("team").Hash(), c.groupless, c.kindless}
	}
	before, seed := places(), claim.Seed
	defer func() { claim.Seed = seed }()
	claim.Seed = maphash.MakeSeed()
	for i, place := range places() {
		assert.NotEqual(t, before[i], place, "Nobody should know the place %d of a class.", i)
	}
}
