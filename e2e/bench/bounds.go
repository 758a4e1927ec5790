package bench

import (
	_ "embed"
	"fmt"
	"math"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed bounds.yaml
var boundsFile []byte

// bound is what a measure has to keep to: one of the three limits. The others, and words, are for readers of the file.
type bound struct {
	Name    string   `json:"name"`
	Of      string   `json:"of"`
	AtLeast *float64 `json:"atLeast"`
	AtMost  *float64 `json:"atMost"`
	Below   *float64 `json:"below"`
	Reason  string   `json:"reason"`
}

// measure of something: its value, and how far another run may be from it by chance alone.
type measure struct{ value, spread float64 }

// measuredBlocks is into how many blocks of neighbouring rounds a run is divided to learn its spread.
const measuredBlocks = 8

// measure n rounds or turns by a function of some of them. The spread is twice the standard error of the mean of the blocks: of 40 runs of
// an unchanged program, one is further off on the side that would miss a bound. Too few rounds have no spread.
func (r *run) measure(name string, n int, of func(from, to int) float64) {
	m := measure{value: of(0, n)}
	if n >= measuredBlocks {
		var sum, squares float64
		for i := range measuredBlocks {
			block := of(i*n/measuredBlocks, (i+1)*n/measuredBlocks)
			sum, squares = sum+block, squares+block*block
		}
		mean := sum / measuredBlocks
		variance := max(0, squares/measuredBlocks-mean*mean) * measuredBlocks / (measuredBlocks - 1)
		m.spread = 2 * math.Sqrt(variance/measuredBlocks)
	}
	r.measured[name] = m
}

// judge what was measured, and print it. A bound is missed if the measure is beyond it by more than its spread; within the spread, the run
// cannot decide. An error names the bounds that are missed; after a run of all parts, each bound has a measure.
func (r *run) judge() error {
	var bounds []bound
	if err := yaml.UnmarshalStrict(boundsFile, &bounds); err != nil {
		return fmt.Errorf("cannot read bounds.yaml: %w", err)
	}
	rows := []string{"bound|measured|spread|limit|verdict"}
	var missed []string
	for _, b := range bounds {
		m, measured := r.measured[b.Name]
		if !measured && len(r.Only) > 0 {
			continue
		}
		limit, met := b.limit(m.value)
		_, less := b.limit(m.value - m.spread)
		_, more := b.limit(m.value + m.spread)
		verdict := "met"
		switch {
		case !measured || !less && !more:
			verdict = "MISSED"
			missed = append(missed, fmt.Sprintf("%s is %.3f, not %s, with a spread of %.3f", b.Name, m.value, limit, m.spread))
		case !met:
			verdict = "within the spread: repeat it with more ROUNDS"
		}
		rows = append(rows, fmt.Sprintf("%s|%.3f|%.3f|%s|%s", b.Name, m.value, m.spread, limit, verdict))
	}
	r.line("\nbounds: what was measured, beside what bounds.yaml asks for")
	r.table(rows...)
	if missed == nil {
		return nil
	}
	return fmt.Errorf("classbind misses bounds: %s", strings.Join(missed, "; "))
}

// limit in words, and whether a value keeps to it. Nothing that is no number does.
func (b bound) limit(value float64) (limit string, met bool) {
	switch {
	case b.AtLeast != nil:
		return fmt.Sprintf("at least %v", *b.AtLeast), value >= *b.AtLeast
	case b.AtMost != nil:
		return fmt.Sprintf("at most %v", *b.AtMost), value <= *b.AtMost
	case b.Below != nil:
		return fmt.Sprintf("below %v", *b.Below), value < *b.Below
	}
	return "a bound without a limit", false
}
