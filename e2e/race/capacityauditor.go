package race

import (
	"cmp"
	"slices"
	"time"
)

// Claim is named as the API server names it.
type Claim struct{ Namespace, Name string }

// Use is how much a claim uses of its class. Without a class, it uses none.
type Use struct {
	Class  string
	Amount int64
}

// Change is what a watch showed: what a claim, or the capacity of a class, was from a resourceVersion on.
type Change struct {
	Version uint64
	// Seen is when the watch showed it.
	Seen time.Time
	// Claim that has this use. Without a name, the class of the use has this capacity instead.
	Claim Claim
	Use
}

// Excess is the moment at which a claim came to use more of a class than there was.
type Excess struct {
	Version uint64
	Claim   Claim
	// Class that it uses, by which all claims together, or those of the namespace, use Used of Limit.
	Class, Namespace string
	Used, Limit      int64
}

// Auditor replays what happened to claims, and to the capacities of their classes, in the order in which it did: see Judge.
type Auditor struct {
	// PerNamespace is the limit of each namespace in each class.
	PerNamespace int64
	// Grace is for how long a capacity that was lowered may still be given out.
	Grace time.Duration

	pending    []Change
	uses       map[Claim]Use
	used       map[account]int64
	capacities map[string][]capacity
}

// account of a namespace in a class; without a namespace, of all.
type account struct{ class, namespace string }

// capacity that a class had until it had the next one.
type capacity struct {
	amount int64
	until  time.Time // zero: it still has it
}

// NewAuditor knows no claim and no class.
func NewAuditor(perNamespace int64, grace time.Duration) *Auditor {
	return &Auditor{
		PerNamespace: perNamespace, Grace: grace,
		uses: map[Claim]Use{}, used: map[account]int64{}, capacities: map[string][]capacity{},
	}
}

// Observe a change; those of one kind are in order.
func (a *Auditor) Observe(c Change) { a.pending = append(a.pending, c) }

// Until replays all changes up to a resourceVersion, up to which all have been observed. It returns where claims came to use
// too much. To use less is always right.
func (a *Auditor) Until(version uint64) (all []Excess) {
	slices.SortStableFunc(a.pending, func(a, b Change) int { return cmp.Compare(a.Version, b.Version) })
	replayed := 0
	for _, c := range a.pending {
		if c.Version > version {
			break
		}
		replayed++
		if c.Claim.Name == "" {
			a.limit(c)
			continue
		}
		before := a.uses[c.Claim]
		a.add(c.Claim, before, -1)
		a.add(c.Claim, c.Use, 1)
		if a.uses[c.Claim] = c.Use; c.Use == (Use{}) {
			delete(a.uses, c.Claim)
		}
		if c.Class == "" || c.Class == before.Class && c.Amount <= before.Amount {
			continue
		}
		for namespace, limit := range map[string]int64{"": a.highest(c.Class, c.Seen), c.Claim.Namespace: a.PerNamespace} {
			if used := a.Used(c.Class, namespace); used > limit {
				all = append(all, Excess{c.Version, c.Claim, c.Class, namespace, used, limit})
			}
		}
	}
	a.pending = a.pending[replayed:]
	return all
}

func (a *Auditor) limit(c Change) {
	all := a.capacities[c.Class]
	if last := len(all) - 1; last >= 0 {
		if all[last].amount == c.Amount {
			return
		}
		all[last].until = c.Seen
	}
	a.capacities[c.Class] = append(all, capacity{amount: c.Amount})
}

// highest capacity that a class had in the time of grace before a moment.
func (a *Auditor) highest(class string, now time.Time) (highest int64) {
	for _, c := range a.capacities[class] {
		if c.until.IsZero() || now.Sub(c.until) <= a.Grace {
			highest = max(highest, c.amount)
		}
	}
	return highest
}

func (a *Auditor) add(c Claim, u Use, sign int64) {
	if u.Class == "" {
		return
	}
	for _, namespace := range []string{"", c.Namespace} {
		of := account{u.Class, namespace}
		if a.used[of] += sign * u.Amount; a.used[of] == 0 {
			delete(a.used, of)
		}
	}
}

// Used of a class by the claims of a namespace; without one, by all. It is of the moment up to which changes were replayed.
func (a *Auditor) Used(class, namespace string) int64 { return a.used[account{class, namespace}] }

// Any claim that was there at that moment, and how much all used of all classes.
func (a *Auditor) Any() (one Claim, there bool, used int64) {
	for c, u := range a.uses { // The order of a map is random.
		if one, there = c, true; u.Class != "" {
			used += u.Amount
		}
	}
	return one, there, used
}
