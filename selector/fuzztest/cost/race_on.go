//go:build race

package cost

// race reports whether the race detector is on, whose own work would be measured.
const race = true
