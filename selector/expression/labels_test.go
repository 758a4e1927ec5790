package expression

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/selector/fields"
)

// selectorMaker makes selectors and labels of few names, so that they often match, and now and then something malformed.
type selectorMaker struct{ maker }

func (m selectorMaker) key() string {
	if m.IntN(150) == 0 {
		return m.one("", "-a", "a/b/c", "ä", "example.org/", "A.B/c")
	}
	return m.one("a", "b", "example.org/c")
}

func (m selectorMaker) value() string {
	if m.IntN(150) == 0 {
		return m.one("-", "a b", "ä", "0123456789012345678901234567890123456789012345678901234567890123")
	}
	return m.one("", "1", "2", "x.y")
}

func (m selectorMaker) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range m.IntN(3) {
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[m.key()] = m.value()
	}
	for range m.IntN(3) {
		r := metav1.LabelSelectorRequirement{Key: m.key(), Operator: metav1.LabelSelectorOperator(m.one("In", "NotIn", "Exists", "DoesNotExist"))}
		for range m.IntN(3) {
			r.Values = append(r.Values, m.value())
		}
		if isExistence := r.Operator == "Exists" || r.Operator == "DoesNotExist"; isExistence == (len(r.Values) > 0) && m.IntN(10) > 0 {
			r.Values = map[bool][]string{false: {m.value()}}[isExistence]
		}
		if m.IntN(150) == 0 {
			r.Operator = metav1.LabelSelectorOperator(m.one("", "in", "Gt"))
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

// TestLabelSelectorsAgree compares labelSelectorMatches with Kubernetes' own selectors.
func TestLabelSelectorsAgree(t *testing.T) {
	const n = 10_000
	m := selectorMaker{maker{rand.New(rand.NewPCG(54, 1))}} //nolint:gosec // It makes test data.
	matches := compiled(t, "labelSelectorMatches(class.spec.selector, namespaceObject.metadata.labels)", Bool)
	outcomes := map[string]int{}
	for range n {
		s := m.selector()
		set := labels.Set{}
		for range m.IntN(4) {
			set[m.one("a", "b", "example.org/c")] = m.value()
		}
		want, wantErr := metav1.LabelSelectorAsSelector(s)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
		require.NoError(t, err)
		in := inputOf(content, set)
		got, err := matches.Bool(in, &Budget{plenty})
		projected, projectedErr := matches.Bool(matches.projected(in), &Budget{plenty})
		require.Equal(t, err == nil, projectedErr == nil, "We should say the same of what is held of %v.", s)
		require.Equal(t, got, projected, "We should say the same of what is held of %v.", s)
		if wantErr != nil {
			require.EqualError(t, err, invalidSelector, "We should refuse %v as Kubernetes does: %v", s, wantErr)
			require.Contains(t, Detail(err), "the label selector is invalid: ", "We should show why to those who may read it.")
			outcomes["refused"]++
			continue
		}
		require.NoError(t, err, "We should accept %v as Kubernetes does.", s)
		require.Equal(t, want.Matches(set), got, "We should match %v with %v as Kubernetes does.", s, set)
		outcomes[fmt.Sprint(got)]++
	}
	t.Logf("%d selectors: %v", n, outcomes)
	for _, outcome := range []string{"true", "false", "refused"} {
		assert.Greater(t, outcomes[outcome], n/50, "We should try enough of each outcome: %s", outcome)
	}
}

func inputOf(selector any, set labels.Set) *Input {
	all := map[string]any{}
	for key, value := range set {
		all[key] = value
	}
	return &Input{
		Claim:     map[string]any{},
		Class:     wholeObject(map[string]any{"spec": map[string]any{"selector": selector}}),
		Namespace: map[string]any{"metadata": map[string]any{"labels": all}},
	}
}

func TestLabelSelectors(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		text     string
		selector any
		want     bool
		err      string
	}{
		"Empty": {
			reason:   "We should match everything with an empty selector, as Kubernetes does",
			selector: map[string]any{},
			want:     true,
		},
		"Null": {
			reason:   "We should match nothing with null, as Kubernetes does with no selector",
			selector: nil,
		},
		"Absent": {
			reason: "We should let an absent selector match nothing",
			text:   "labelSelectorMatches(class.spec.?none.orValue(null), namespaceObject.metadata.labels)",
		},
		"Made": {
			reason: "We should read a selector that an expression makes",
			text: "labelSelectorMatches({'matchExpressions': [{'key': dyn('tenant'), 'operator': dyn('In'), 'values': dyn(['a', 'b'])}]}, " +
				"namespaceObject.metadata.labels)",
			want: true,
		},
		"MadeLabels": {
			reason:   "We should match labels that an expression makes",
			text:     "labelSelectorMatches(class.spec.selector, {'tenant': 'b', 'zone': 'c'})",
			selector: map[string]any{"matchLabels": map[string]any{"zone": "c"}},
			want:     true,
		},
		"NoLabels": {
			reason:   "We should match no labels",
			text:     "labelSelectorMatches(class.spec.selector, namespaceObject.metadata.?annotations.orValue({}))",
			selector: map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "DoesNotExist"}}},
			want:     true,
		},
		"NullLabels": {
			reason:   "We should read null as no requirement",
			selector: map[string]any{"matchLabels": nil, "matchExpressions": nil},
			want:     true,
		},
		"Misspelt": {
			reason:   "We should not let a misspelt field match everything",
			selector: map[string]any{"matchLabel": map[string]any{"tenant": "b"}},
			err:      invalidSelector,
		},
		"NumberAsValue": {
			reason:   "We should refuse a value that is not a string",
			selector: map[string]any{"matchLabels": map[string]any{"tenant": int64(1)}},
			err:      invalidSelector,
		},
		"List": {
			reason:   "We should refuse a list",
			selector: []any{},
			err:      wrongType,
		},
		"NumberAsLabel": {
			reason:   "We should refuse labels that are not strings",
			text:     "labelSelectorMatches(class.spec.selector, {'a': dyn('b'), 'b': dyn(1)})",
			selector: map[string]any{},
			err:      wrongType,
		},
		"NumberAsKey": {
			reason: "We should refuse a key that is not a string",
			text:   "labelSelectorMatches({dyn('matchLabels'): dyn({}), dyn(2): dyn(3)}, namespaceObject.metadata.labels)",
			err:    wrongType,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := tc.text
			if text == "" {
				text = "labelSelectorMatches(class.spec.selector, namespaceObject.metadata.labels)"
			}
			got, err := compiled(t, text, Bool).Bool(inputOf(tc.selector, labels.Set{"tenant": "b"}), &Budget{plenty})
			if tc.err != "" {
				require.EqualError(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			require.Equal(t, tc.want, got, tc.reason)
		})
	}
}

// TestLabelSelectorTypes compares calls with schemas.
func TestLabelSelectorTypes(t *testing.T) {
	types := map[string]string{"spec": "object", "spec.selector": "object", "spec.text": "string", "metadata": "object", "metadata.labels": "object"}
	of := func(variable string, p fields.Path) (string, error) {
		is, known := types[p.String()]
		if !known {
			return "", fmt.Errorf("the schema has no field %s", p.In(variable))
		}
		return is, nil
	}
	for name, tc := range map[string]struct{ reason, text, want string }{
		"Object": {
			reason: "We should accept an object",
			text:   "labelSelectorMatches(class.spec.selector, namespaceObject.metadata.labels)",
		},
		"Text": {
			reason: "We should refuse a string as a selector",
			text:   "labelSelectorMatches(class.spec.text, namespaceObject.metadata.labels)",
			want:   "found no matching overload for 'labelSelectorMatches'",
		},
		"TextAsLabels": {
			reason: "We should refuse a string as labels",
			text:   "labelSelectorMatches(class.spec.selector, class.spec.text)",
			want:   "found no matching overload for 'labelSelectorMatches'",
		},
		"Missing": {
			reason: "We should find a field that no class has",
			text:   "labelSelectorMatches(class.spec.selectors, namespaceObject.metadata.labels)",
			want:   "the schema has no field class.spec.selectors",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := compiled(t, tc.text, Bool).CheckTypes(of)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.ErrorContains(t, err, tc.want, tc.reason)
		})
	}
}
