//go:build !race

package cost

// Measures is false where the race detector makes everything many times slower, and lets pools forget.
const Measures = true
