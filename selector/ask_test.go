package selector

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
)

// TestAskKeepsTheClaim keeps late binding, which holds the Ask alone, from losing what a
// claim asks for: also a field of Claim that somebody adds.
func TestAskKeepsTheClaim(t *testing.T) {
	identity := map[string]bool{"Namespace": true, "Name": true, "GenerateName": true}
	kept := map[string]bool{}
	kind := kindOf(withReference(v1alpha1.Reference{Path: ".spec.classRef", Form: v1alpha1.ObjectReference, EmptyIsUnset: true}))
	for _, text := range []string{
		`{spec: {classRef: {}}}`, `{spec: {classRef: {kind: "a\"=@", apiVersion: v1}}}`,
		`{spec: {classRef: {kind: A, apiVersion: a/v1, namespace: "b "}, classSelector: {matchLabels: {tier: gold}}}}`,
		`{}`, `{spec: {classSelector: {}}}`, `{spec: {classSelector: {matchLabels: {tier: gold, env: ""}}}}`,
		`{spec: {classSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, "v"]}, {key: b, operator: Exists}]}}}`,
		`{metadata: {annotations: {classbind.io/class-selector: "cores>4,!spot,zone in (a,b)"}}}`,
	} {
		in := kind.Read("team", "db", decode(t, text))
		require.Empty(t, in.Problems)
		got, err := kind.Ask(in).Claim("team", "db")
		require.NoError(t, err)
		assert.Equal(t, describe(in.Claim), describe(got), text)
		for f, value := range reflect.ValueOf(got).Fields() {
			if !value.IsZero() {
				kept[f.Name] = true
			}
		}
	}
	for f := range reflect.TypeFor[Claim]().Fields() {
		assert.True(t, identity[f.Name] || kept[f.Name], "We should keep %s in the Ask.", f.Name)
	}
}

func describe(c Claim) any {
	s := c.Selector
	c.Selector = nil
	if s == nil {
		return c
	}
	return [...]any{c, s.String()}
}

func TestAskWithAProblem(t *testing.T) {
	kind := NewClaimKind(postgres())
	in := kind.Read("team", "db", decode(t, `{spec: {classSelector: {matchLabels: {tier: -gold-}}}}`))
	ask := kind.Ask(in)
	assert.Contains(t, ask.Problem(), "spec.classSelector.matchLabels")
	assert.LessOrEqual(t, len(AskWith(strings.Repeat("x", 1<<20))), v1alpha1.MaxMessageBytes+1, "We should keep little of a long problem.")
	assert.Empty(t, Ask("").Problem())
	assert.Empty(t, Ask("=!a").Problem(), "We should take no selector for a problem.")
}
