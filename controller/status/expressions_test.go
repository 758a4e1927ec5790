package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

func TestDescribeExpressions(t *testing.T) {
	many := make([]v1beta1.Fit, v1beta1.MaxErrors+2)
	for n := range many {
		many[n] = v1beta1.Fit{Name: fmt.Sprintf("F%d", n), Expression: "class"}
	}
	for name, tc := range map[string]struct {
		reason  string
		spec    v1beta1.ClaimKindSpec
		related registry.State
		want    []string
	}{
		"None": {reason: "We should say nothing of expressions that are not there."},
		"Valid": {
			reason: "We should say that all is well.", spec: v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{When: "claim.spec.ready"}},
			want: []string{"ExpressionsValid=True/ExpressionsValid: every expression compiles"},
		},
		"Invalid": {
			reason: "We should say which expressions are wrong, and where.",
			spec: v1beta1.ClaimKindSpec{
				Claims:  v1beta1.Claims{When: "claim.spec.ready &&"},
				Classes: v1beta1.Classes{Fits: []v1beta1.Fit{{Name: "Same", Expression: "class.a == related.b.c"}}},
			},
			want: []string{"ExpressionsValid=False/InvalidExpression: spec.claims.when: line 1, column 20: mismatched input '<EOF>'; " +
				"spec.classes.fits[Same].expression: line 1, column 12: there is no related.b here"},
		},
		"Known": {
			reason: "We should say that the objects are known.", spec: v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{When: "claim.spec.ready"}},
			related: registry.State{Reason: v1beta1.ReasonServed, Message: "known", Known: true},
			want:    []string{"ExpressionsValid=True/ExpressionsValid: every expression compiles", "RelatedKnown=True/Served: known"},
		},
		"Unknown": {
			reason: "We should say why the objects are not known.", spec: v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{When: "claim.spec.ready"}},
			related: registry.State{Reason: v1beta1.ReasonNotPermitted, Message: "forbidden"},
			want:    []string{"ExpressionsValid=True/ExpressionsValid: every expression compiles", "RelatedKnown=False/NotPermitted: forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec = tc.spec
			w := fixed{related: tc.related}.in(&Writer{})
			w.claimTypes.checked(k, registry.Types{})
			var got []string
			for _, c := range []metav1.Condition{
				w.claimExpressions(k, selector.NewView(selector.NewClaimKind(k), nil)), relatedKnown(w.RelatedKinds.RelatedState(k.Name)),
			} {
				if c.Type != "" {
					got = append(got, c.Type+"="+conditionText(&c))
				}
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
	k := controllertest.NewClaimKind("claims.example.org")
	k.Spec.Classes.Fits = many
	c := (&Writer{}).claimExpressions(k, selector.NewView(selector.NewClaimKind(k), nil))
	assert.Equal(t, v1beta1.MaxErrors, strings.Count(c.Message, "name a field of class"), "We should not write errors without end.")
	assert.True(t, strings.HasSuffix(c.Message, "; and 2 more"), c.Message)
}

// TestTypeChecks has a registration changed, checked with a schema missing, and replaced.
func TestTypeChecks(t *testing.T) {
	checks, k := &typeChecks{}, controllertest.NewClaimKind("claims.example.org")
	k.Spec = v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{When: "claim.spec.ready"}}
	k.UID, k.Generation = "a", 1
	wrong := registry.Types{
		Mistyped: []rules.Invalid{{Field: "spec.claims.when", Err: &expression.Error{Text: "no"}}},
		Read:     map[string]bool{"claims.example.org": true},
	}
	changes := 0
	checks.changed.Add(t.Context(), func(string) { changes++ })
	_, known := checks.of(k)
	assert.False(t, known, "We should not call right what nobody has checked.")
	checks.checked(k, registry.Types{Err: errors.New("timeout")})
	_, known = checks.of(k)
	assert.False(t, known, "We should not turn green because the first check failed.")
	for range 2 {
		checks.checked(k, wrong)
	}
	assert.Equal(t, 1, changes, "We should write no status for what is known.")
	checks.checked(k, registry.Types{Err: errors.New("timeout")})
	found, known := checks.of(k)
	assert.True(t, known)
	assert.Equal(t, wrong.Mistyped, found, "We should not turn green because a schema was not read.")
	other := rules.Invalid{Field: "spec.selector.expression", Err: &expression.Error{Text: "no"}}
	checks.checked(k, registry.Types{Mistyped: []rules.Invalid{other}, Err: errors.New("timeout")})
	found, _ = checks.of(k)
	assert.ElementsMatch(t, append(wrong.Mistyped, other), found, "We should add what a check finds that fails for others.")
	checks.checked(k, wrong)
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}
	assert.Len(t, checks.readers(t.Context(), crd), 1)
	crd.Name = "others.example.org"
	assert.Empty(t, checks.readers(t.Context(), crd), "We should not check all registrations at each change of a CRD.")
	k.UID = "b"
	_, known = checks.of(k)
	assert.False(t, known, "We should not take the findings of one that is deleted for those of another.")
	checks.checked(k, registry.Types{Err: errors.New("timeout")})
	found, known = checks.of(k)
	assert.False(t, known, "Nor while no schema can be read.")
	assert.Empty(t, found)
}

func TestDescribeClassExpressions(t *testing.T) {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org", Generation: 7}, Spec: v1beta1.ClassKindSpec{OfferWhen: "class.ready"}}
	compiled := inventory.NewClassKind(k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	class := func(name string, content map[string]any) *inventory.Class {
		return compiled.NewClass(&metav1.ObjectMeta{Name: name}, content)
	}
	ready := class("ready", map[string]any{"ready": true})
	invalid := k.DeepCopy()
	invalid.Spec.OfferWhen = "class.ready =="
	plain := k.DeepCopy()
	plain.Spec.OfferWhen = ""
	wrong := []rules.Invalid{{Field: "spec.offerWhen", Err: &expression.Error{Line: 1, Column: 6, Text: "the schema has no field class.ready"}}}
	for name, tc := range map[string]struct {
		reason   string
		kind     *v1beta1.ClassKind
		classes  *inventory.Classes
		want     string // as conditionText has it
		mistyped []rules.Invalid
	}{
		"None": {"We should say nothing of expressions that are not there.", plain, inventory.NewClasses(compiled, nil), "", nil},
		"Valid": {
			"We should say that all is well.", k, inventory.NewClasses(compiled, []*inventory.Class{ready}),
			"True/ExpressionsValid: every expression compiles", nil,
		},
		"NotServed": {"We should know without classes that an expression compiles.", k, nil, "True/ExpressionsValid: every expression compiles", nil},
		"Invalid": {
			"We should say what is wrong, and where.", invalid, nil,
			"False/InvalidExpression: spec.offerWhen: line 1, column 15: mismatched input '<EOF>'",
			nil,
		},
		"FailsOne": {
			"We should name the class for which it fails.", k, inventory.NewClasses(compiled, []*inventory.Class{ready, class("a", nil)}),
			"False/ExpressionFailed: classes with no result of the expression spec.offerWhen, which no claim is offered: Gold/a; the first: no such key: ready",
			nil,
		},
		"FailsMany": {
			"We should name a few of the classes, whoever makes how many of them.",
			k,
			inventory.NewClasses(compiled, []*inventory.Class{class("a", nil), class("b", nil), class("c", nil), class("d", nil), class("e", nil), class("f", nil)}),
			"False/ExpressionFailed: classes with no result of the expression spec.offerWhen, which no claim is offered: Gold/a, Gold/b, Gold/c, " +
				"Gold/d and 2 more; the first: no such key: ready",
			nil,
		},
		"Mistyped": {
			"We should name the field, and not the class that fails for it.",
			k, inventory.NewClasses(compiled, []*inventory.Class{class("a", nil)}),
			"False/MistypedExpression: spec.offerWhen: line 1, column 6: the schema has no field class.ready",
			wrong,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Writer{}
			w.classTypes.checked(tc.kind, registry.Types{Mistyped: tc.mistyped})
			got := last(w.classConditions(tc.kind, tc.classes), v1beta1.ConditionExpressionsValid)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}
