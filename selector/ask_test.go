package selector

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
)

// TestAskKeepsTheClaim keeps late binding, which holds the Ask alone, from losing what a
// claim asks for: also a field of Claim that somebody adds.
func TestAskKeepsTheClaim(t *testing.T) {
	identity := map[string]bool{"Namespace": true, "Name": true, "GenerateName": true, "Request": true, "Requester": true, "Usage": true} // It is not known later.
	kept := map[string]bool{}
	kind := kindOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference, WhenEmpty: v1beta1.BindEmpty}),
		func(s *v1beta1.ClaimKindSpec) {
			s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: "class.spec.size == claim.spec.size"}}
		})
	for _, text := range []string{
		`{spec: {classRef: {}}}`, `{spec: {classRef: {kind: "a\"=@", apiVersion: v1}}}`,
		`{spec: {classRef: {kind: A, apiVersion: a/v1, namespace: "b "}, classSelector: {matchLabels: {tier: gold}}}}`,
		`{}`, `{spec: {classSelector: {}}}`, `{spec: {classSelector: {matchLabels: {tier: gold, env: ""}}}}`,
		`{spec: {classSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, "v"]}, {key: b, operator: Exists}]}}}`,
		`{metadata: {annotations: {classbind.io/class-selector: "cores>4,!spot,zone in (a,b)"}}}`,
	} {
		in := kind.Read("team", "db", decode(t, text))
		require.Empty(t, in.Problems)
		require.NotNil(t, in.Object)
		got, err := kind.Ask(in).Claim("team", "db")
		require.NoError(t, err)
		require.NotNil(t, got.Object)
		assert.Equal(t, describe(in.Claim), describe(got), text)
		for f, value := range reflect.ValueOf(got).Fields() {
			if !value.IsZero() {
				kept[f.Name] = true
			}
		}
	}
	for f := range reflect.TypeFor[claim.Claim]().Fields() {
		assert.True(t, identity[f.Name] || kept[f.Name], "We should keep %s in the Ask.", f.Name)
	}
}

func describe(c claim.Claim) any {
	s := c.Selector
	c.Selector, c.Object = nil, nil
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
	assert.LessOrEqual(t, len(claim.AskWith(strings.Repeat("x", 1<<20))), v1beta1.MaxMessageBytes+1, "We should keep little of a long problem.")
	assert.Empty(t, claim.Ask("").Problem())
	assert.Empty(t, claim.Ask("=!a").Problem(), "We should take no selector for a problem.")
}

// TestAskKeepsFields has expressions see the same of a claim that waits as of one that is created.
func TestAskKeepsFields(t *testing.T) {
	kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{{Name: "All", Expression: "[class.a, claim.spec.size, claim.spec.more.a, claim.metadata.labels].size() > 0"}}
	})
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"spec":{"other":1},"metadata":{"name":"db","uid":"1"}}`:             `{"metadata":{},"spec":{}}`,
		`{"spec":{"size":null,"more":{"b":1}}}`:                               `{"spec":{"more":{},"size":null}}`,
		`{"spec":{"size":1,"more":5}}`:                                        `{"spec":{"more":5,"size":1}}`,
		`{"spec":{"more":null}}`:                                              `{"spec":{"more":null}}`,
		`{"spec":{"more":[{"a":1}]}}`:                                         `{"spec":{"more":[]}}`,
		`{"spec":{"size":1.0,"more":{"a":[1e300,-2.50,true,{}]}}}`:            `{"spec":{"more":{"a":[1e+300,-2.5,true,{}]},"size":1.0}}`,
		`{"spec":{"size":9007199254740993}}`:                                  `{"spec":{"size":9007199254740993}}`,
		`{"metadata":{"labels":{"b":"<é\u0022","a":"="}},"spec":{}}`:          `{"metadata":{"labels":{"a":"=","b":"<é\""}},"spec":{}}`,
		`{"spec":{"size":2,"classSelector":{"matchLabels":{"tier":"gold"}}}}`: `{"spec":{"size":2}}=tier=gold`,
	} {
		object, err := kind.DecodeValid([]byte(text))
		require.NoError(t, err)
		in := kind.Read("team", "db", object)
		require.Empty(t, in.Problems)
		ask := kind.Ask(in)
		assert.Equal(t, claim.Ask(want), ask, text)
		got, err := ask.Claim("team", "db")
		require.NoError(t, err)
		assert.Equal(t, ask, kind.Ask(claim.Intake{Claim: got}), "We should read what we wrote.")
	}
	assert.NotEqual(t, kind.Ask(kind.Read("", "", map[string]any{"spec": map[string]any{"size": 1.0}})),
		kind.Ask(kind.Read("", "", map[string]any{"spec": map[string]any{"size": int64(1)}})), "We should keep numbers apart that expressions keep apart.")
}

// TestDeepFieldsAreTooLong has a field refused of which a part would be lost.
func TestDeepFieldsAreTooLong(t *testing.T) {
	kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{{Name: "All", Expression: "has(claim.spec.more)"}}
	})
	for depth, problems := range map[int]int{fields.MaxExpressionDepth - 1: 0, fields.MaxExpressionDepth: 1} {
		object, err := kind.DecodeValid([]byte(`{"spec":{"more":` + strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth) + `}}`))
		require.NoError(t, err)
		in := kind.Read("team", "db", object)
		assert.Len(t, in.Problems, problems, "%d levels", depth)
		assert.NotContains(t, kind.Ask(in).Problem(), "selector.", "We should not show our types.")
	}
}

// TestExpressionsAgreeLater has claims with fields of every sort decided on when they are created, and later from their Ask.
func TestExpressionsAgreeLater(t *testing.T) {
	worlds := map[string]func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec){
		"Fits":     fits("claim.spec.b >= class.spec.size", "!has(claim.spec.c) || claim.spec.c.size() > 0"),
		"Below":    fits("class.spec.size == 1 || has(claim.spec.c.a) || has(claim.spec.c.name)", "!has(claim.spec.b) || has(claim.spec.b.a)"),
		"Equality": fits("class.spec.size == claim.spec.b"),
		"Score": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Choice.Strategy, s.Choice.Score = v1beta1.HighestScore, "class.spec.price * double(claim.spec.b)"
		},
		"Selector": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Selector.Expression = "has(claim.spec.c) ? 'all=' + string(claim.spec.c) : claim.metadata.labels"
		},
		"Partition": func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
			s.Classes.Partition = &v1beta1.Partition{Claim: "string(claim.spec.c)", Class: "class.spec.tier"}
			k.Default = v1beta1.Source{Expression: "class.spec.size > 0"}
		},
		"BindWhen": func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Claims.When = "claim.spec.classRef.name == 'a'"
		},
		"ClassKind": func(_ *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
			k.Fits = []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.b + 1 > class.spec.size"}}
		},
	}
	values := []string{`null`, `1`, `1.0`, `2`, `2.5`, `1e3`, `9007199254740993`, `"yes"`, `""`, `"é\u0022"`, `true`, `[]`, `[1,1.0]`, `{}`, `{"name":"a"}`}
	r := rand.New(rand.NewPCG(17, 5)) //nolint:gosec // It has to be reproducible.
	fields := func(names ...string) string {
		var all []string
		for _, name := range names {
			if r.IntN(4) > 0 {
				all = append(all, fmt.Sprintf("%q:%s", name, values[r.IntN(len(values))]))
			}
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(change).with("a", map[string]any{"size": int64(1), "price": 0.5, "tier": "yes"}).
				with("b", map[string]any{"size": int64(2), "price": 1.5, "tier": ""}).with("c", map[string]any{"size": 2.5, "price": 1.0, "tier": "1"})
			view, decided := world.view(), map[string]int{}
			require.Nil(t, view.Fault)
			for range 1500 {
				spec := fields("b", "c", "classRef")
				if r.IntN(3) > 0 {
					spec = strings.Replace(spec, "{", `{"classSelector":{"matchLabels":{"all":"yes"}},`, 1)
					spec = strings.Replace(spec, ",}", "}", 1)
				}
				text := fmt.Sprintf(`{"metadata":{"name":"db","labels":{"all":%q}},"spec":%s}`, []string{"yes", "no"}[r.IntN(2)], spec)
				object, err := view.Kind.DecodeValid([]byte(text))
				require.NoError(t, err, text)
				in := view.Kind.Read("team", "db", object)
				if in.LeftAlone != "" || len(in.Problems) > 0 {
					continue
				}
				ask := view.Kind.Ask(in)
				now, err := new(Decider).Decide(t.Context(), view, in, Admit)
				require.NoError(t, err, text)
				waiting, err := ask.Claim("team", "db")
				require.NoError(t, err, text)
				later, err := new(Decider).Decide(t.Context(), view, claim.Intake{Claim: waiting, Parents: in.Parents}, Later)
				require.NoError(t, err, text)
				describe := func(d *Decision) string {
					return fmt.Sprint(d.Class, d.Candidates, d.DroppedText(), d.Reason(), d.Claim.Problems, d.Given())
				}
				decided[fmt.Sprint(now.Class)]++
				if strings.Contains(describe(&now), "is a list") && strings.Contains(describe(&later), "wrong type") {
					continue // Of a list, later says the same in other words.
				}
				if !assert.Equal(t, describe(&now), describe(&later), "%s: %s", text, ask) {
					return
				}
			}
			assert.Greater(t, len(decided), 1, "We should try claims that get different classes, or none: %v", decided)
		})
	}
}
