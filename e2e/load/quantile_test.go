package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for name, tc := range map[string]struct {
		sorted []int
		share  float64
		want   int
	}{
		"Nothing":   {nil, .5, 0},
		"One":       {[]int{7}, .99, 7},
		"Median":    {hundred, .5, 50},
		"P99":       {hundred, .99, 99},
		"Few":       {[]int{1, 2, 3}, .99, 3},
		"All":       {hundred, 1, 100},
		"None":      {hundred, 0, 1},
		"MedianOdd": {[]int{1, 2, 3}, .5, 2},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, Quantile(tc.sorted, tc.share), "We should find the least value that so many do not exceed.")
		})
	}
}

func TestMedian(t *testing.T) {
	assert.Zero(t, Median(nil))
	assert.InDelta(t, 2, Median([]float64{3, 1, 2}), 0, "We should order the values.")
	assert.InDelta(t, 2.5, Median([]float64{4, 1, 2, 3}), 0, "We should take the mean of the two in the middle.")
	values := []float64{3, 1, 2}
	Median(values)
	assert.Equal(t, []float64{3, 1, 2}, values, "We should leave the values as they are.")
}

func TestBesideEachOther(t *testing.T) {
	count := func(requests int) float64 { return float64(requests) }
	assert.InDelta(t, 2, Ratio([]int{2, 30, 200}, []int{1, 10, 100}, count), 0, "We should take the median of ratios of rounds side by side.")
	assert.InDelta(t, 3, Shift([]float64{1, 2, 3, 4, 50}, make([]float64, 5)), 0, "We should leave out a quarter on either side.")
	assert.InDelta(t, 3.5, Shift([]float64{100, 13, 14, -100}, []float64{10, 10, 10, 10}), 0, "We should take the mean of what is in the middle of the differences.")
	assert.InDelta(t, 1, Shift([]float64{10}, []float64{9}), 0, "We should leave out nothing of one.")
	assert.Zero(t, Shift(nil, nil))
}
