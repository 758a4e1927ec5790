package selector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
)

// TestReadAsWritten has expressions say the same of what is read of a claim as of all of it.
func TestReadAsWritten(t *testing.T) {
	parts := []string{`null`, `1`, `1e300`, `true`, `"text"`, `[]`, `["b"]`, `[{"b":1}]`, `{}`}
	for _, below := range parts {
		parts = append(parts, `{"b":`+below+`}`)
	}
	claims := []string{`{}`, `{"spec":{}}`, `{"metadata":{"labels":{"b":"1"}},"spec":null}`, `{"spec":1}`, `{"spec":[]}`, `{"spec":[],"spec":{"a":{"b":1}}}`}
	for _, part := range parts {
		claims = append(claims, `{"metadata":{"labels":{}},"spec":{"a":`+part+`}}`)
	}
	for _, text := range []v1beta1.Expression{
		"has(claim.spec.a.b)", "has(claim.spec) && has(claim.spec.a) && has(claim.spec.a.b)", "claim.spec.a.b == 1", "claim.spec.a.b == null",
		"claim.?spec.?a.?b.orValue('none') == 'none'", "claim.spec.a.exists(k, k == 'b')", "size(claim.spec.a) > 0", "claim.spec.a.b.b == 1 || claim.metadata.labels.b == '1'",
		"has(claim.metadata.labels.b)",
	} {
		registered := postgres()
		registered.Spec.Claims.When = text
		kind := NewClaimKind(registered)
		require.Nil(t, NewClaimKind(registered).fault, text)
		bindWhen := kind.BindWhen
		said := map[string]bool{}
		for _, raw := range claims {
			var whole map[string]any
			require.NoError(t, kjson.Unmarshal([]byte(raw), &whole))
			read, err := kind.DecodeValid([]byte(raw))
			require.NoError(t, err)
			want, wantErr := bindWhen.Bool(&expression.Input{Claim: whole}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			got, gotErr := bindWhen.Bool(&expression.Input{Claim: read}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			assert.Equal(t, wantErr == nil, gotErr == nil, "%s of %s: %v, %v", text, raw, wantErr, gotErr)
			assert.False(t, gotErr != nil && strings.Contains(gotErr.Error(), "selector"), "%s of %s: %v", text, raw, gotErr)
			assert.Equal(t, want, got, "We should read of %s all that %q looks at.", raw, text)
			said[fmt.Sprint(want, wantErr != nil)] = true
		}
		assert.Greater(t, len(said), 1, "We should try claims of which %q says something else.", text)
	}
}
