package race

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestJudge(t *testing.T) {
	a1, a2, b, c := Class{"A", "1"}, Class{"A", "2"}, Class{"B", "1"}, Class{"C", "1"}
	is := func(version uint64, c Class) Event { return Event{Version: version, Class: c, Default: true} }
	in := func(version uint64, c Class, partition string) Event {
		return Event{Version: version, Class: c, Default: true, Partition: partition}
	}
	isNot := func(version uint64, c Class) Event { return Event{Version: version, Class: c} }
	for name, tc := range map[string]struct {
		reason string
		events []Event
		want   []Double
	}{
		"Partitions":                {reason: "We should allow one default in each partition.", events: []Event{is(1, a1), in(2, a2, "p"), in(3, b, "q")}},
		"OnePartition":              {reason: "We should see two defaults of one partition.", events: []Event{in(1, a1, "p"), in(2, a2, "p")}, want: []Double{{2, "x", "p", a2, a1}}},
		"Moved":                     {reason: "We should see a default that moves to where there is one.", events: []Event{in(1, a1, "p"), in(2, a2, "q"), in(3, a2, "p"), in(4, a1, "q")}, want: []Double{{3, "x", "p", a2, a1}}},
		"OneAfterTheOther":          {reason: "We should see no double default where one ends before the next begins.", events: []Event{is(1, a1), isNot(2, a1), is(3, b)}},
		"AtOnce":                    {reason: "We should see two defaults of one kind.", events: []Event{is(1, a1), is(2, a2)}, want: []Double{{2, "x", "", a2, a1}}},
		"Gone":                      {reason: "We should see a double default that is over.", events: []Event{is(1, a1), is(2, a2), isNot(3, a1)}, want: []Double{{2, "x", "", a2, a1}}},
		"OtherKind":                 {reason: "We should see two defaults of two kinds, once for each claim kind that both serve.", events: []Event{is(1, b), is(2, c)}, want: []Double{{2, "y", "", c, b}}},
		"NothingInCommon":           {reason: "We should allow two defaults that serve no claim kind both.", events: []Event{is(1, a1), is(2, c)}},
		"TwoClaimKinds":             {reason: "We should see one default that is second for two claim kinds.", events: []Event{is(1, a1), is(2, c), is(3, b)}, want: []Double{{3, "x", "", b, a1}, {3, "y", "", b, c}}},
		"WatchesOutOfStep":          {reason: "We should go by the resourceVersion, not by which watch is faster.", events: []Event{is(3, b), isNot(5, b), is(1, a1), isNot(2, a1), is(6, a2)}},
		"WatchesOutOfStepAndDouble": {reason: "We should see a double default that the order of arrival hides.", events: []Event{is(2, b), isNot(4, b), is(1, a1), isNot(3, a1)}, want: []Double{{2, "x", "", b, a1}}},
		"StillDefault":              {reason: "We should count the moment once, not every later change of the two.", events: []Event{is(1, a1), is(2, a2), is(3, a1), is(4, a2)}, want: []Double{{2, "x", "", a2, a1}}},
		"Again":                     {reason: "We should count each moment at which there come to be two.", events: []Event{is(1, a1), is(2, a2), isNot(3, a2), is(4, a2)}, want: []Double{{2, "x", "", a2, a1}, {4, "x", "", a2, a1}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := NewJudge(threeForTwo)
			for _, e := range tc.events {
				j.Observe(e)
			}
			assert.Equal(t, tc.want, j.Until(100), tc.reason)
		})
	}
}

func TestJudgeUntil(t *testing.T) {
	j := NewJudge(Kinds{"A": {"x"}, "B": {"x"}})
	a, b := Class{"A", "1"}, Class{"B", "1"}
	j.Observe(Event{Version: 2, Class: b, Default: true})
	assert.Empty(t, j.Until(1))
	assert.Empty(t, j.Defaults("x"), "We should not go ahead.")
	j.Observe(Event{Version: 1, Class: a, Default: true})
	j.Observe(Event{Version: 3, Class: a})
	assert.Equal(t, []Double{{2, "x", "", b, a}}, j.Until(2), "We should go on from where we were.")
	assert.Equal(t, []Class{a, b}, j.Defaults("x"))
	assert.Empty(t, j.Until(3))
	assert.Equal(t, []Class{b}, j.Defaults("x"))
	assert.Equal(t, map[Class]bool{a: true, b: true}, j.Been(), "We should remember what was default.")
	assert.Equal(t, map[Class]bool{b: true}, j.Been(), "We should forget what was default before.")
}
