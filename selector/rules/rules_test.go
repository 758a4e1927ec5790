package rules

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestInvalidExpressions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)
		field  string
		text   string
	}{
		"Syntax":  {"We should find what is no expression", selectortest.Fits("class.spec."), "spec.classes.fits[FitA].expression", "no viable alternative"},
		"Type":    {"We should want a truth", selectortest.Fits("'yes'"), "spec.classes.fits[FitA].expression", "must be true or false"},
		"Unknown": {"We should know all variables", selectortest.Fits("klass.spec.x"), "spec.classes.fits[FitA].expression", "klass"},
		"Request": {
			"We should not ask who asks for a claim that waits",
			selectortest.Specs(`{whenUnmatched: BindLater, claims: {when: "request.userInfo.username == 'a'"}}`, `{}`), "spec.claims.when",
			"request",
		},
		"Related": {"We should know the objects", selectortest.Specs(`{claims: {when: "related.plan.x"}}`, `{}`), "spec.claims.when", "plan"},
		"Status": {
			"We should not take the default from the status",
			selectortest.Specs(`{}`, `{default: {annotation: "", expression: "class.status.default"}}`), "spec.default.expression", "status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims, classes := selectortest.ClaimKind(), &v1beta1.ClassKind{}
			tc.change(&claims.Spec, &classes.Spec)
			invalid := slices.Concat(NewForClaims(claims).Invalid, InvalidOfClasses(classes))
			require.Len(t, invalid, 1, tc.reason)
			assert.Equal(t, tc.field, invalid[0].Field, tc.reason)
			assert.Contains(t, invalid[0].Error(), tc.text, tc.reason)
			assert.Contains(t, invalid[0].Err.Caret(), "^")
		})
	}
}

// TestSameFits proves that a claim kind stays the same if its class kinds are listed in another
// order, and not if a filter would say something else.
func TestSameFits(t *testing.T) {
	kind := func(name, fit, message string) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{
			Fits: []v1beta1.Fit{{Name: fit, Expression: "claim.spec.a == class.spec.a", Message: message}},
		}}
	}
	k, a, b := selectortest.ClaimKind(), kind("as.example.org", "A", "other"), kind("bs.example.org", "B", "other")
	assert.Equal(t, NewForClaims(k, a, b).LinkedFits, NewForClaims(k, b, a).LinkedFits, "A cache lists in any order")
}
