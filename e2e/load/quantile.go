package load

import (
	"cmp"
	"slices"
)

// Quantile of values that are sorted: the least that at least that share of them does not exceed; zero of nothing.
func Quantile[T cmp.Ordered](sorted []T, share float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	rank := int(share * float64(len(sorted)))
	if float64(rank) < share*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// MedianOf something of each item: of an even number, the mean of the two in the middle.
func MedianOf[T any](items []T, value func(T) float64) float64 {
	var values []float64
	for _, item := range items {
		values = append(values, value(item))
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Ratio of something of rounds to that of those beside them, the median.
func Ratio[T any](of, to []T, value func(T) float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = value(of[i]) / value(to[i])
	}
	return median(ratios)
}

// Shift of values from those beside them: the mean of the middle half of their differences. It ignores turns in which the machine did
// something else for one of the two, as a median does, and uses more of the others: of normal noise, its variance is three quarters of the
// median's.
func Shift(of, from []float64) float64 {
	differences := make([]float64, len(of))
	for i := range of {
		differences[i] = of[i] - from[i]
	}
	slices.Sort(differences)
	middle := differences[len(differences)/4 : len(differences)-len(differences)/4]
	sum := 0.0
	for _, d := range middle {
		sum += d
	}
	return sum / float64(max(1, len(middle)))
}
