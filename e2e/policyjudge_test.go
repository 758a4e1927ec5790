package e2e

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// classEvent is what a watch showed: what a class, or the registration of its kind, was from
// a resourceVersion on.
type classEvent struct {
	version uint64
	// class is KIND/NAME; of a registration, KIND.
	class string
	// is says of a class that it is there, marked default, and neither cordoned nor being
	// deleted; of a registration, that it is there.
	is bool
}

// span of resourceVersions in which a class was a default one. It was not at the end of it.
type span struct{ from, until uint64 }

// defaultSpans replays what happened to classes of several kinds and to their registrations.
// All are in one etcd, so their resourceVersions are one order.
func defaultSpans(events []classEvent) map[string][]span {
	slices.SortStableFunc(events, func(a, b classEvent) int { return cmp.Compare(a.version, b.version) })
	is, spans := map[string]bool{}, map[string][]span{}
	for _, e := range events {
		is[e.class] = e.is
		for name := range is {
			kind, _, isClass := strings.Cut(name, "/")
			if !isClass {
				continue
			}
			all := spans[name]
			open := len(all) > 0 && all[len(all)-1].until == math.MaxUint64
			switch now := is[name] && is[kind]; {
			case now && !open:
				spans[name] = append(all, span{e.version, math.MaxUint64})
			case !now && open:
				all[len(all)-1].until = e.version
			}
		}
	}
	return spans
}

// wasDefault reports whether a class was at any moment between two resourceVersions, and if not,
// at which one it had last ceased to be, 0 if it had never been.
func wasDefault(spans []span, from, to uint64) (was bool, ceased uint64) {
	for _, s := range spans {
		if s.from <= to && s.until > from {
			return true, 0
		}
		if s.until <= from {
			ceased = s.until
		}
	}
	return false, ceased
}

func TestPolicyJudge(t *testing.T) {
	spans := defaultSpans([]classEvent{
		{1, "Class", true},
		{5, "Class/a", true},
		{9, "Class/a", false},
		{7, "Old/b", true}, // Its kind is registered later.
		{12, "Old", true},
		{15, "Old/b", false},
		{16, "Class/a", true},
		{17, "Class/a", true},
		{20, "Old", false},
	})
	assert.Equal(t, map[string][]span{"Class/a": {{5, 9}, {16, math.MaxUint64}}, "Old/b": {{12, 15}}}, spans)

	for name, tc := range map[string]struct {
		reason   string
		class    string
		from, to uint64
		want     bool
		ceased   uint64
	}{
		"Within":     {"We should see a default.", "Class/a", 6, 7, true, 0},
		"AtTheEnd":   {"We should see one that ceased to be default during the request.", "Class/a", 8, 30, true, 0},
		"Afterwards": {"We should see that it had ceased before the request.", "Class/a", 9, 15, false, 9},
		"Began":      {"We should see one that became default during the request.", "Class/a", 10, 16, true, 0},
		"TooEarly":   {"We should see that its kind was not registered.", "Old/b", 8, 11, false, 0},
		"Unknown":    {"We should see that there is no such default.", "Class/c", 1, 30, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			was, ceased := wasDefault(spans[tc.class], tc.from, tc.to)
			assert.Equal(t, tc.want, was, tc.reason)
			assert.Equal(t, tc.ceased, ceased, tc.reason)
		})
	}
}
