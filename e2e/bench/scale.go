package bench

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/classbind/classbind/e2e/progress"
)

// rates of claims in a second at which a replica is measured.
var rates = []int{100, 500, 1000}

// Scale is what a replica takes for classes, for claims, and for changes of classes.
type Scale struct {
	Sizes  []Size    `json:"sizes"`
	Claims []Claimed `json:"claims"`
	// Changed are classes of the largest size.
	Changed Changed `json:"changed"`
}

// Claimed are claims that come at a steady rate, whatever becomes of those before.
type Claimed struct {
	Classes   int     `json:"classes"`
	PerSecond float64 `json:"perSecond"`
	// CPUMicros are for each of them.
	CPUMicros float64 `json:"cpuMicros"`
	P50Millis float64 `json:"p50Millis"`
	P99Millis float64 `json:"p99Millis"`
}

// scale measures a replica with more and more classes.
func (h *held) scale(ctx context.Context) (*Scale, error) {
	s := &Scale{}
	sizes := h.settings.sizes()
	for i, classes := range sizes {
		err := h.at(ctx, classes, func(replica *replica, config *tls.Config, size Size) error {
			claims, err := h.claims(ctx, replica, config)
			if err != nil {
				return err
			}
			s.Sizes, s.Claims = append(s.Sizes, size), append(s.Claims, claims...)
			if i < len(sizes)-1 {
				return nil
			}
			return progress.During(h.progress, fmt.Sprintf("measuring the CPU of %d changes", h.settings.SingleChanges), func() error {
				s.Changed, err = h.changed(ctx, replica)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// claims of a steady rate, each rate in turn.
func (h *held) claims(ctx context.Context, r *replica, config *tls.Config) (all []Claimed, err error) {
	t, err := h.bound(r, config)
	if err != nil {
		return nil, err
	}
	for _, rate := range rates {
		r, err := t.drive(ctx, h.settings.Round, rate)
		if err != nil {
			return nil, err
		}
		c := Claimed{
			Classes: h.classes, PerSecond: r.perSecond(), CPUMicros: r.cpuMicros(),
			P50Millis: millis(r.P50), P99Millis: millis(r.P99),
		}
		_, _ = fmt.Fprintf(h.progress, "  scale: %d classes, %.0f claims/s, CPU %.0f µs, p50 %.2f ms, p99 %.2f ms\n",
			c.Classes, c.PerSecond, c.CPUMicros, c.P50Millis, c.P99Millis)
		all = append(all, c)
	}
	return all, nil
}
