package race

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAuditor(t *testing.T) {
	a, b, begin := Claim{"one", "a"}, Claim{"two", "b"}, time.Unix(0, 0)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	holds := func(version uint64, second int, amount int64) Change {
		return Change{Version: version, Seen: at(second), Use: Use{"gold", amount}}
	}
	uses := func(version uint64, second int, c Claim, amount int64) Change {
		return Change{Version: version, Seen: at(second), Claim: c, Use: Use{"gold", amount}}
	}
	in := func(version uint64, c Claim, class string, amount int64) Change {
		return Change{Version: version, Claim: c, Use: Use{class, amount}}
	}
	gone := func(version uint64, c Claim) Change { return Change{Version: version, Claim: c} }
	excess := func(version uint64, c Claim, namespace string, used, limit int64) []Excess {
		return []Excess{{version, c, "gold", namespace, used, limit}}
	}
	for name, tc := range map[string]struct {
		reason  string
		changes []Change
		want    []Excess
	}{
		"Full":         {reason: "We should allow what a class holds.", changes: []Change{holds(1, 0, 5), uses(2, 0, a, 2), uses(3, 0, b, 3)}},
		"Over":         {reason: "We should see a claim that has no room.", changes: []Change{holds(1, 0, 5), uses(2, 0, a, 3), uses(3, 0, b, 3)}, want: excess(3, b, "", 6, 5)},
		"OutOfStep":    {reason: "We should go by the resourceVersion, not by which watch is faster.", changes: []Change{uses(2, 0, a, 3), uses(4, 0, b, 3), holds(1, 0, 5), gone(3, a)}},
		"Growth":       {reason: "We should see growth beyond the capacity.", changes: []Change{holds(1, 0, 3), uses(2, 0, a, 3), uses(3, 0, a, 4)}, want: excess(3, a, "", 4, 3)},
		"Unchanged":    {reason: "We should count the moment once, and no later one at which nothing grows.", changes: []Change{holds(1, 0, 3), uses(2, 0, a, 4), uses(3, 0, a, 4), uses(4, 0, a, 3)}, want: excess(2, a, "", 4, 3)},
		"Moved":        {reason: "We should see a claim that moves to where there is no room.", changes: []Change{holds(1, 0, 3), uses(2, 0, a, 3), in(3, b, "", 1), uses(4, 0, b, 1)}, want: excess(4, b, "", 4, 3)},
		"MovedAway":    {reason: "We should not count a claim where it was.", changes: []Change{holds(1, 0, 3), {Version: 2, Use: Use{"iron", 3}}, uses(3, 0, a, 3), in(4, a, "iron", 3), uses(5, 0, b, 3)}},
		"Gone":         {reason: "We should see an excess that is over.", changes: []Change{holds(1, 0, 3), uses(2, 0, a, 4), gone(3, a)}, want: excess(2, a, "", 4, 3)},
		"PerNamespace": {reason: "We should see a namespace that uses too much.", changes: []Change{holds(1, 0, 9), uses(2, 0, a, 5)}, want: excess(2, a, "one", 5, 4)},
		"Lowered":      {reason: "We should allow a capacity for a while after it was lowered.", changes: []Change{holds(1, 0, 4), holds(2, 10, 3), uses(3, 16, a, 4)}},
		"LongLowered":  {reason: "We should allow it no longer.", changes: []Change{holds(1, 0, 4), holds(2, 10, 3), holds(3, 12, 3), uses(4, 17, a, 4)}, want: excess(4, a, "", 4, 3)},
		"Raised":       {reason: "We should allow a capacity from its resourceVersion on.", changes: []Change{holds(1, 0, 3), holds(3, 0, 4), uses(2, 0, a, 4)}, want: excess(2, a, "", 4, 3)},
		"NoClass":      {reason: "We should leave alone a claim without a class.", changes: []Change{in(1, a, "", 100)}},
		"NotObserved":  {reason: "We should wait for what comes before.", changes: []Change{uses(101, 0, a, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			auditor := NewAuditor(4, 6*time.Second)
			for _, c := range tc.changes {
				auditor.Observe(c)
			}
			assert.Equal(t, tc.want, auditor.Until(100), tc.reason)
		})
	}
}
