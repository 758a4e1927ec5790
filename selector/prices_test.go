package selector

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// TestPricesOfDecisions has claims with long fields whose expressions have to pay for each class.
func TestPricesOfDecisions(t *testing.T) {
	long, word := strings.Repeat("1", 16_000), strings.Repeat("ä", 8_000)
	numbers := make([]any, 8)
	for i := range numbers {
		numbers[i] = strings.Repeat("1", 2_000)
	}
	for name, tc := range map[string]struct {
		fit     string
		classes int
		spec    map[string]any
	}{
		"100":     {"class.spec.price < double(claim.spec.size)", 100, map[string]any{"size": long}},
		"5000":    {"class.spec.price < double(claim.spec.size)", 5000, map[string]any{"size": long}},
		"Numbers": {"claim.spec.sizes.exists(s, double(s) < class.spec.price)", 1000, map[string]any{"sizes": numbers}},
		"Wrong":   {"class.spec.price < double(claim.spec.size)", 5000, map[string]any{"size": word}},
		"Quoted":  {"claim.spec.map[claim.spec.size] == class.spec.price", 5000, map[string]any{"size": word, "map": map[string]any{}}},
		"Word":    {"class.spec.price < size(claim.spec.size)", 5000, map[string]any{"size": word}},
		"TooLong": {"class.spec.text == claim.spec.size + 'a'", 5000, map[string]any{"size": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(fits(tc.fit))
			e.withMany(tc.classes, "class-%04d", map[string]any{"price": 1e300, "text": long + long})
			view := e.view()
			in := view.Kind.Reader.Read("team", "db", map[string]any{
				"kind": "PostgreSQLInstance", "metadata": map[string]any{"name": "db", "namespace": "team"}, "spec": all(tc.spec),
			})
			took := cost.LeastCPU(15, cost.CPU, func() {
				decision, _ := new(Decider).Decide(t.Context(), view, in, Mode{})
				_ = fmt.Sprint(decision.DropErr)
			})
			t.Logf("%v of CPU with %d classes", took, tc.classes)
			assert.LessOrEqual(t, took, cost.CPU, "A decision should cost no more than a review may.")
		})
	}
}

// TestPricesOfObjects has more classes name objects than can be judged, some of them by what is long.
func TestPricesOfObjects(t *testing.T) {
	const many = 10_000
	long := strings.Repeat("1", 2_000)
	for name, classes := range map[string]string{
		"Named": `{` + related + `, fits: [{name: Open, expression: classRelated.price.spec.open}]}`,
		"Late": `{related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price},
			{name: list, resource: prices.example.org, nameExpression: classRelated.price.spec.list}],
			fits: [{name: Open, expression: classRelated.list.spec.open}]}`,
		"Long": `{related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price},
			{name: list, resource: prices.example.org,
			nameExpression: "double(class.spec.text) > 0.0 && double(classRelated.price.spec.text) > 0.0 ? 'l' : 'm'"}],
			fits: [{name: Open, expression: classRelated.list.spec.open}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, `{choice: {strategy: LowestScore, score: classRelated.price.spec.cost}}`, classes)
			m.price("team", "p", "{cost: 3, open: false, list: l, text: '"+long+"'}")
			m.price("team", "l", "{open: false}")
			all := make([]*inventory.Class, many)
			for i := range all {
				content := map[string]any{"spec": map[string]any{"price": "p", "text": long}}
				all[i] = m.kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("class-%05d", i)}, content)
			}
			m.SetClasses(inventory.NewClasses(m.kind, all))
			view := m.Snapshot()[m.claims.Name]
			in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}})
			took := cost.LeastCPU(15, cost.CPU, func() { _, _ = new(Decider).Decide(t.Context(), view, in, Mode{}) })
			t.Logf("%v of CPU with %d classes", took, many)
			assert.LessOrEqual(t, took, cost.CPU, "A decision should cost no more than a review may.")
		})
	}
}

// TestPricesOfClasses has a class change whose fields are as long as they may be, in all that is evaluated of it alone.
func TestPricesOfClasses(t *testing.T) {
	const dear = "(class.spec.list.all(x, double(class.spec.text) > 0.0) ? 1 : 0)"
	e := newExpressive(func(claims *v1beta1.ClaimKindSpec, classes *v1beta1.ClassKindSpec) {
		for i := range 8 {
			fit := v1beta1.Fit{Name: fmt.Sprint("Fit", i), Expression: dear + " > 0"}
			claims.Classes.Fits, classes.Fits = append(claims.Classes.Fits, fit), append(classes.Fits, fit)
		}
		classes.OfferWhen, classes.Weight = dear+" > 0", v1beta1.Source{Expression: dear}
	})
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	claimKind, spec := NewClaimKind(e.claims, e.kind), map[string]any{"list": make([]any, 999), "text": "0." + strings.Repeat("3", 16_000)}
	require.Nil(t, kind.Fault)
	took := cost.LeastCPU(15, cost.CPU, func() {
		class := kind.NewClass(&metav1.ObjectMeta{Name: "a"}, map[string]any{"spec": spec})
		NewView(claimKind, []*inventory.Classes{inventory.NewClasses(kind, []*inventory.Class{class})})
	})
	t.Logf("%v of CPU for a change of a class", took)
	assert.LessOrEqual(t, took, cost.CPU, "A change of a class should cost each replica no more than a review.")
}

// TestCompiledOnce counts what is compiled for a class kind that serves many claim kinds.
func TestCompiledOnce(t *testing.T) {
	var claims []*v1beta1.ClaimKind
	var compiled []*ClaimKind
	for i := range 20 {
		e := newExpressive(func(spec *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			for n := range 8 {
				text := fmt.Sprintf("claim.spec.a == class.spec.a && class.spec.n%d > %d", i, n)
				spec.Classes.Fits = append(spec.Classes.Fits, v1beta1.Fit{Name: fmt.Sprint("Fit", n), Expression: v1beta1.Expression(text)})
			}
		})
		claims, compiled = append(claims, e.claims), append(compiled, NewClaimKind(e.claims))
	}
	before := expression.Compilations()
	kind := inventory.NewClassKind(newExpressive(fits()).kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, claims...)
	assert.Equal(t, before, expression.Compilations(), "We should compile no claim kind again for what its expressions look at.")
	NewClaimKind(claims[0].DeepCopy())
	assert.Equal(t, before, expression.Compilations(), "We should not compile the same spec twice.")
	claims[0].Spec.Classes.Fits[0].Expression = "class.spec.other == 1"
	NewClaimKind(claims[0])
	assert.Greater(t, expression.Compilations(), before, "We should compile another spec.")
	runtime.KeepAlive(compiled)
	assert.False(t, kind.MetadataOnly(), "We should hold what they look at.")
}
