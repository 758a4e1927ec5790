package race

import (
	"cmp"
	"slices"
	"time"
)

// account is what is used up: the seat of a default class, of a claim kind and a partition; or a class with a capacity, by the claims of a
// namespace, or without a namespace by all.
type account struct{ of, part string }

// change is what a watch showed: what a user has of accounts from a resourceVersion on; nil, it is not there. Or, with an account, how much
// that holds.
type change[U comparable] struct {
	version uint64
	seen    time.Time // by the watch
	user    U
	uses    map[account]int64

	account *account
	holds   int64
}

// excess is the moment at which a user came to use more of an account than there was.
type excess[U comparable] struct {
	version     uint64
	user        U
	account     account
	used, limit int64
}

// auditor replays what happened to default classes, which use seats, or to claims, which use classes, in the order in which it did. A LIST
// after a race would miss what was gone by then; the watches of several kinds are not in step with each other. But all kinds are in one
// etcd, so their resourceVersions are one order.
type auditor[U comparable] struct {
	// limit of accounts that no change says to hold anything.
	limit int64
	// grace is for how long what an account held before may still be given out.
	grace time.Duration

	pending []change[U]
	uses    map[U]map[account]int64
	used    map[account]int64
	held    map[account][]capacity
	// been are the users of anything since somebody last emptied it.
	been map[U]bool
}

// capacity that an account had until it had the next one.
type capacity struct {
	amount int64
	until  time.Time // zero: it still has it
}

func newAuditor[U comparable](limit int64, grace time.Duration) *auditor[U] {
	return &auditor[U]{
		limit: limit, grace: grace,
		uses: map[U]map[account]int64{}, used: map[account]int64{}, held: map[account][]capacity{}, been: map[U]bool{},
	}
}

// observe a change; those of one kind are in order.
func (a *auditor[U]) observe(c change[U]) { a.pending = append(a.pending, c) }

// until replays all changes up to a resourceVersion, up to which all have been observed. It returns where users came to use too much. To
// use less is always right.
func (a *auditor[U]) until(version uint64) (all []excess[U]) {
	slices.SortStableFunc(a.pending, func(a, b change[U]) int { return cmp.Compare(a.version, b.version) })
	for len(a.pending) > 0 && a.pending[0].version <= version {
		c := a.pending[0]
		a.pending = a.pending[1:]
		if c.account != nil {
			a.hold(*c.account, c.holds, c.seen)
			continue
		}
		before := a.uses[c.user]
		for of, amount := range before {
			a.used[of] -= amount
		}
		for of, amount := range c.uses {
			a.used[of] += amount
			if limit := a.highest(of, c.seen); amount > before[of] && a.used[of] > limit {
				all = append(all, excess[U]{c.version, c.user, of, a.used[of], limit})
			}
		}
		if a.uses[c.user] = c.uses; c.uses == nil {
			delete(a.uses, c.user)
		} else {
			a.been[c.user] = true
		}
	}
	return all
}

func (a *auditor[U]) hold(of account, amount int64, seen time.Time) {
	all := a.held[of]
	if last := len(all) - 1; last >= 0 {
		if all[last].amount == amount {
			return
		}
		all[last].until = seen
	}
	a.held[of] = append(all, capacity{amount: amount})
}

// highest amount that an account held in the time of grace before a moment.
func (a *auditor[U]) highest(of account, now time.Time) (highest int64) {
	if len(a.held[of]) == 0 {
		return a.limit
	}
	for _, c := range a.held[of] {
		if c.until.IsZero() || now.Sub(c.until) <= a.grace {
			highest = max(highest, c.amount)
		}
	}
	return highest
}
