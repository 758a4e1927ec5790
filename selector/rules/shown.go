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

// Claim returns the fields of a claim as JSON. The same values are the same text.
func (s *Shown) Claim(object map[string]any) string { return show(s.claim, object) }

// Class returns the fields of a class likewise. One that is too long is absent.
func (s *Shown) Class(of *expression.Object) string { return show(s.class, of.Whole()) }

// show has the values at the paths alone, and so nothing of what is no object on the way to one.
func show(paths []fields.Path, object map[string]any) string {
	shown := make(map[string]any, len(paths))
	for _, p := range paths {
		if value, err := p.Lookup(object); err == nil && value != nil {
			fields.CopyField(shown, object, p)
		}
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // It makes six bytes of one.
	_ = encoder.Encode(shown)    // It was read from JSON.
	return strings.TrimSuffix(text.String(), "\n")
}
