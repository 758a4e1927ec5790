package webhookconfig

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

// TestConditionsAgree has conditions and the reader judge the same claims: the API server
// calls us for those, and only those, that the reader does not leave alone.
func TestConditionsAgree(t *testing.T) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals())) // As the API server.
	require.NoError(t, err)
	holds := func(t *testing.T, program cel.Program, variables map[string]any) bool {
		t.Helper()
		out, _, err := program.Eval(variables)
		require.NoError(t, err, "%v: no condition may fail, or the API server goes by the failure policy.", variables)
		return out.Value().(bool)
	}
	compile := func(t *testing.T, expression string) cel.Program {
		t.Helper()
		ast, issues := env.Compile(expression)
		require.NoError(t, issues.Err(), expression)
		program, err := env.Program(ast)
		require.NoError(t, err, expression)
		return program
	}
	kinds := map[string]func(*v1alpha1.ClaimKindSpec){
		"Defaults": func(*v1alpha1.ClaimKindSpec) {},
		"Name": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref", Form: v1alpha1.Name}
		},
		"NameOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref", Form: v1alpha1.Name, EmptyIsUnset: true}
		},
		"Object": func(s *v1alpha1.ClaimKindSpec) { s.Reference = v1alpha1.Reference{Path: ".spec.ref"} },
		"ObjectOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref", EmptyIsUnset: true}
		},
		"TopLevelOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec", Form: v1alpha1.LocalObjectReference, EmptyIsUnset: true, WhenParentAbsent: v1alpha1.LeaveClaimAlone}
		},
		"Parent": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref.name", Form: v1alpha1.Name, WhenParentAbsent: v1alpha1.LeaveClaimAlone}
		},
		"ParentOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref.name", EmptyIsUnset: true, WhenParentAbsent: v1alpha1.LeaveClaimAlone}
		},
		"Label": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Label: "example.org/class", Form: v1alpha1.Name}
		},
		"AnnotationOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Annotation: "example.org/class", Form: v1alpha1.Name, EmptyIsUnset: true}
		},
		"Skip": func(s *v1alpha1.ClaimKindSpec) {
			s.SkipIfSet = []v1alpha1.Place{{Annotation: "example.org/class"}, {Label: "example.org/class"}, {Path: ".spec.ref"}}
		},
		"Selector": func(s *v1alpha1.ClaimKindSpec) {
			s.WhenNoSelector, s.ClassSelector = v1alpha1.NoSelectorLeaveAlone, v1alpha1.ClassSelector{Path: ".spec.ref.name"}
		},
		"SelectorAnnotation": func(s *v1alpha1.ClaimKindSpec) {
			s.WhenNoSelector, s.ClassSelector = v1alpha1.NoSelectorLeaveAlone, v1alpha1.ClassSelector{Path: ".spec.ref", Annotation: "example.org/class"}
			s.Reference.EmptyIsUnset = true
		},
		"SelectorExpression": func(s *v1alpha1.ClaimKindSpec) {
			s.WhenNoSelector, s.ClassSelector = v1alpha1.NoSelectorLeaveAlone, v1alpha1.ClassSelector{Path: ".spec.ref.name", Expression: "claim.metadata.name"}
		},
	}
	claims := conditionClaims()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			change(&k.Spec)
			kind := selector.NewClaimKind(k)
			var conditions []cel.Program
			for _, c := range claimConditions(k) {
				conditions = append(conditions, compile(t, *c.Expression))
			}
			unset, old := compile(t, selector.ReferenceIsUnset(k, "object", false)), compile(t, selector.ReferenceIsUnset(k, "oldObject", true))
			count := map[bool]int{}
			for _, claim := range claims {
				var object map[string]any
				require.NoError(t, json.Unmarshal([]byte(claim), &object))
				read, err := kind.Decode([]byte(claim))
				require.NoError(t, err)
				called := true
				for _, c := range conditions {
					called = holds(t, c, map[string]any{"object": object, "oldObject": nil, "request": map[string]any{"operation": "CREATE"}}) && called
				}
				in := kind.Read("team", "db", read)
				count[called]++
				if !assert.Equal(t, in.LeftAlone == "", called, "%s: %q", claim, in.LeftAlone) {
					return
				}
				assert.Equal(t, kind.HasReference(read), !holds(t, unset, map[string]any{"object": object, "oldObject": nil}), claim)
				r, err := kind.Restore([]byte(claim), []byte(`{"metadata":{},"spec":{}}`))
				require.NoError(t, err)
				if r.Reason != selector.ParentAbsent {
					assert.Equal(t, r.Reason == selector.NotBound, holds(t, old, map[string]any{"oldObject": object}), "%s: %s", claim, r.Reason)
				}
			}
			assert.True(t, holds(t, old, map[string]any{"oldObject": nil}), "We should take the old object of a creation for one without a reference.")
			assert.Positive(t, count[true], "We should try claims that are ours.")
			assert.Positive(t, count[false], "We should try claims that are not ours.")
		})
	}
}

// conditionClaims has each value of each place that the kinds look at, beside each of others.
func conditionClaims() (claims []string) {
	values := []string{`null`, `""`, `"gold"`, `5`, `true`, `[]`, `{}`}
	references := append([]string{``}, values...)
	for _, value := range values {
		references = append(references, fmt.Sprintf(`{"name":%s}`, value), fmt.Sprintf(`{"kind":%s,"name":""}`, value), fmt.Sprintf(`{"name":{"name":%s}}`, value),
			fmt.Sprintf(`{"kind":"Class","more":%s}`, value))
	}
	specs := append([]string{``}, values...)
	for _, reference := range references {
		fields := fmt.Sprintf(`"ref":%s`, reference)
		if reference == `` {
			fields = `"a":1`
		}
		for _, more := range []string{``, `,"classRef":{"name":""}`, `,"classRef":"x"`, `,"resourceRef":false`, `,"resourceRef":null`} {
			specs = append(specs, "{"+fields+more+"}")
		}
	}
	maps := []string{``, `null`, `{}`, `{"example.org/class":""}`, `{"example.org/class":"gold"}`, `{"a":"b"}`}
	for _, spec := range specs {
		for _, labels := range maps {
			for _, annotations := range maps {
				claim := `{"metadata":{"name":"db"`
				if labels != `` {
					claim += `,"labels":` + labels
				}
				if annotations != `` {
					claim += `,"annotations":` + annotations
				}
				claim += `}`
				if spec != `` {
					claim += `,"spec":` + spec
				}
				claims = append(claims, claim+`}`)
			}
		}
	}
	return claims
}
