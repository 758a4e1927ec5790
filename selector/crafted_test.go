package selector

import (
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/claim/claimtest"
	"github.com/classbind/classbind/selector/inventory"
)

func TestCraftedTally(t *testing.T) {
	const prefix = "example.org/Gold//"
	for name, tc := range map[string]struct {
		prefix string
		format v1beta1.ReferenceForm
	}{
		"Class":    {prefix, v1beta1.ObjectReference},
		"Kindless": {"///", v1beta1.LocalObjectReference},
	} {
		t.Run(name, func(t *testing.T) {
			v := counting(0, func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = tc.format })
			kind := v.Classes[0].Kind
			var classes []*inventory.Class
			for _, name := range claimtest.Crafted(t, tc.prefix)[:100] {
				classes = append(classes, kind.NewClass(&metav1.ObjectMeta{Name: name}, nil))
				store(v, name, "", classes[0])
			}
			assert.EqualValues(t, 100, v.Kind.Tally.claims(v.Kind.CountedAs(classes[0])))
			assert.Zero(t, v.Kind.Tally.claims(v.Kind.CountedAs(classes[1])), "We should not count one class's claims for another whose name was made up for that.")
		})
	}
	t.Run("Claims", func(t *testing.T) {
		v := counting(1)
		gold := v.Classes[0].All()[0]
		for _, name := range claimtest.Crafted(t, "team-a/")[:100] {
			v.Kind.memory.commit(claim.Claim{Namespace: "team-a", Name: name}, gold, 0, time.Unix(0, 0))
		}
		v.Kind.Tally.Expire(time.Unix(0, 0))
		assert.EqualValues(t, 100, v.Kind.Tally.claims(v.Kind.CountedAs(gold)), "We should not take one claim for another whose name was made up for that.")
	})
	t.Run("Slots", func(t *testing.T) {
		// Names that share a slot of the table are enough: they are searched one by one.
		const slots, classes = 540, 250
		v := counting(0)
		kind := v.Classes[0].Kind
		for i, found := 0, 0; found < classes; i++ {
			name := fmt.Sprint("gold-", i)
			if xxhash.Sum64String(prefix+name)%slots == 0 {
				found++
				v.Kind.Tally.Bind(v.Kind.CountedAs(kind.NewClass(&metav1.ObjectMeta{Name: name}, nil)))
			}
		}
		table := *v.Kind.Tally.slots.Load()
		require.Len(t, table, slots)
		run, longest := 0, 0
		for i := range table {
			if run++; table[i].Load() == nil {
				run = 0
			}
			longest = max(longest, run)
		}
		assert.Less(t, longest, 100, "We should not look for a class among those whose names were made up to be in its way.")
	})
}

func TestCraftedTurns(t *testing.T) {
	classes := map[string][]string{}
	for _, name := range claimtest.Crafted(t, "example.org/A//")[:4] {
		classes[name] = []string{"any"}
	}
	view, got := tiers(inTurn(), classes), map[string]int{}
	for i := range 40 {
		got[next(t, view, asks(i, "any"), 0)]++
	}
	for name := range classes {
		assert.Equal(t, 10, got["A/"+name], "We should give each class its turns, whatever its name was made up for.")
	}
}
