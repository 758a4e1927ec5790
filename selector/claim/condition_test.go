package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestMatchConditionOfBindWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		expression v1beta1.Expression
		condition  string
		decides    bool
	}{
		"None": {reason: "We should have no condition without an expression."},
		"Claim": {
			reason:     "We should name the claim as the API server does.",
			expression: "claim.spec.a == 'claim'",
			condition:  "[object].all(claim, (claim.spec.a == 'claim'\n))",
		},
		"Request": {
			reason:     "We should leave who creates the claim to the API server.",
			expression: "request.userInfo.username == claim.spec.a",
			condition:  "[object].all(claim, (request.userInfo.username == claim.spec.a\n))",
		},
		"Hidden": {
			reason:     "We should not hide the claim.",
			expression: "claim.spec.a.all(object, object == claim.spec.b)",
			condition:  "[object].all(claim, (claim.spec.a.all(object, object == claim.spec.b)\n))",
		},
		"Shadowed": {
			reason:     "We should leave alone a variable of the author's.",
			expression: "claim.spec.a.all(claim, claim == 1)",
			condition:  "[object].all(claim, (claim.spec.a.all(claim, claim == 1)\n))",
		},
		"AsWritten": {
			reason:     "We should write what the author wrote.",
			expression: "claim.spec.a.all(namespaceObject, namespaceObject == claim.metadata.namespace)",
			condition:  "[object].all(claim, (claim.spec.a.all(namespaceObject, namespaceObject == claim.metadata.namespace)\n))",
		},
		"Comment": {reason: "We should end a comment.", expression: "claim.spec.a // claim", condition: "[object].all(claim, (claim.spec.a // claim\n))"},
		"LabelSelector": {
			reason:     "The API server does not know our functions.",
			expression: "labelSelectorMatches(claim.spec.a, claim.metadata.labels)",
		},
		"Namespace": {reason: "The API server does not know the namespace.", expression: "claim.spec.a == namespaceObject.metadata.labels.a"},
		"Related":   {reason: "The API server does not know related objects.", expression: "has(related.plan)"},
		"Invalid":   {reason: "We should have no condition that does not compile.", expression: "claim.spec.ref.name =="},
		"Reference": {
			reason:     "It should decide if it looks at the reference.",
			expression: "claim.spec.ref == {}",
			condition:  "[object].all(claim, (claim.spec.ref == {}\n))",
			decides:    true,
		},
		"Above": {
			reason:     "It should decide if it looks above the reference.",
			expression: "claim.spec == {}",
			condition:  "[object].all(claim, (claim.spec == {}\n))",
			decides:    true,
		},
		"Below": {reason: "It should decide if it looks below the reference.", decides: true, expression: "claim.spec.ref.name == related.plan.spec.a"},
		"Beside": {
			reason:     "It should not decide if it looks beside the reference.",
			expression: "claim.spec.reference.name == ''",
			condition:  "[object].all(claim, (claim.spec.reference.name == ''\n))",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := selectortest.ClaimKind()
			k.Spec.Reference.Path, k.Spec.Claims.When = ".spec.ref", tc.expression
			k.Spec.Classes.Related = []v1beta1.Related{{Name: "plan", Resource: "plans.example.org", NameExpression: "claim.spec.plan"}}
			condition, decides := BindWhen(k)
			assert.Equal(t, tc.condition, condition, tc.reason)
			assert.Equal(t, tc.decides, decides, tc.reason)
		})
	}
}
