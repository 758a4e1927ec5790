package controller

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

func TestSingleDefault(t *testing.T) {
	golds, silvers := newClassKind("golds.example.org", "Gold"), newClassKind("silvers.example.org", "Silver")
	isDefault := []string{"default", "true"}
	type want struct {
		condition metav1.Condition
		column    string
	}
	for name, tc := range map[string]struct {
		reason  string
		classes []*selector.Index
		want    want
	}{
		"None": {
			reason:  "We should say what becomes of a claim without a selector where there is no default.",
			classes: []*selector.Index{newIndex(golds, map[string][]string{"a": nil})},
			want: want{metav1.Condition{
				Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoDefault,
				Message: "a claim without a selector finds no class",
			}, ""},
		},
		"One": {
			reason:  "We should name the default class.",
			classes: []*selector.Index{newIndex(golds, map[string][]string{"a": isDefault, "b": nil}), newIndex(silvers, nil)},
			want: want{metav1.Condition{
				Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOneDefault,
				Message: "a claim without a selector gets the default class",
			}, "Gold/a"},
		},
		"Several": {
			reason:  "We should name the default classes of all kinds in their order, and say what would help.",
			classes: []*selector.Index{newIndex(silvers, map[string][]string{"a": isDefault}), newIndex(golds, map[string][]string{"b": isDefault, "a": isDefault})},
			want: want{metav1.Condition{
				Type: v1alpha1.ConditionSingleDefault, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSeveralDefaults,
				Message: "a claim without a selector gets any of 3 classes; leave the mark on one of Gold/a, Gold/b, Silver/a",
			}, "Gold/a +2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			condition, column := singleDefault(selector.NewView(&selector.ClaimKind{}, tc.classes))
			assert.Equal(t, tc.want, want{condition, column}, tc.reason)
		})
	}
}

func TestWeightsValid(t *testing.T) {
	golds := newClassKind("golds.example.org", "Gold")
	for name, tc := range map[string]struct {
		reason  string
		classes map[string][]string
		want    metav1.Condition
	}{
		"NoClasses": {
			reason: "We should complain of nothing where there is nothing.",
			want:   metav1.Condition{Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWeightsValid, Message: "every weight can be read"},
		},
		"Valid": {
			reason:  "We should take a weight that is absent for a valid one.",
			classes: map[string][]string{"a": nil, "b": {"weight", "0"}, "c": {"weight", "1000000"}},
			want:    metav1.Condition{Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWeightsValid, Message: "every weight can be read"},
		},
		"Malformed": {
			reason:  "We should count the malformed weights, and say what is wrong with the first.",
			classes: map[string][]string{"a": nil, "b": {"weight", "much"}, "c": {"weight", "-1"}, "d": {"weight", "1000001"}},
			want: metav1.Condition{
				Type: v1alpha1.ConditionWeightsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMalformedWeight,
				Message: `3 classes count as weight 1, the first of them "Gold/b": annotation "weight": "much" is not an integer from 0 to 1000000`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, weightsValid(newIndex(golds, tc.classes)), tc.reason)
		})
	}
}

func TestSetCondition(t *testing.T) {
	var conditions []metav1.Condition
	setCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served", Message: "well"}, 1)
	require.Len(t, conditions, 1)
	since := conditions[0].LastTransitionTime
	require.False(t, since.IsZero(), "We should say since when.")

	setCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "old"}, 2)
	assert.Equal(t, []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "old", ObservedGeneration: 2, LastTransitionTime: since},
	}, conditions, "We should keep the time of the last transition, and say which generation we have seen.")

	setCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "x" + strings.Repeat("é", 20000)}, 2)
	message := conditions[0].Message
	assert.LessOrEqual(t, utf8.RuneCountInString(message), 32768, "We should cut a message that the schema would refuse.")
	assert.Greater(t, len(message), 32000, "We should cut no more than we have to.")
	assert.True(t, utf8.ValidString(message), "We should not cut a character in two.")
}
