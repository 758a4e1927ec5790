package rules

import (
	"encoding/json"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// Shown are the fields of a claim and of its candidates that a chooser learns.
type Shown struct{ claim, class []fields.Path }

// addShown has these fields read, as if an expression looked at them.
func (r *ForClaims) addShown(e *v1beta1.External) {
	if e == nil {
		return
	}
	r.Shown = &Shown{pathsOf(e.Fields.Claim), pathsOf(e.Fields.Class)}
	r.LooksAtClaim = append(r.LooksAtClaim, r.Shown.claim...)
	r.LooksAtClass = append(r.LooksAtClass, r.Shown.class...)
}

func pathsOf(places []v1beta1.Place) []fields.Path {
	paths := make([]fields.Path, len(places))
	for i, p := range places {
		paths[i] = p.Names()
	}
	return expression.NewFields(paths...).Paths()
}

// ClaimFields are the fields of a claim.
func (s *Shown) ClaimFields() []fields.Path { return s.claim }

// Claim returns the fields of a claim as JSON, empty if that has more bytes than most. The same values are the same text.
func (s *Shown) Claim(object map[string]any, most int) string { return show(s.claim, object, most) }

// Class returns the fields of a class likewise. A field that is too long to be read is absent.
func (s *Shown) Class(of *expression.Object, most int) string { return show(s.class, of.Whole(), most) }

// show has the values at the paths alone, and so nothing of what is no object on the way to one.
func show(paths []fields.Path, object map[string]any, most int) string {
	shown := make(map[string]any, len(paths))
	for _, p := range paths {
		if value, err := p.Lookup(object); err == nil && value != nil {
			fields.CopyField(shown, object, p)
		}
	}
	if spare(shown, most) < 0 {
		return ""
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // It makes six bytes of one.
	_ = encoder.Encode(shown)    // It was read from JSON.
	if text.Len()-1 > most {
		return ""
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// spare is how many bytes are left after a value as JSON, at most: escapes take more. It visits no more than fits.
func spare(value any, left int) int {
	switch v := value.(type) {
	case string:
		return left - len(v) - len(`""`)
	case []any:
		for i := 0; i < len(v) && left >= 0; i++ {
			left = spare(v[i], left-len(`,`))
		}
	case map[string]any:
		for key, child := range v {
			if left < 0 {
				break
			}
			left = spare(child, left-len(key)-len(`"":,`))
		}
	}
	return left - 1 // for two brackets and one comma too many, or for all else
}
