package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
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

func TestExplainRefusesSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		set    []string
		want   string
	}{
		"Empty":           {"We should refuse an unset variable.", []string{""}, `--set="": must be PATH=VALUE, such as namespace.labels.tenant=a`},
		"NoValue":         {"We should ask for a value.", []string{"namespace.labels.tenant"}, "must be PATH=VALUE"},
		"NoPath":          {"We should ask for a path.", []string{"=a"}, "the path has an empty name"},
		"EmptyName":       {"We should not skip a name.", []string{"related..tier=a"}, "the path has an empty name"},
		"Claim":           {"We should say where a claim is changed.", []string{"claim.spec.size=1"}, "a claim is as its file says: change that"},
		"Class":           {"We should say where a class is changed.", []string{"class.spec.size=1"}, "put another on top of the cluster's with --with"},
		"Unknown":         {"We should say what there is.", []string{"object.spec=1"}, "must begin with namespace, request or related"},
		"Namespace":       {"We should name a field.", []string{"namespace=a"}, "must name a label or an annotation"},
		"NamespaceName":   {"We should not take what a Namespace cannot be given.", []string{"namespace.name=a"}, "must name a label or an annotation"},
		"NamespaceSpec":   {"We should not take what no expression sees.", []string{"namespace.spec.finalizers=a"}, "must name a label or an annotation"},
		"NoLabel":         {"We should ask for a key.", []string{"namespace.labels=a"}, "must name a label or an annotation"},
		"LabelKey":        {"We should refuse what is no label.", []string{"namespace.labels.a/b/c=d"}, "a valid label key must consist of"},
		"LabelValue":      {"We should refuse what no label has.", []string{"namespace.labels.tenant=a b"}, "a valid label must be"},
		"Request":         {"We should name a field.", []string{"request.username=a"}, "must be request.userInfo.username, uid, groups or extra.KEY"},
		"RequestBelow":    {"We should not go below a text.", []string{"request.userInfo.username.first=a"}, "must be request.userInfo.username"},
		"RequestNothing":  {"We should name a field.", []string{"request.userInfo=a"}, "must be request.userInfo.username"},
		"ExtraWithoutKey": {"We should ask for a key.", []string{"request.userInfo.extra=a"}, "must be request.userInfo.username"},
		"Related":         {"We should name a field.", []string{"related.plan=gold"}, "must name a field of the object, such as related.plan.spec.tier=gold"},
		"Twice":           {"We should not pick one of the two.", []string{"related.plan.spec.tier=a", "related.plan.spec.tier=b"}, `--set="related.plan.spec.tier=b": the field, or one above or below it, is set already`},
		"Below":           {"We should not replace a value.", []string{"related.plan.spec=a", "related.plan.spec.tier=b"}, "the field, or one above or below it, is set already"},
		"Above":           {"We should not replace a value.", []string{"related.plan.spec.tier=b", "related.plan.spec=a"}, "the field, or one above or below it, is set already"},
		"UsernameTwice":   {"We should not pick one of the two.", []string{"request.userInfo.username=a", "request.userInfo.username=b"}, "is set already"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"-f", "a"}
			for _, text := range tc.set {
				args = append(args, "--set", text)
			}
			got := run(t, "", args...)
			assert.Contains(t, got.stderr, tc.want, tc.reason)
			assert.Equal(t, exit.Failed, got.status)
			assert.Empty(t, got.stdout, "We should print nothing that could be taken for an answer.")
		})
	}
}

func TestExplainRefusesUndeclaredRelated(t *testing.T) {
	related := `{"apiVersion": "classbind.io/v1alpha1", "kind": "ClaimKind", "metadata": {"name": "others.example.org"}, "spec": {"related": [{"name": "plan", "resource": "plans.example.org", "nameExpression": "claim.spec.plan"}]}}`
	t.Chdir(write(t, map[string]string{"claim.yaml": goldClaim, "plain.yaml": claimKind, "related.yaml": documents(claimKind, related)}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "plain.yaml", "--set", "related.plam.spec.tier=gold")
	assert.Equal(t, "error: --set: no ClaimKind has a related object \"plam\"\n", got.stderr)
	assert.Equal(t, exit.Failed, got.status)
	got = run(t, "", "-f", "claim.yaml", "--classes", "related.yaml", "--set", "related.plam.spec.tier=gold")
	assert.Equal(t, "error: --set: no ClaimKind has a related object \"plam\", but plan\n", got.stderr, "We should say what there is.")
}

// TestExplainRefusesLongFields refuses a claim for a field that expressions look at, as the server does.
func TestExplainRefusesLongFields(t *testing.T) {
	fitting := `{"apiVersion": "classbind.io/v1alpha1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"fits": [{"name": "Text", "expression": "has(claim.spec.text)"}]}}`
	long := strings.Replace(goldClaim, `"spec": {`, `"spec": {"text": "`+strings.Repeat("x", v1alpha1.MaxExpressionValueBytes)+`", `, 1)
	t.Chdir(write(t, map[string]string{"claim.yaml": long, "classes.yaml": documents(fitting, classKind, goldClass)}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml")
	assert.Contains(t, got.stdout, "spec.text: Too long", got.stderr)
}
