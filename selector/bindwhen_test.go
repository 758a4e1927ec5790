package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

func TestMatchConditionOfBindWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		expression v1beta1.Expression
		condition  string
		decides    bool
	}{
		"None":    {reason: "We should have no condition without an expression."},
		"Claim":   {reason: "We should name the claim as the API server does.", expression: "claim.spec.a == 'claim'", condition: "object.spec.a == 'claim'"},
		"Request": {reason: "We should leave who creates the claim to the API server.", expression: "request.userInfo.username == claim.spec.a", condition: "request.userInfo.username == object.spec.a"},
		"Hidden": {
			reason: "We should not hide the claim.", expression: "claim.spec.a.all(object, object == claim.spec.b)",
			condition: "object.spec.a.all(object_, object_ == object.spec.b)",
		},
		"Namespace": {reason: "The API server does not know the namespace.", expression: "claim.spec.a == namespace.metadata.labels.a"},
		"Related":   {reason: "The API server does not know related objects.", expression: "has(related.plan)"},
		"Invalid":   {reason: "We should have no condition that does not compile.", expression: "claim.spec.ref.name =="},
		"Reference": {reason: "It should decide if it looks at the reference.", expression: "claim.spec.ref == {}", condition: "object.spec.ref == {}", decides: true},
		"Above":     {reason: "It should decide if it looks above the reference.", expression: "claim.spec == {}", condition: "object.spec == {}", decides: true},
		"Below": {
			reason: "It should decide if it looks below the reference.", decides: true,
			expression: "claim.spec.ref.name == related.plan.spec.a",
		},
		"Beside": {reason: "It should not decide if it looks beside the reference.", expression: "claim.spec.reference.name == ''", condition: "object.spec.reference.name == ''"},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Reference.Path, k.Spec.Claims.When = ".spec.ref", tc.expression
			k.Spec.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: "plans.example.org", NameExpression: "claim.spec.plan"}}
			condition, decides := claim.BindWhen(k, "object")
			assert.Equal(t, tc.condition, condition, tc.reason)
			assert.Equal(t, tc.decides, decides, tc.reason)
		})
	}
}

// TestReferencesThatCount has only those that claims.when does not replace.
func TestReferencesThatCount(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		expression v1beta1.Expression
		claim      string
		counts     bool
	}{
		"Default":   {reason: "A default should not count.", expression: "claim.spec.ref.name == 'default'", claim: `{spec: {ref: {name: default}}}`},
		"Other":     {reason: "Another reference should count.", expression: "claim.spec.ref.name == 'default'", claim: `{spec: {ref: {name: gold}}}`, counts: true},
		"Fails":     {reason: "A reference should count if the expression fails.", expression: "claim.spec.ref.name == 'default' && claim.spec.a > 1", claim: `{spec: {ref: {name: default}}}`, counts: true},
		"Delayed":   {reason: "A reference should count where claims.when does not look at it.", expression: "claim.spec.ready", claim: `{spec: {ready: true, ref: {name: default}}}`, counts: true},
		"Term":      {reason: "A term should be enough to tell.", expression: "claim.spec.ref.name == 'default' && has(related.plan)", claim: `{spec: {ref: {name: gold}}}`, counts: true},
		"NoTerm":    {reason: "A reference should not count if more than the claim must tell.", expression: "claim.spec.ref.name == related.plan.spec.a", claim: `{spec: {ref: {name: gold}}}`},
		"OtherTerm": {reason: "A reference should not count if another term may tell.", expression: "claim.spec.ref.name == 'default' && has(related.plan)", claim: `{spec: {ref: {name: default}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.LocalObjectReference}), func(s *v1beta1.ClaimKindSpec) {
				s.Claims.When = tc.expression
				s.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: "plans.example.org", NameExpression: "claim.spec.plan"}}
			})
			require.Nil(t, kind.fault)
			claim := decode(t, tc.claim)
			_, bound := kind.BoundTo("team", claim)
			assert.Equal(t, tc.counts, bound, tc.reason)
			assert.Equal(t, tc.counts, kind.HasReference(claim), tc.reason)
			_, missing := kind.ClassOf([]*inventory.Classes{inventory.NewClasses(newKind("golds.example.org", "Gold"), nil)}, "team", claim)
			assert.Equal(t, tc.counts, missing != "", "We should miss no class of a reference that does not count.")
		})
	}
}
