package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestQuantile has what the bounds of make bench are judged by.
func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	assert.Equal(t, 50, Quantile(hundred, .5))
	assert.Equal(t, 99, Quantile(hundred, .99), "We should find the least value that so many do not exceed.")
	assert.Equal(t, 3, Quantile([]int{1, 2, 3}, .99))
	assert.Zero(t, Quantile[int](nil, .5))
	value := func(n int) float64 { return float64(n) }
	assert.InDelta(t, 2, MedianOf([]int{3, 1, 2}, value), 0, "We should order the values.")
	assert.InDelta(t, 2.5, MedianOf([]int{4, 1, 2, 3}, value), 0, "We should take the mean of the two in the middle.")
	assert.InDelta(t, 2, Ratio([]int{2, 30, 200}, []int{1, 10, 100}, value), 0, "We should take the median of ratios of rounds side by side.")
	assert.InDelta(t, 3.5, Shift([]float64{100, 13, 14, -100}, []float64{10, 10, 10, 10}), 0, "We should take the mean of the middle half of the differences.")
}
