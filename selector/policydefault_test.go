package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

func TestPolicyDefault(t *testing.T) {
	const mark, weight = "example.org/default", "example.org/weight"
	marked := []string{mark, "true"}
	type class struct {
		namespace   string
		annotations []string
		labels      int
	}
	for name, tc := range map[string]struct {
		reason  string
		claims  func(*v1beta1.ClaimKindSpec)
		kind    func(*v1beta1.ClassKindSpec)
		classes []class
		want    string // the reason why there is none; empty, there is one
	}{
		"One":              {reason: "We should let the API server give the only default.", classes: []class{{annotations: marked}, {}}},
		"None":             {reason: "We should need a default.", classes: []class{{}}, want: v1beta1.ReasonNoDefault},
		"Several":          {reason: "We should draw among several.", classes: []class{{annotations: marked}, {annotations: marked}}, want: v1beta1.ReasonSeveralDefaults},
		"Cordoned":         {reason: "We should offer no cordoned class.", classes: []class{{annotations: append([]string{v1beta1.CordonedAnnotation, "true"}, marked...)}}, want: v1beta1.ReasonDefaultCordoned},
		"Weightless":       {reason: "We should offer no class of weight 0.", classes: []class{{annotations: append([]string{weight, "0"}, marked...)}}, want: v1beta1.ReasonWeightZero},
		"WeightlessRandom": {reason: "We should offer it where weights do not count.", claims: func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.Random }, classes: []class{{annotations: append([]string{weight, "0"}, marked...)}}},
		"TooManyLabels":    {reason: "We should offer no class whose labels are not held.", classes: []class{{annotations: marked, labels: 2 * v1beta1.MaxClassLabels}}, want: v1beta1.ReasonNeedsWebhook},
		"RoundRobin":       {reason: "We should know which class we gave last.", claims: func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.RoundRobin }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"Annotate":         {reason: "We should tell the time, which the API server does not.", claims: annotates, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"LeastClaims":      {reason: "We should not need to choose from one.", claims: func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = v1beta1.LeastClaims }, classes: []class{{annotations: marked}}},
		"Any":              {reason: "We should draw among all.", claims: func(s *v1beta1.ClaimKindSpec) { s.Selector.WhenAbsent = v1beta1.NoSelectorAny }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"LeaveAlone":       {reason: "We should leave them alone.", claims: func(s *v1beta1.ClaimKindSpec) { s.Selector.WhenAbsent = v1beta1.NoSelectorLeaveAlone }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"Score": {
			reason: "We should see an expression fail.", claims: func(s *v1beta1.ClaimKindSpec) {
				s.Choice.Strategy, s.Choice.Score = v1beta1.LowestScore, "class.spec.size"
			},
			classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook,
		},
		"Partition": {
			reason: "We should see which partition a claim is in.", claims: func(s *v1beta1.ClaimKindSpec) {
				s.Classes.Partition = &v1beta1.Partition{Claim: "claim.spec.zone", Class: "class.spec.zone"}
			},
			classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook,
		},
		"OfferWhen": {reason: "We should see whether the class is offered.", kind: func(s *v1beta1.ClassKindSpec) { s.OfferWhen = "class.metadata.name != ''" }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"DefaultExpression": {
			reason: "We should see which class is default.",
			kind: func(s *v1beta1.ClassKindSpec) {
				s.Default = v1beta1.Source{Expression: "class.metadata.name == 'c0'"}
			},
			classes: []class{{}}, want: v1beta1.ReasonNeedsWebhook,
		},
		"WeightExpression": {reason: "We should see what a class weighs.", kind: func(s *v1beta1.ClassKindSpec) { s.Weight = v1beta1.Source{Expression: "1"} }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"OwnNamespace":     {reason: "We should have a default for each namespace.", classes: []class{{namespace: "a", annotations: marked}}, want: v1beta1.ReasonNeedsWebhook},
		"AllNamespaces":    {reason: "We should have one for all of them.", claims: func(s *v1beta1.ClaimKindSpec) { s.Classes.Namespaces.From = v1beta1.FromAll }, classes: []class{{namespace: "a", annotations: marked}}},
		"NamedNamespace": {
			reason: "We should count no default that is not offered.", claims: func(s *v1beta1.ClaimKindSpec) {
				s.Classes.Namespaces = v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"a"}}
			},
			classes: []class{{namespace: "a", annotations: marked}, {namespace: "b", annotations: marked}},
		},
		"Fault": {reason: "We should not bind by a registration that we do not understand.", claims: func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed = "Dice" }, classes: []class{{annotations: marked}}, want: v1beta1.ReasonUnknownValue},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
				if tc.claims != nil {
					tc.claims(s)
				}
				if tc.kind != nil {
					tc.kind(k)
				}
			})
			kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, tc.classes[0].namespace != "", e.claims)
			var all []*inventory.Class
			for i, c := range tc.classes {
				meta := &metav1.ObjectMeta{Namespace: c.namespace, Name: "c" + string(rune('0'+i)), Annotations: map[string]string{}, Labels: map[string]string{}}
				for i := 0; i < len(c.annotations); i += 2 {
					meta.Annotations[c.annotations[i]] = c.annotations[i+1]
				}
				for i := range c.labels {
					meta.Labels["label"+string(rune('a'+i/26))+string(rune('a'+i%26))] = "x"
				}
				all = append(all, kind.NewClass(meta, map[string]any{"metadata": map[string]any{"name": meta.Name}}))
			}
			class, fault := NewView(NewClaimKind(e.claims, e.kind), []*inventory.Classes{inventory.NewClasses(kind, all)}).PolicyDefault()
			if tc.want == "" {
				assert.Nil(t, fault, tc.reason)
				assert.Same(t, all[0], class, tc.reason)
				return
			}
			if assert.NotNil(t, fault, tc.reason) {
				assert.Equal(t, tc.want, fault.Reason, "%s: %s", tc.reason, fault.Text)
			}
			assert.Nil(t, class, tc.reason)
		})
	}
}

func TestOrderMatters(t *testing.T) {
	ref := func(path v1beta1.FieldPath) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) { s.Reference.Path = path }
	}
	for name, tc := range map[string]struct {
		reason string
		other  func(*v1beta1.ClaimKindSpec)
		want   bool
	}{
		"Apart":      {reason: "We should let two references of a claim be.", other: ref(".spec.otherRef")},
		"Others":     {reason: "We should not care about other claims.", other: func(s *v1beta1.ClaimKindSpec) { ref(".spec.resourceRef")(s); s.Claims.Resource = "others.example.org" }},
		"Skipped":    {reason: "We should leave a claim alone that the other kind has bound.", other: ref(".spec.resourceRef"), want: true},
		"InSelector": {reason: "We should heed the selector that the other kind writes.", other: ref(".spec.classSelector.matchLabels"), want: true},
		"Skips": {
			reason: "We should let the other kind come first if it leaves alone what we bind.", want: true,
			other: func(s *v1beta1.ClaimKindSpec) {
				ref(".spec.otherRef")(s)
				s.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.classRef"}}
			},
		},
		"Expression": {
			reason: "We should let the other kind come first if an expression looks at what we bind.", want: true,
			other: func(s *v1beta1.ClaimKindSpec) {
				ref(".spec.otherRef")(s)
				s.Claims.When = "has(claim.spec.classRef)"
			},
		},
		"Conflict": {reason: "We should not care about a kind that binds nothing.", other: func(*v1beta1.ClaimKindSpec) {}},
	} {
		t.Run(name, func(t *testing.T) {
			newKind := func(name string) *v1beta1.ClaimKind {
				return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClaimKindSpec{
					Claims:    v1beta1.Claims{Resource: "claims.example.org", SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
					Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}},
					Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
				}}
			}
			other := newKind("b")
			tc.other(&other.Spec)
			inventory := NewInventory()
			inventory.SetClaimKind(NewClaimKind(newKind("a")))
			inventory.SetClaimKind(NewClaimKind(other))
			inventory.Open()
			snapshot := inventory.Snapshot()
			fault := snapshot.OrderMatters(snapshot["a"].Kind)
			assert.Equal(t, tc.want, fault != nil, tc.reason)
		})
	}
}
