package selector

// filter drops candidates that a claim is offered but may not get. The author of the
// claim learns how many, and why.
type filter struct {
	// reason is one word, for programs. text reads after a number of classes.
	reason, text string
	drops        func(*View, Claim, *Class) bool
}

// filters run in this order. The first that drops a candidate gives the reason. A new
// filter is a new row.
var filters = [...]filter{
	{"TooManyLabels", "over the limit of labels", func(_ *View, _ Claim, c *Class) bool { return c.TooManyLabels }},
	{"Terminating", "being deleted", func(_ *View, _ Claim, c *Class) bool { return c.Terminating }},
	{"Cordoned", "cordoned", func(_ *View, _ Claim, c *Class) bool { return c.Cordoned }},
	{"WeightZero", "of weight 0", func(v *View, _ Claim, c *Class) bool { return v.Kind.Strategy.Weighted && c.Weight == 0 }},
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
