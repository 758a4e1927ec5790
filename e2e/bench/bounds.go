package bench

import (
	_ "embed"
	"fmt"
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

// judge what was measured, and print it. An error names the bounds that are not met; after a run of all parts, each bound has a measure.
func (r *run) judge() error {
	var bounds []bound
	if err := yaml.UnmarshalStrict(boundsFile, &bounds); err != nil {
		return fmt.Errorf("cannot read bounds.yaml: %w", err)
	}
	rows := []string{"bound|measured|limit|verdict"}
	var missed []string
	for _, b := range bounds {
		value, measured := r.measured[b.Name]
		if !measured && len(r.Only) > 0 {
			continue
		}
		limit, met := b.limit(value)
		verdict := "met"
		if !met || !measured {
			verdict = "MISSED"
			missed = append(missed, fmt.Sprintf("%s is %.3f, not %s", b.Name, value, limit))
		}
		rows = append(rows, fmt.Sprintf("%s|%.3f|%s|%s", b.Name, value, limit, verdict))
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
