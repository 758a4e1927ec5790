package race

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAuditor(t *testing.T) {
	type changes = []change
	x, y, a, b, c := seat{"x", ""}, seat{"y", ""}, Class{"A", "a"}, Class{"A", "b"}, Class{"C", "c"}
	is := func(version uint64, of Class, seats ...seat) change { return change{version, of, seats} }
	gone := func(version uint64, of Class) change { return change{version: version, class: of} }
	for name, tc := range map[string]struct {
		reason  string
		changes changes
		want    []double
	}{
		"OneAfterTheOther": {"We should see no double default where one ends before the next begins.", changes{is(1, a, x), gone(2, a), is(3, b, x)}, nil},
		"AtOnce":           {"We should see two defaults.", changes{is(1, a, x), is(2, b, x)}, []double{{2, b, x}}},
		"Gone":             {"We should see a double default that is over.", changes{is(1, a, x), is(2, b, x), gone(3, a)}, []double{{2, b, x}}},
		"TwoClaimKinds": {
			"We should see one default that is second for two claim kinds.",
			changes{is(1, a, x), is(2, c, y), is(3, b, x, y)},
			[]double{{3, b, x}, {3, b, y}},
		},
		"Partitions": {"We should allow one default in each partition.", changes{is(1, a, x), is(2, b, seat{"x", "p"})}, nil},
		"Moved": {
			"We should see a default that moves to where there is one.",
			changes{is(1, a, x), is(2, b, y), is(3, b, x), is(4, a, y)},
			[]double{{3, b, x}},
		},
		"OutOfStep": {
			"We should go by the resourceVersion, not by which watch is faster.",
			changes{is(3, b, x), gone(5, b), is(1, a, x), gone(2, a), is(6, a, x)},
			nil,
		},
		"HiddenByOrder": {
			"We should see a double default that the order of arrival hides.",
			changes{is(2, b, x), gone(4, b), is(1, a, x), gone(3, a)},
			[]double{{2, b, x}},
		},
		"StillDefault": {"We should count the moment once, not every later change.", changes{is(1, a, x), is(2, b, x), is(3, a, x)}, []double{{2, b, x}}},
		"Again":        {"We should count each moment.", changes{is(1, a, x), is(2, b, x), gone(3, b), is(4, b, x)}, []double{{2, b, x}, {4, b, x}}},
		"NotObserved":  {"We should wait for what comes before.", changes{is(101, a, x), is(102, b, x)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			auditor := newAuditor()
			for _, c := range tc.changes {
				auditor.observe(c)
			}
			assert.ElementsMatch(t, tc.want, append(auditor.until(3), auditor.until(100)...), tc.reason)
		})
	}
}
