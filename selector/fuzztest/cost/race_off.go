//go:build !race

package cost

// race says that the race detector is on, whose own work would be measured.
const race = false
