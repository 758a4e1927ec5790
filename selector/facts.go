package selector

// Facts are what the expressions of a ClaimKind see of one claim, and what they say of it.
// One goroutine uses them, for one decision.
type Facts struct {
	// Claim has the fields that expressions look at.
	Claim map[string]any
	// Request is what expressions see of who asks, nil if that is not known.
	Request map[string]any
}
