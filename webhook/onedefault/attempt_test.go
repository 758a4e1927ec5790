package onedefault

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/webhook/exploretest"
)

type suite struct {
	taking    taking
	elsewhere taking
	pool      []script
	forged    []script
	// longer are forged only if there is time.
	longer  []script
	initial [][]object
}

const (
	a, b, c, d       = 0, 1, 2, 3
	onSeatX, onSeatY = 0, 1 // of a collection
)

var (
	oneSeat = suite{
		taking: taking{onX, onX},
		pool: []script{
			{create, a}, {create, b}, {update, a}, {update, b}, {undefault, a}, {remove, a}, {touch, a}, {undefault, b}, {remove, b}, {plain, a}, {collect, onSeatX},
		},
		forged: []script{{forge, a}, {forge, b}},
		initial: [][]object{
			{{}, {}},
			{{uid: 1, version: 10}, {}},
			{{uid: 1, version: 10}, {uid: 2, version: 11}},
			{{uid: 1, version: 10, seats: onX}, {uid: 2, version: 11}}, // made before we were installed
		},
	}
	twoSeats = suite{
		taking: taking{onX | onY, onX, onY, onX},
		pool: []script{
			{create, a},
			{create, b},
			{create, c},
			{update, a},
			{update, b},
			{update, c},
			{undefault, a},
			{remove, a},
			{touch, a},
			{undefault, c},
			{collect, onSeatX},
			{collect, onSeatY},
		},
		forged: []script{{echo, a}, {invent, b}, {invent, c}}, longer: []script{{forge, a}},
		initial: [][]object{
			{{}, {}, {}, {}},
			{{uid: 1, version: 10}, {uid: 2, version: 11}, {uid: 3, version: 12}, {}},
			{{uid: 1, version: 10}, {}, {uid: 3, version: 12, seats: onY}, {}},
		},
	}
	// moving has classes that change places, take a second seat, and move back.
	moving = suite{
		taking: taking{onX, onX | onY, onY}, elsewhere: taking{onY, onX, 0},
		pool: []script{
			{create, a}, {create, c}, {update, a}, {move, a}, {update, b}, {move, b}, {undefault, a}, {remove, a}, {touch, a}, {undefault, b}, {collect, onSeatX},
		},
		forged: []script{{echo, a}, {echo, b}, {invent, c}}, longer: []script{{forge, a}},
		initial: [][]object{
			{{}, {uid: 2, version: 11}, {}},
			{{uid: 1, version: 10}, {uid: 2, version: 11, seats: onX}, {}},
			{{uid: 1, version: 10, seats: onX}, {uid: 2, version: 11}, {}},
			{{uid: 1, version: 10, seats: onX}, {uid: 2, version: 11, seats: onY}, {}},
		},
	}
)

// TestEveryInterleaving has one request less where there are accidents or a forger, too. With a forger they are at most two: three had taken
// 13 GiB when the exploration was stopped.
func TestEveryInterleaving(t *testing.T) {
	requests := exploretest.Requests(t)
	for name, s := range map[string]suite{"OneSeat": oneSeat, "TwoSeats": twoSeats, "Moving": moving} {
		for _, forger := range []bool{false, true} {
			if forger {
				name += "Forger"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenarios, states, ends := 0, 0, 0
				explore := func(scripts []script, accidents bool) {
					for _, objects := range s.initial {
						e := &exploration{rules: allRules, taking: s.taking, elsewhere: s.elsewhere, scripts: scripts, accidents: accidents}
						states += e.run(objects)
						if scenarios++; scenarios%100 == 0 {
							t.Logf("%d scenarios, %d states so far", scenarios, states)
						}
						ends += len(e.ends)
						require.Nil(t, e.double, "We should never have two defaults, whatever the order of %v.", scripts)
						require.NoError(t, e.left, "We should leave nothing in flight of what we refused of %v.", scripts)
						for _, w := range e.ends {
							require.NoError(t, e.stuck(w), "We should leave nothing stuck after %v.", scripts)
						}
					}
				}
				for n := 1; n <= requests; n++ {
					exploretest.Combinations(s.pool, n, true, func(scripts []script) {
						if !forger {
							explore(scripts, n < requests)
							return
						}
						forged := s.forged
						if requests > 3 {
							forged = append(slices.Clip(forged), s.longer...)
						}
						for _, f := range forged {
							if n < min(requests, 3) {
								explore(append(slices.Clip(scripts), f), n < requests-1)
							}
						}
					})
				}
				t.Logf("%d scenarios, %d states, %d ends", scenarios, states, ends)
			})
		}
	}
}

// TestEveryRuleIsNeeded shows that the exploration finds what each rule prevents.
func TestEveryRuleIsNeeded(t *testing.T) {
	without := func(change func(*rules)) rules {
		r := allRules
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		rules     rules
		of        suite
		initial   []object
		scripts   []script
		accidents bool
		// stuck reports whether without the rule a default is refused permanently, though no class has it.
		stuck bool
	}{
		"Precondition": {
			rules:   without(func(r *rules) { r.precondition = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {create, b}},
		},
		"TakeOutPrecondition": {
			rules:   without(func(r *rules) { r.takeOutPrecondition = false }),
			of:      twoSeats,
			initial: []object{{uid: 1, version: 10}, {}, {}, {}},
			scripts: []script{{update, a}, {update, a}, {create, d}, {invent, c}},
		},
		"UID": {
			rules:   without(func(r *rules) { r.uid = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {plain, a}, {remove, a}, {create, b}},
		},
		"AllWritesOfTheClass": {
			rules:   without(func(r *rules) { r.all = false }),
			of:      oneSeat,
			initial: oneSeat.initial[1],
			scripts: []script{{update, a}, {update, a}, {create, b}, {touch, a}},
		},
		"OwnWriteAlone": {
			rules:   without(func(r *rules) { r.ownOnly = false }),
			of:      twoSeats,
			initial: []object{{uid: 1, version: 10}, {}, {}, {}},
			scripts: []script{{update, a}, {update, a}, {create, d}, {invent, c}},
		},
		"Window": {
			rules:   without(func(r *rules) { r.window = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {create, b}},
		},
		"Landed": {
			rules:   without(func(r *rules) { r.landed = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {create, b}},
		},
		"SameClass": {
			rules:   without(func(r *rules) { r.sameClass = false }),
			of:      oneSeat,
			initial: oneSeat.initial[1],
			scripts: []script{{update, a}, {forge, b}, {create, b}},
		},
		"DefaultAlready": {
			rules:     without(func(r *rules) { r.defaultAlready = false }),
			of:        oneSeat,
			initial:   oneSeat.initial[1],
			scripts:   []script{{update, a}, {echo, a}, {create, b}},
			accidents: true,
		},
		"DefaultAlreadyInThatSeatAlone": {
			rules:   without(func(r *rules) { r.thatSeatAlone = false }),
			of:      moving,
			initial: moving.initial[2],
			scripts: []script{{move, a}, {create, c}},
		},
		"InThisSeat": {
			rules:   without(func(r *rules) { r.thisSeat = false }),
			of:      moving,
			initial: moving.initial[2],
			scripts: []script{{move, a}},
			stuck:   true,
		},
		"CollectPrecondition": {
			rules:   without(func(r *rules) { r.collectPrecondition = false }),
			of:      oneSeat,
			initial: oneSeat.initial[1],
			scripts: []script{{update, a}, {touch, a}, {create, b}, {collect, onSeatX}},
		},
		"CollectWindow": {
			rules:   without(func(r *rules) { r.collectWindow = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {create, b}, {collect, onSeatX}},
		},
		"CollectUnused": {
			rules:   without(func(r *rules) { r.collectUnused = false }),
			of:      oneSeat,
			initial: oneSeat.initial[0],
			scripts: []script{{create, a}, {create, b}, {collect, onSeatX}},
		},
		"Moves": {
			rules:   without(func(r *rules) { r.moves = false }),
			of:      moving,
			initial: moving.initial[2],
			scripts: []script{{move, a}, {create, c}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && len(tc.scripts) > 3 {
				t.Skip("It takes a minute to explore what four requests do.")
			}
			t.Parallel()
			e := &exploration{rules: tc.rules, taking: tc.of.taking, elsewhere: tc.of.elsewhere, scripts: tc.scripts, accidents: tc.accidents}
			anyStuck := func() bool {
				return slices.ContainsFunc(e.ends, func(w world) bool { return e.stuck(w) != nil })
			}
			e.run(tc.initial)
			assert.Equal(t, tc.stuck, e.double == nil, "We should find two defaults without this rule, or a claim kind that gets none.")
			assert.True(t, !tc.stuck || anyStuck(), "We should find that nobody gets a seat that is free.")
			e.rules = allRules
			e.run(tc.initial)
			assert.Nil(t, e.double, "We should find none with it.")
			assert.False(t, anyStuck(), "We should find that every free seat can be had with it.")
		})
	}
}
