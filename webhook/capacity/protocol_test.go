package capacity

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/webhook/exploretest"
)

const (
	a, b, c       = 0, 1, 2 // claims
	first, second = 0, 1    // ledgers
)

// situation is where requests begin.
type situation struct {
	uses     [][]int
	claims   []stored
	capacity int64
	pool     []script
}

var situations = map[string]situation{
	"Creations":  {uses: [][]int{{first}, {first}}, claims: []stored{{}, {}}, capacity: 1, pool: []script{{create, a}, {create, a}, {create, b}, {remove, a}, {forge, a}, {leader, first}, {leader, first}, {lose, first}}},
	"Growth":     {uses: [][]int{{first}, {first}}, claims: []stored{{1, 0, 1}, {}}, capacity: 2, pool: []script{{grow, a}, {grow, a}, {create, b}, {shrink, a}, {touch, a}, {remove, a}, {echo, a}, {leader, first}, {leader, first}, {lower, first}, {lose, first}}},
	"TwoLedgers": {uses: [][]int{{first, second}, {second}, {first}}, claims: []stored{{}, {}, {}}, capacity: 1, pool: []script{{create, a}, {create, b}, {create, c}, {remove, b}, {leader, first}, {leader, second}}},
}

func TestEveryInterleaving(t *testing.T) {
	requests := exploretest.Requests(t)
	for name, s := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, ends := 0, 0
			for n := 1; n <= requests; n++ {
				exploretest.Combinations(s.pool, n, false, func(scripts []script) {
					e := exploration{rules: wholeProtocol, scripts: scripts, uses: s.uses, dies: n < requests}
					states += e.run(slices.Clone(s.claims), s.capacity)
					ends += e.ends
					require.Empty(t, e.over, "We should never admit more than a class holds.")
					require.Empty(t, e.stuck, "We should leave nothing reserved, and refuse nothing while there is room.")
				})
			}
			t.Logf("%d states, %d ends", states, ends)
		})
	}
}

func TestEveryRuleIsNeeded(t *testing.T) {
	twoClaims := []script{{create, a}, {create, b}}
	replaced := []script{{create, a}, {create, a}, {leader, first}}
	lost := []script{{create, a}, {create, b}, {lose, first}}
	for name, broken := range map[string]struct {
		situation string
		scripts   []script
		rule      func(*protocol)
	}{
		"Precondition":        {"Creations", twoClaims, func(p *protocol) { p.precondition = false }},
		"RecountPrecondition": {"Creations", replaced, func(p *protocol) { p.recountPrecondition = false }},
		"Monotonic":           {"Creations", append(slices.Clip(replaced), script{leader, first}), func(p *protocol) { p.monotonic = false }},
		"Base":                {"Growth", []script{{grow, a}, {create, b}, {leader, first}}, func(p *protocol) { p.base = false }},
		"Unseen":              {"Creations", replaced, func(p *protocol) { p.unseen = false }},
		"Window":              {"Creations", replaced, func(p *protocol) { p.window = false }},
		"Live":                {"Creations", replaced, func(p *protocol) { p.live = false }},
		"Renewed":             {"Creations", append(slices.Clip(replaced), script{forge, a}), func(p *protocol) { p.renewed = false }},
		"Difference":          {"Growth", []script{{grow, a}, {create, b}}, func(p *protocol) { p.difference = false }},
		"All":                 {"TwoLedgers", twoClaims, func(p *protocol) { p.all = false }},
		"Closed":              {"Creations", lost, func(p *protocol) { p.closed = false }},
		"Complete":            {"Creations", lost, func(p *protocol) { p.complete = false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, rules := situations[broken.situation], wholeProtocol
			broken.rule(&rules)
			e := exploration{rules: rules, scripts: broken.scripts, uses: s.uses}
			e.run(slices.Clone(s.claims), s.capacity)
			assert.NotEmpty(t, e.over, "We should admit too much without the rule.")
		})
	}
}
