package selector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// clocked has related objects expire by a clock of the test.
func (m *market) clocked() *time.Time {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m.now = func() time.Time { return now }
	return &now
}

// known class of this name.
func (m *market) known(name string) *inventory.Class {
	m.t.Helper()
	c := m.Snapshot()[m.claims.Name].All[0].Find("team", name)
	require.NotNil(m.t, c)
	return c
}

const weighedByPrice = `{` + related + `, weight: {expression: classRelated.price.spec.weight},
	capacity: [{name: claims, total: {expression: classRelated.price.spec.room}, perNamespace: {annotation: example.org/capacity}}]}`

// TestDerived has the weight and the capacity of a class follow from the object that it names.
func TestDerived(t *testing.T) {
	m := newMarket(t, "{}", weighedByPrice)
	m.class("a", "{price: p}")
	assert.Equal(t, int64(1), m.known("a").Weight, "A weight that fails should count as 1.")
	require.NotNil(t, m.known("a").WeightErr)
	assert.Contains(t, m.known("a").WeightErr.Detail, "there is no classRelated.price, and counts as 1")
	assert.Zero(t, m.known("a").Capacity[0].Total, "A capacity that fails should hold nothing.")
	assert.NotNil(t, m.known("a").Capacity[0].Err)
	assert.Len(t, m.Derive(), 1, "We should report that a class is faulty.")
	m.price("team", "p", "{weight: 7, room: 3}")
	a := m.known("a")
	assert.Equal(t, int64(7), a.Weight, "The weight should be that of the price.")
	require.NoError(t, nilError(a.WeightErr))
	assert.Equal(t, int64(3), a.Capacity[0].Total)
	assert.Equal(t, int64(inventory.Unlimited), a.Capacity[0].PerNamespace)
	require.NoError(t, nilError(a.Capacity[0].Err))
	assert.Len(t, m.Derive(), 1, "We should report that it no longer is.")
	assert.Empty(t, m.Derive())
	m.price("team", "other", "{weight: 9}")
	assert.Same(t, a, m.known("a"), "Another object should not matter.")
	m.class("a", "{price: other}")
	assert.Equal(t, int64(9), m.known("a").Weight, "We should follow the name.")
	m.price("team", "p", "{weight: 8, room: 3}")
	assert.Equal(t, int64(9), m.known("a").Weight, "An object that is named no longer should not matter.")
	m.SetRelated(inventory.NewObjects(m.kind.RelatedKinds()[0], true, nil))
	assert.Equal(t, int64(1), m.known("a").Weight, "A list should matter as its changes do.")
	assert.Same(t, m.classes.Find("team", "a").Kind, m.Classes(m.classes).Find("team", "a").Kind)
	assert.NotNil(t, m.Classes(m.classes).Find("team", "a").WeightErr, "The status should have what follows.")
	m.classes = m.classes.Without("team", "a")
	m.ChangeClass(m.classes, "team", "a")
	assert.Empty(t, m.derivations.classes, "We should forget what no class names.")
	assert.Empty(t, m.derivations.objects["pools.example.org"])
}

func nilError[E any](e *E) error {
	if e == nil {
		return nil
	}
	return fmt.Errorf("%v", e)
}

// TestDerivedOfMany has an object that many classes name change without a delay for others, and its classes follow in the next round.
func TestDerivedOfMany(t *testing.T) {
	m := newMarket(t, "{}", weighedByPrice)
	const many = 2000
	for n := range many {
		m.class(fmt.Sprint("c", n), "{price: p}")
	}
	m.price("team", "p", "{weight: 7, room: 3}")
	follow := 0
	for n := range many {
		if m.known(fmt.Sprint("c", n)).Weight == 7 {
			follow++
		}
	}
	assert.Positive(t, follow, "We should derive a few classes at once.")
	assert.Less(t, follow, 50)
	due := maps.Clone(m.derivations.dueOf)
	m.price("team", "p", "{weight: 8, room: 3}")
	assert.Len(t, due, 1)
	assert.Equal(t, due, m.derivations.dueOf, "A storm of changes should be one round.")
	m.class("c0", "{price: q}") // Meanwhile, a class goes its own way.
	m.Derive()
	m.Derive()
	assert.Empty(t, m.derivations.due)
	assert.Empty(t, m.derivations.dueOf)
	for n := 1; n < many; n++ {
		require.Equal(t, int64(8), m.known(fmt.Sprint("c", n)).Weight, n)
	}
	assert.Equal(t, int64(1), m.known("c0").Weight)
	assert.Equal(t, many, m.Snapshot()[m.claims.Name].Len())
}

// TestDerivedLate has a class follow a chain of objects whose first changes.
func TestDerivedLate(t *testing.T) {
	m := newMarket(t, "{}", `{related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price},
		{name: list, resource: prices.example.org, nameExpression: classRelated.price.spec.list}],
		weight: {expression: classRelated.list.spec.weight}}`)
	m.class("a", "{price: p}")
	m.price("team", "first", "{weight: 2}")
	m.price("team", "second", "{weight: 3}")
	m.price("team", "p", "{list: first}")
	assert.Equal(t, int64(2), m.known("a").Weight)
	m.price("team", "p", "{list: second}")
	assert.Equal(t, int64(3), m.known("a").Weight)
	m.price("team", "second", "{weight: 4}")
	assert.Equal(t, int64(4), m.known("a").Weight, "We should follow the second object once it is named.")
	m.price("team", "first", "{weight: 5}")
	assert.Equal(t, int64(4), m.known("a").Weight)
}

const expiring = `related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price, validUntil: object.spec.until}]`

// TestValidUntil has objects count as absent from their time on.
func TestValidUntil(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, until string
		before, after bool
	}{
		"Time":      {reason: "It should be valid until then.", until: "'2026-01-01T00:00:10Z'", before: true},
		"Zone":      {reason: "We should read a time zone.", until: "'2026-01-01T01:00:10+01:00'", before: true},
		"Never":     {reason: "An empty time should be none.", until: "''", before: true, after: true},
		"Past":      {reason: "It should be absent at once.", until: "'2025-01-01T00:00:00Z'"},
		"Malformed": {reason: "It should count as absent.", until: "'tomorrow'"},
		"Type":      {reason: "It should count as absent.", until: "7"},
		"Absent":    {reason: "It should count as absent.", until: "null"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, "{}", `{`+expiring+`, fits: [{name: Open, expression: has(classRelated.price)}],
				weight: {expression: "has(classRelated.price) ? 5 : 2"}}`)
			now := m.clocked()
			m.class("a", "{price: p}")
			m.price("team", "p", "{until: "+tc.until+"}")
			gets := func(valid bool) {
				t.Helper()
				want, weight := "", int64(2)
				if valid {
					want, weight = "a", 5
				}
				assert.Equal(t, want, m.gets(), tc.reason)
				assert.Equal(t, weight, m.known("a").Weight, tc.reason)
			}
			gets(tc.before)
			*now = now.Add(9 * time.Second)
			assert.Empty(t, m.Expire())
			gets(tc.before)
			*now = now.Add(time.Second)
			assert.Equal(t, tc.before && !tc.after, len(m.Expire()) > 0, "We should report what has expired.")
			gets(tc.after)
			assert.Empty(t, m.Expire(), "We should report it once.")
			m.price("team", "p", "{until: '2027-01-01T00:00:00Z'}")
			gets(true)
		})
	}
}

// TestExpiredBetweenRounds has another object change after one has expired, and before the next round.
func TestExpiredBetweenRounds(t *testing.T) {
	for name, change := range map[string]func(*market){
		"Change": func(m *market) { m.price("team", "other", "{until: ''}") },
		"List":   func(m *market) { m.SetRelated(m.related[m.kind.Related[0].Kind.Key()].objects) },
		"None":   func(*market) {},
	} {
		m := newMarket(t, "{}", `{`+expiring+`, weight: {expression: "has(classRelated.price) ? 5 : 2"}}`)
		now := m.clocked()
		m.class("a", "{price: p}")
		m.price("team", "p", "{until: '2026-01-01T00:00:10Z'}")
		require.Equal(t, int64(5), m.known("a").Weight, name)
		*now = now.Add(11 * time.Second)
		change(m)
		assert.Len(t, m.Expire(), 1, "%s: We should report what has expired.", name)
		assert.Equal(t, int64(2), m.known("a").Weight, "%s: The weight should not depend on the object any more.", name)
		assert.Empty(t, m.Expire(), name)
	}
}

// TestValidUntilOfClaims does the same with an object that claims name.
func TestValidUntilOfClaims(t *testing.T) {
	m := newMarket(t, `{classes: {related: [{name: plan, resource: prices.example.org, nameExpression: "'p'",
			validUntil: timestamp(object.spec.until)}],
		fits: [{name: Plan, expression: has(related.plan)}]}}`, `{`+related+`}`)
	now := m.clocked()
	m.related = map[rules.Key]knownRelated{}
	for _, k := range m.Snapshot()[m.claims.Name].needs {
		m.SetRelated(inventory.NewObjects(k, true, nil))
	}
	m.class("a", "{}")
	m.price("team", "p", "{until: '2026-01-01T00:00:10Z'}")
	assert.Equal(t, "a", m.gets())
	*now = now.Add(10 * time.Second)
	require.Len(t, m.Expire(), 1)
	assert.Empty(t, m.gets(), "An expired object should be absent.")
	view := m.Snapshot()[m.claims.Name]
	assert.Equal(t, 1, view.related[view.needs[0].Key()].Expired(m.claims.Rules.Related[0].Kind), "We should count it.")
}

// TestClassRelatedAgreement changes prices, classes, names and the clock at random, and compares each decision with what was reported last.
func TestClassRelatedAgreement(t *testing.T) {
	r := rand.New(rand.NewPCG(34, 1)) //nolint:gosec // It has to be reproducible.
	m := newMarket(t, `{choice: {strategy: LowestScore, score: classRelated.price.spec.cost}}`,
		`{`+expiring+`, fits: [{name: Open, expression: classRelated.price.spec.open && class.metadata.name != ''}],
			weight: {expression: "has(classRelated.price) ? classRelated.price.spec.weight : 0"},
			capacity: [{name: claims, total: {expression: classRelated.price.spec.room}}]}`)
	now := m.clocked()
	type price struct {
		cost   int
		open   bool
		weight int
		room   int
		until  time.Time
	}
	prices, classes := map[string]price{}, map[string]string{}
	const changes, claims = 2000, 4500
	bound, decided := 0, 0
	for step := range changes {
		name := fmt.Sprint("p", r.IntN(12))
		switch r.IntN(8) {
		case 0:
			delete(prices, name)
			m.price("team", name, "")
		case 1:
			*now = now.Add(time.Duration(r.IntN(5)) * time.Second)
			m.Expire()
		case 2:
			class := fmt.Sprint("c", r.IntN(30))
			delete(classes, class)
			m.classes = m.classes.Without("team", class)
			m.ChangeClass(m.classes, "team", class)
		case 3, 4:
			class := fmt.Sprint("c", r.IntN(30))
			classes[class] = name
			m.class(class, "{price: "+name+"}")
		default:
			p := price{step, r.IntN(4) > 0, r.IntN(3), r.IntN(4), now.Add(time.Duration(r.IntN(20)) * time.Second)}
			prices[name] = p
			m.price("team", name, fmt.Sprintf("{cost: %d, open: %t, weight: %d, room: %d, until: %q}",
				p.cost, p.open, p.weight, p.room, p.until.Format(time.RFC3339)))
		}
		best := -1
		for _, name := range classes {
			p, ok := prices[name]
			if ok && p.open && p.weight > 0 && p.room > 0 && p.until.After(*now) && (best < 0 || p.cost < best) {
				best = p.cost
			}
		}
		for ; decided < (step+1)*claims/changes; decided++ {
			got := -1
			if class := m.gets(); class != "" {
				got = prices[classes[class]].cost
				bound++
			}
			require.Equal(t, best, got, "Claim %d was decided against what was reported.", decided)
		}
	}
	assert.Equal(t, claims, decided)
	assert.Greater(t, bound, claims/4, "The test should bind claims.")
}
