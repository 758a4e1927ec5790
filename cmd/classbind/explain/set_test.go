package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
)

func TestSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		set    []string
		want   settings
	}{
		"Nothing":         {"We should know of nothing.", nil, settings{}},
		"Label":           {"We should put a label into the metadata.", []string{"namespace.labels.tenant=a"}, settings{namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"tenant": "a"}}}}},
		"WholePath":       {"We should take the path as an expression has it, too.", []string{"namespace.metadata.annotations.tenant=a"}, settings{namespace: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"tenant": "a"}}}}},
		"Domain":          {"We should take the dots of a key as they are, with or without a backslash.", []string{"namespace.labels.example.org/a=b", `namespace.labels.example\.org/c=d`}, settings{namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"example.org/a": "b", "example.org/c": "d"}}}}},
		"LabelsAreTexts":  {"We should leave labels texts.", []string{"namespace.labels.a=true", "namespace.labels.b=1", "namespace.labels.c="}, settings{namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "true", "b": "1", "c": ""}}}}},
		"Requester":       {"We should know who asks.", []string{"request.userInfo.username=system:jane", "request.userInfo.uid=7"}, settings{request: map[string]any{"userInfo": map[string]any{"username": "system:jane", "uid": "7"}}}},
		"GroupsRepeated":  {"We should take one group after another.", []string{"request.userInfo.groups=a", "request.userInfo.groups=b"}, settings{request: map[string]any{"userInfo": map[string]any{"groups": []any{"a", "b"}}}}},
		"Extra":           {"We should take the dots of a key as they are.", []string{"request.userInfo.extra.example.org/a=b"}, settings{request: map[string]any{"userInfo": map[string]any{"extra": map[string]any{"example.org/a": []any{"b"}}}}}},
		"Related":         {"We should tell types as JSON does.", []string{"related.plan.spec.tier=gold", "related.plan.spec.max=7", "related.plan.spec.price=1.5", "related.plan.spec.open=true", `related.plan.spec.code="7"`, "related.plan.spec.none=null"}, settings{related: map[string]map[string]any{"plan": {"spec": map[string]any{"tier": "gold", "max": int64(7), "price": 1.5, "open": true, "code": "7", "none": nil}}}}},
		"RelatedList":     {"We should take a list of any type.", []string{`related.plan.spec.sizes=[1,"big"]`}, settings{related: map[string]map[string]any{"plan": {"spec": map[string]any{"sizes": []any{int64(1), "big"}}}}}},
		"RelatedDot":      {"We should take a dot in a name.", []string{`related.plan.metadata.labels.example\.org/a=b`}, settings{related: map[string]map[string]any{"plan": {"metadata": map[string]any{"labels": map[string]any{"example.org/a": "b"}}}}}},
		"RelatedEqual":    {"We should take the first equals sign alone.", []string{"related.plan.spec.text=a=b"}, settings{related: map[string]map[string]any{"plan": {"spec": map[string]any{"text": "a=b"}}}}},
		"RelatedNoObject": {"We should take what is no value of a field as a text.", []string{"related.plan.spec.text={}"}, settings{related: map[string]map[string]any{"plan": {"spec": map[string]any{"text": "{}"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newSettings(tc.set)
			require.NoError(t, err)
			if tc.want.related == nil {
				tc.want.related = map[string]map[string]any{}
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestExplainRefusesUndeclaredRelated(t *testing.T) {
	related := `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "others.example.org"}, "spec": {"classes": {"related": [{"name": "plan", "resource": "plans.example.org", "nameExpression": "claim.spec.plan"}]}}}`
	t.Chdir(write(t, map[string]string{"claim.yaml": goldClaim, "plain.yaml": claimKind, "related.yaml": documents(claimKind, related)}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "plain.yaml", "--set", "related.plam.spec.tier=gold")
	assert.Equal(t, "error: --set: no ClaimKind has a related object \"plam\"\n", got.stderr)
	assert.Equal(t, exit.Failed, got.status)
	got = run(t, "", "-f", "claim.yaml", "--classes", "related.yaml", "--set", "related.plam.spec.tier=gold")
	assert.Equal(t, "error: --set: no ClaimKind has a related object \"plam\", but plan: did you mean plan?\n", got.stderr, "We should say what there is.")
}

// TestExplainRefusesLongFields refuses a claim for a field that expressions look at, as the server does.
func TestExplainRefusesLongFields(t *testing.T) {
	fitting := `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"classes": {"fits": [{"name": "Text", "expression": "has(claim.spec.text)"}]}}}`
	long := strings.Replace(goldClaim, `"spec": {`, `"spec": {"text": "`+strings.Repeat("x", v1beta1.MaxExpressionValueBytes)+`", `, 1)
	t.Chdir(write(t, map[string]string{"claim.yaml": long, "classes.yaml": documents(fitting, classKind, goldClass)}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml")
	assert.Contains(t, got.stdout, "spec.text: Too long", got.stderr)
	assert.Contains(t, got.stdout, "must not be longer than 16384 bytes")
}
