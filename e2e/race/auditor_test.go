package race

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAuditor(t *testing.T) {
	type (
		changes = []change[string]
		double  = excess[string]
	)
	x, y, gold, iron := account{"x", ""}, account{"y", ""}, account{"gold", ""}, account{"iron", ""}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	is := func(version uint64, user string, of ...account) change[string] {
		c := change[string]{version: version, user: user, uses: map[account]int64{}}
		for _, o := range of {
			c.uses[o] = 1
		}
		return c
	}
	gone := func(version uint64, user string) change[string] { return change[string]{version: version, user: user} }
	uses := func(version uint64, second int, user string, amount int64) change[string] {
		return change[string]{version: version, seen: at(second), user: user, uses: map[account]int64{gold: amount}}
	}
	holds := func(version uint64, second int, amount int64) change[string] {
		return change[string]{version: version, seen: at(second), account: &gold, holds: amount}
	}
	for name, tc := range map[string]struct {
		reason  string
		changes changes
		want    []excess[string]
	}{
		"OneAfterTheOther": {"We should see no double default where one ends before the next begins.", changes{is(1, "a", x), gone(2, "a"), is(3, "b", x)}, nil},
		"AtOnce":           {"We should see two defaults.", changes{is(1, "a", x), is(2, "b", x)}, []double{{2, "b", x, 2, 1}}},
		"Gone":             {"We should see a double default that is over.", changes{is(1, "a", x), is(2, "b", x), gone(3, "a")}, []double{{2, "b", x, 2, 1}}},
		"TwoClaimKinds":    {"We should see one default that is second for two claim kinds.", changes{is(1, "a", x), is(2, "c", y), is(3, "b", x, y)}, []double{{3, "b", x, 2, 1}, {3, "b", y, 2, 1}}},
		"Partitions":       {"We should allow one default in each partition.", changes{is(1, "a", x), is(2, "b", account{"x", "p"})}, nil},
		"Moved":            {"We should see a default that moves to where there is one.", changes{is(1, "a", x), is(2, "b", y), is(3, "b", x), is(4, "a", y)}, []double{{3, "b", x, 2, 1}}},
		"OutOfStep":        {"We should go by the resourceVersion, not by which watch is faster.", changes{is(3, "b", x), gone(5, "b"), is(1, "a", x), gone(2, "a"), is(6, "a", x)}, nil},
		"HiddenByOrder":    {"We should see a double default that the order of arrival hides.", changes{is(2, "b", x), gone(4, "b"), is(1, "a", x), gone(3, "a")}, []double{{2, "b", x, 2, 1}}},
		"StillDefault":     {"We should count the moment once, not every later change.", changes{is(1, "a", x), is(2, "b", x), is(3, "a", x)}, []double{{2, "b", x, 2, 1}}},
		"Again":            {"We should count each moment.", changes{is(1, "a", x), is(2, "b", x), gone(3, "b"), is(4, "b", x)}, []double{{2, "b", x, 2, 1}, {4, "b", x, 2, 1}}},
		"NotObserved":      {"We should wait for what comes before.", changes{is(101, "a", x), is(102, "b", x)}, nil},

		"Full":        {"We should allow what a class holds.", changes{holds(1, 0, 5), uses(2, 0, "a", 2), uses(3, 0, "b", 3)}, nil},
		"Over":        {"We should see a claim that has no room.", changes{holds(1, 0, 5), uses(2, 0, "a", 3), uses(3, 0, "b", 3)}, []double{{3, "b", gold, 6, 5}}},
		"Growth":      {"We should see growth beyond the capacity.", changes{holds(1, 0, 3), uses(2, 0, "a", 3), uses(3, 0, "a", 4)}, []double{{3, "a", gold, 4, 3}}},
		"Less":        {"We should count no moment at which nothing grows.", changes{holds(1, 0, 3), uses(2, 0, "a", 5), uses(3, 0, "a", 4)}, []double{{2, "a", gold, 5, 3}}},
		"MovedAway":   {"We should not count a claim where it was.", changes{holds(1, 0, 3), uses(2, 0, "a", 3), is(3, "a", iron), uses(4, 0, "b", 3)}, nil},
		"Lowered":     {"We should allow a capacity for a while after it was lowered.", changes{holds(1, 0, 4), holds(2, 10, 3), uses(3, 16, "a", 4)}, nil},
		"LongLowered": {"We should allow it no longer.", changes{holds(1, 0, 4), holds(2, 10, 3), holds(3, 12, 3), uses(4, 17, "a", 4)}, []double{{4, "a", gold, 4, 3}}},
		"Raised":      {"We should allow a capacity from its resourceVersion on.", changes{holds(1, 0, 3), holds(3, 0, 4), uses(2, 0, "a", 4)}, []double{{2, "a", gold, 4, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuditor[string](1, 6*time.Second)
			for _, c := range tc.changes {
				a.observe(c)
			}
			assert.ElementsMatch(t, tc.want, append(a.until(3), a.until(100)...), tc.reason)
		})
	}
}
