package rules

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestInvalidExpressions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)
		field  string
		text   string
	}{
		"Syntax":  {"We should find what is no expression", selectortest.Fits("class.spec."), "spec.classes.fits[FitA].expression", "no viable alternative"},
		"Type":    {"We should want a truth", selectortest.Fits("'yes'"), "spec.classes.fits[FitA].expression", "must be true or false"},
		"Unknown": {"We should know all variables", selectortest.Fits("klass.spec.x"), "spec.classes.fits[FitA].expression", "klass"},
		"Request": {
			"We should not ask who asks for a claim that waits",
			selectortest.Specs(`{whenUnmatched: BindLater, claims: {when: "request.userInfo.username == 'a'"}}`, `{}`), "spec.claims.when",
			"request",
		},
		"Related": {"We should know the objects", selectortest.Specs(`{claims: {when: "related.plan.x"}}`, `{}`), "spec.claims.when", "plan"},
		"Status": {
			"We should not take the default from the status",
			selectortest.Specs(`{}`, `{default: {annotation: "", expression: "class.status.default"}}`), "spec.default.expression", "status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims, classes := selectortest.ClaimKind(), &v1beta1.ClassKind{}
			tc.change(&claims.Spec, &classes.Spec)
			invalid := slices.Concat(NewForClaims(claims).Invalid, InvalidOfClasses(classes))
			require.Len(t, invalid, 1, tc.reason)
			assert.Equal(t, tc.field, invalid[0].Field, tc.reason)
			assert.Contains(t, invalid[0].Error(), tc.text, tc.reason)
			assert.Contains(t, invalid[0].Err.Caret(), "^")
		})
	}
}

// TestNamespaceOfClassKinds proves that a claim kind reads of Namespaces what its class kinds look at, and shares that with no other.
func TestNamespaceOfClassKinds(t *testing.T) {
	kind := func(name string, text v1beta1.Expression) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{
			Fits: []v1beta1.Fit{{Name: "A", Expression: text}},
		}}
	}
	const own = "class.spec.a == namespaceObject.metadata.name"
	tenant, zone := kind("as.example.org", "class.spec.a == namespaceObject.metadata.labels.tenant"),
		kind("bs.example.org", "namespaceObject.metadata.labels.zone == 'a'")
	for name, tc := range map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)
		kinds  []*v1beta1.ClassKind
		want   []string
	}{
		"None": {
			reason: "We should read no Namespace where nothing looks at it",
			kinds:  []*v1beta1.ClassKind{kind("as.example.org", "class.spec.a == claim.spec.a")},
		},
		"ClassKind": {
			reason: "We should read what a class kind alone looks at",
			kinds:  []*v1beta1.ClassKind{tenant},
			want:   []string{"metadata.labels[tenant]"},
		},
		"ClassKinds": {
			reason: "We should read what several look at",
			kinds:  []*v1beta1.ClassKind{zone, tenant},
			want:   []string{"metadata.labels[tenant]", "metadata.labels[zone]"},
		},
		"Both": {
			reason: "We should read what the claim kind looks at, too",
			change: selectortest.Fits(own),
			kinds:  []*v1beta1.ClassKind{tenant},
			want:   []string{"metadata.labels[tenant]", "metadata.name"},
		},
		"ClaimKind": {
			reason: "We should not keep what another compilation of the claim kind looks at",
			change: selectortest.Fits(own),
			want:   []string{"metadata.name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := selectortest.ClaimKind()
			if tc.change != nil {
				tc.change(&claims.Spec, &v1beta1.ClassKindSpec{})
			}
			for range 2 {
				compiled := NewForClaims(claims, tc.kinds...)
				require.Empty(t, compiled.Invalid, tc.reason)
				var got []string
				if compiled.Namespaces != nil {
					assert.Equal(t, "namespaces", compiled.Namespaces.Resource)
					assert.True(t, compiled.Namespaces.MetadataOnly(), tc.reason)
					for _, p := range compiled.Namespaces.Fields.Paths() {
						got = append(got, p.String())
					}
				}
				assert.Equal(t, tc.want, got, tc.reason)
			}
			assert.Nil(t, NewForClaims(selectortest.ClaimKind()).Namespaces, tc.reason)
		})
	}
	for field, k := range map[string]*v1beta1.ClassKind{
		"spec.offerWhen":          {Spec: v1beta1.ClassKindSpec{OfferWhen: "namespaceObject.metadata.name == 'a'"}},
		"spec.weight.expression":  {Spec: v1beta1.ClassKindSpec{Weight: v1beta1.Source{Expression: "size(namespaceObject.metadata.name)"}}},
		"spec.fits[A].expression": kind("as.example.org", "related.plan.spec.a == class.spec.a"),
		"spec.default.expression": {Spec: v1beta1.ClassKindSpec{Default: v1beta1.Source{Expression: "namespaceObject.metadata.name == 'a'"}}},
		"spec.capacity[cpu].total.expression": {Spec: v1beta1.ClassKindSpec{Capacity: []v1beta1.Capacity{
			{Name: "cpu", Total: v1beta1.Source{Expression: "size(namespaceObject.metadata.name)"}},
		}}},
	} {
		invalid := InvalidOfClasses(k)
		require.Len(t, invalid, 1, "We should let nothing but fits look at the Namespace: %s", field)
		assert.Equal(t, field, invalid[0].Field)
		assert.Contains(t, invalid[0].Error(), "cannot be used here; the variable")
	}
}

// TestSameFits proves that a claim kind stays the same if its class kinds are listed in another
// order, and not if a filter would say something else.
func TestSameFits(t *testing.T) {
	kind := func(name, fit, message string) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{
			Fits: []v1beta1.Fit{{Name: fit, Expression: "claim.spec.a == class.spec.a", Message: message}},
		}}
	}
	k, a, b := selectortest.ClaimKind(), kind("as.example.org", "A", "other"), kind("bs.example.org", "B", "other")
	assert.Equal(t, NewForClaims(k, a, b).LinkedFits, NewForClaims(k, b, a).LinkedFits, "A cache lists in any order")
}
