package selector

// filter drops candidates that a claim may not get.
type filter struct {
	// reason in a word, for programs, and as it reads after a number of classes.
	reason, text string
	drops        func(*View, Claim, *Class) bool
}

// filters in the order in which they are asked; the first that drops a
// candidate gives the reason. A new filter is a new row.
var filters = [...]filter{
	{"Terminating", "being deleted", func(_ *View, _ Claim, c *Class) bool { return c.Terminating }},
	{"Cordoned", "cordoned", func(_ *View, _ Claim, c *Class) bool { return c.Cordoned }},
	{"WeightZero", "of weight 0", func(v *View, _ Claim, c *Class) bool { return v.Kind.Strategy.Weighted && c.Weight == 0 }},
	{"OutOfReach", "of a namespace that the reference cannot name", func(v *View, claim Claim, c *Class) bool {
		return !v.Kind.namesNamespace() && c.Kind.Namespaced && c.Namespace != claim.Namespace
	}},
}

// Dropped counts the candidates that each filter dropped.
type Dropped [len(filters)]int

// Total of all filters.
func (d Dropped) Total() int {
	total := 0
	for _, n := range d {
		total += n
	}
	return total
}
