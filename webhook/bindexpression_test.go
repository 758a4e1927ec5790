package webhook

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestExpressionOutcomes shows each way in which an expression can go wrong for a claim.
func TestExpressionOutcomes(t *testing.T) {
	fits := func(expression v1beta1.Expression) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) {
			s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: expression, Message: "too small"}}
		}
	}
	ones := "[" + strings.Repeat("1,", 299) + "1]"
	for name, tc := range map[string]struct {
		reason string
		kind   func(*v1beta1.ClaimKindSpec)
		spec   string
		code   int
		want   []string
	}{
		"True": {"We should bind.", fits("class.metadata.name == 'gold' && claim.spec.size > 1"), `"size":2`, http.StatusOK, []string{`"patch"`}},
		"False": {
			"We should say what does not fit.", fits("claim.spec.size > 1"), `"size":1`, http.StatusOK,
			[]string{`"allowed":true`, "dropped: 1 too small", `"dropped":"Size=1"`},
		},
		"Absent": {
			"We should refuse a claim that no expression can judge (422).", fits("claim.spec.size > 1"), `"other":1`, http.StatusOK,
			[]string{`"allowed":false`, `"code":422`, "spec.size", "spec.classes.fits[Size].expression", "no such key: size", claimKindName},
		},
		"ClassLacksIt": {
			"We should drop a class that has not what an expression looks at.", fits("claim.spec.size < class.metadata.annotations.size"), `"size":1`, http.StatusOK,
			[]string{`"allowed":true`, "dropped: 1 not judged, because an expression fails; the first error: the expression spec.classes.fits[Size].expression fails: no such key: "},
		},
		"TooCostly": {
			"We should refuse a claim that makes an expression cost too much (422).",
			fits("claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c > size(class.metadata.name) - 9)))"), `"n":` + ones,
			http.StatusOK,
			[]string{`"code":422`, "spec.n: Invalid value", "make it shorter"},
		},
		"Invalid": {
			"We should bind nothing by an expression that does not compile (503).", fits("class.metadata.name =="), `"size":1`,
			http.StatusServiceUnavailable,
			[]string{"spec.classes.fits[Size].expression: line 1, column"},
		},
		"Selector": {
			"We should refuse a selector that is none.",
			func(s *v1beta1.ClaimKindSpec) { s.Selector.Expression = "claim.spec.tier + ' in'" }, `"tier":"a,b"`, http.StatusOK,
			[]string{`"code":422`, "spec.selector.expression"},
		},
		"SelectorOfText": {
			"We should bind by the selector of an expression.",
			func(s *v1beta1.ClaimKindSpec) { s.Selector.Expression = "'tier=' + claim.spec.tier" }, `"tier":"gold"`, http.StatusOK,
			[]string{`"patch"`, `"reason":"MatchingClass"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := newClaimKind(tc.kind)
			classes := newClassKindFor(newRegistration(tc.kind))
			inventory := newInventory(kind, index(classes, "gold tier=gold"))
			request := newRequest(`{"kind":"PostgreSQLInstance","metadata":{"name":"db"},"spec":{"classSelector":{"matchLabels":{"tier":"gold"}},` + tc.spec + `}}`)
			if strings.HasPrefix(name, "Selector") {
				request = newRequest(`{"kind":"PostgreSQLInstance","metadata":{"name":"db"},"spec":{` + tc.spec + `}}`)
			}
			b := newBinder(t, inventory)
			b.Decider.Live = nil
			w := posted(&Handler{Review: named(b)}, asBody(t, request))
			assert.Equal(t, tc.code, w.Code, tc.reason)
			for _, want := range tc.want {
				assert.Contains(t, w.Body.String(), want, tc.reason)
			}
		})
	}
}
