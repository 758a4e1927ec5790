package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// TestSelected agrees with a map of labels after any changes, and whether the objects were read one by one or all at once.
func TestSelected(t *testing.T) {
	random := rand.New(rand.NewPCG(54, 7)) //nolint:gosec // It has to be reproducible.
	kind := &rules.Kind{Resource: "quotas.example.org", Fields: expression.NewFields(
		fields.Path{"metadata", "name"}, fields.Path{"metadata", "labels", "a"}, fields.Path{"metadata", "labels", "b"})}
	for _, text := range []string{"", "a", "!b", "a=1", "a in (1, 2),b!=1"} {
		selector, err := labels.Parse(text)
		require.NoError(t, err)
		kind.Selectors = append(kind.Selectors, selector)
	}
	model := map[types.NamespacedName]labels.Set{}
	objectOf := func(name types.NamespacedName) *expression.Object {
		set := map[string]any{}
		for key, value := range model[name] {
			set[key] = value
		}
		return kind.Fields.Project(map[string]any{"metadata": map[string]any{"name": name.Name, "labels": set}})
	}
	objects := NewObjects(kind, true, nil)
	for i := range 3000 {
		name := types.NamespacedName{Namespace: fmt.Sprint(random.IntN(3)), Name: fmt.Sprint(random.IntN(20))}
		if random.IntN(4) == 0 {
			delete(model, name)
			objects = objects.Without(name.Namespace, name.Name)
		} else {
			model[name] = labels.Set{}
			for _, key := range []string{"a", "b"} {
				if random.IntN(3) > 0 {
					model[name][key] = fmt.Sprint(random.IntN(3))
				}
			}
			objects = objects.With(name.Namespace, name.Name, objectOf(name))
		}
		if i%10 > 0 {
			continue
		}
		read := map[types.NamespacedName]*expression.Object{}
		for name := range model {
			read[name] = objectOf(name)
		}
		for _, selector := range kind.Selectors {
			for _, known := range []*Objects{objects, NewObjects(kind, true, read)} {
				of := &rules.Kind{Selectors: []labels.Selector{selector}}
				var want []string
				for name, set := range model {
					if name.Namespace == "1" && selector.Matches(set) {
						want = append(want, name.Name)
					}
				}
				slices.Sort(want)
				selected, _ := known.Selected(of, "1")
				var got []string
				for _, o := range selected {
					name, _ := o.(*expression.Object).Lookup(fields.Path{"metadata", "name"})
					got = append(got, name.(string))
				}
				require.Equal(t, want, got, "We should select by %q (%d)", selector, i)
			}
		}
	}
}
