package expression

import (
	"math/rand/v2"
	"testing"
)

// FuzzCompile proves of any text what TestEvaluationsAgree proves of generated expressions.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(50) {
		m := maker{rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // It makes test data.
		f.Add(m.expression(3), seed)
	}
	for _, text := range []string{
		"class.driver == related.plan.spec.driver && (class.spec.size >= claim.spec.size && 'a' in class.spec.modes)",
		`(claim.a == 1 && // 'x` + "\n" + ` ((true && 'a&&b)' == r'\')))`,
		"[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, claim.a == 1)))",
		"labelSelectorMatches(class.spec.selector, namespaceObject.metadata.labels) && has(claim.spec)",
		"labelSelectorMatches({'matchExpressions': [{'key': dyn('a'), 'operator': dyn('In'), 'values': dyn(claim.a)}]}, {'a': claim.b})",
		"claim.spec +", ".claim.a", "claim", "((((((((((1))))))))))", "1e+20 == claim.a", "b'a' == b\"\"\"\\\"\"\"\"",
	} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		checkExpression(t, text, maker{rand.New(rand.NewPCG(seed, 3))}.input()) //nolint:gosec // It makes test data.
	})
}
