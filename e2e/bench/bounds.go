package bench

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed bounds.yaml
var boundsFile []byte

// bound is what a measure has to keep to: one of the three limits.
type bound struct {
	Name    string   `json:"name"`
	Of      string   `json:"of"`
	AtLeast *float64 `json:"atLeast"`
	AtMost  *float64 `json:"atMost"`
	Below   *float64 `json:"below"`
	Reason  string   `json:"reason"`
}

// measure is what a bound is on; false where its part did not run.
type measure func(*Report) (float64, bool)

// measures by the names of their bounds, of which each has one.
var measures = map[string]measure{
	"throughput": func(r *Report) (float64, bool) {
		return of(r.Webhook, func(w *Webhook) float64 { return w.ThroughputRatio })
	},
	"p99": func(r *Report) (float64, bool) {
		return of(r.Webhook, func(w *Webhook) float64 { return w.P99Ratio })
	},
	"create-1":    beyondDoNothing(1),
	"create-8":    beyondDoNothing(8),
	"policy-1":    policyShare(1),
	"policy-8":    policyShare(8),
	"reference-1": added(askedClassbind, true, 1),
	"storm": func(r *Report) (float64, bool) {
		return of(r.Storm, func(s *Storm) float64 { return s.P99Ratio })
	},
}

// of a part of the report, if it ran.
func of[T any](part *T, value func(*T) float64) (float64, bool) {
	if part == nil {
		return 0, false
	}
	return value(part), true
}

// beyondDoNothing is what classbind adds to a create beyond what the do-nothing
// webhook does, as a share of a create about which nobody is asked.
func beyondDoNothing(clients int) measure {
	return func(r *Report) (float64, bool) {
		return of(r.Create, func(c *Create) float64 {
			return c.of(askedClassbind, false, clients).BeyondDoNothingMillis / c.of(askedNobody, false, clients).P50Millis
		})
	}
}

// policyShare is what the policy adds to a create, of what the do-nothing webhook adds.
func policyShare(clients int) measure {
	return func(r *Report) (float64, bool) {
		return of(r.Create, func(c *Create) float64 {
			return c.of(askedPolicy, false, clients).AddedMillis / c.of(askedDoNothing, false, clients).AddedMillis
		})
	}
}

// added to a create by who is asked, in milliseconds.
func added(asked string, reference bool, clients int) measure {
	return func(r *Report) (float64, bool) {
		return of(r.Create, func(c *Create) float64 { return c.of(asked, reference, clients).AddedMillis })
	}
}

// Verdict is what was measured, and whether it keeps to its bound.
type Verdict struct {
	Bound string
	Of    string
	Limit string
	Value float64
	Met   bool
}

// readBounds of all measures. The errors are for the author of the file.
func readBounds(text []byte) ([]bound, error) {
	var bounds []bound
	if err := yaml.UnmarshalStrict(text, &bounds); err != nil {
		return nil, fmt.Errorf("cannot read bounds.yaml: %w", err)
	}
	var names []string
	for _, b := range bounds {
		if len(b.limits()) != 1 || b.Of == "" || b.Reason == "" {
			return nil, fmt.Errorf("bound %q of bounds.yaml must have of, reason, and one of atLeast, atMost and below", b.Name)
		}
		names = append(names, b.Name)
	}
	slices.Sort(names)
	if all := measured(); !slices.Equal(names, all) {
		return nil, fmt.Errorf("bounds.yaml has bounds of %v: must have one of each measure: %v", names, all)
	}
	return bounds, nil
}

// measured are the names of all measures.
func measured() []string {
	return slices.Sorted(maps.Keys(measures))
}

// limit of a value, in words, and whether one keeps to it.
type limit struct {
	text string
	met  func(float64) bool
}

// limits of the bound, of which a valid one has one. Nothing that is no number keeps to one.
func (b bound) limits() []limit {
	var all []limit
	if l := b.AtLeast; l != nil {
		all = append(all, limit{fmt.Sprintf("at least %v", *l), func(v float64) bool { return v >= *l }})
	}
	if l := b.AtMost; l != nil {
		all = append(all, limit{fmt.Sprintf("at most %v", *l), func(v float64) bool { return v <= *l }})
	}
	if l := b.Below; l != nil {
		all = append(all, limit{fmt.Sprintf("below %v", *l), func(v float64) bool { return v < *l }})
	}
	return all
}

// judge the parts of the report that ran.
func (r *Report) judge(bounds []bound) {
	r.Verdicts = nil
	for _, b := range bounds {
		value, ran := measures[b.Name](r)
		if !ran {
			continue
		}
		for _, l := range b.limits() {
			r.Verdicts = append(r.Verdicts, Verdict{b.Name, b.Of, l.text, value, l.met(value)})
		}
	}
}

// Missed is an error that names the bounds that are not met, if there are any.
func (r *Report) Missed() error {
	var missed []string
	for _, v := range r.Verdicts {
		if !v.Met {
			missed = append(missed, fmt.Sprintf("%s is %.3f, not %s", v.Bound, v.Value, v.Limit))
		}
	}
	if missed == nil {
		return nil
	}
	return fmt.Errorf("classbind misses bounds: %s", strings.Join(missed, "; "))
}
