package selector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// secretWorld has the classes that the namespace may use, and so many that it may not.
func secretWorld(spec string, secrets int, secret map[string]any) *View {
	e := newExpressive(specs(spec, `{fits: [{name: Linked, expression: "claim.spec.size <= class.spec.max || claim.spec.size > 1000"}]}`))
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	var classes []*inventory.Class
	add := func(name, owner string, spec map[string]any) {
		content := map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}
		classes = append(classes, kind.NewClass(&metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"owner": owner, "all": "yes"}, Annotations: map[string]string{"example.org/default": "true"},
		}, content))
	}
	for i := range 3 {
		add(fmt.Sprint("mine-", i), "me", map[string]any{"n": []any{int64(i)}, "max": int64(i), "price": int64(i)})
	}
	for i := range secrets {
		add(fmt.Sprint("a-secret-", i), "secret", secret)
	}
	return NewView(NewClaimKind(e.claims, e.kind), []*inventory.Classes{inventory.NewClasses(kind, classes)})
}

// TestSecretsDoNotShow proves that whatever a namespace may not use, its claims get the same class and the same answer, to the byte: the
// outcome of each form of a claim is compared between a world without secret classes and one with them.
func TestSecretsDoNotShow(t *testing.T) {
	long := make([]any, 900)
	for i := range long {
		long[i] = int64(i)
	}
	secrets := map[string]map[string]any{
		"alike": {"n": []any{int64(1)}, "max": int64(5), "price": int64(-5)}, "unfit": {"n": []any{}, "max": int64(-1), "price": int64(0)},
		"failing": {}, "costly": {"n": long, "max": int64(5), "price": int64(0)}, "short": {"n": long[:20], "max": int64(9), "price": int64(9)},
	}
	fit := `fits: [{name: Fits, expression: "claim.spec.n.all(a, class.spec.n.all(b, a + b >= 0)) && claim.spec.size < 100 + class.spec.max"}]`
	var kinds []string
	for _, choice := range []string{`{annotate: Decision}`, `{strategy: LowestScore, score: "class.spec.price + claim.spec.size"}`} {
		for _, absent := range []string{"Default", "DefaultIfAny", "Any"} {
			kinds = append(kinds,
				fmt.Sprintf(`{whenUnmatched: Deny, selector: {whenAbsent: %s}, choice: %s, classes: {use: {subject: Namespace}}}`, absent, choice),
				fmt.Sprintf(`{selector: {whenAbsent: %s}, choice: %s, classes: {use: {subject: Namespace}, %s}}`, absent, choice, fit))
		}
	}
	selectors := map[string]map[string]any{
		"none": nil, "secret": {"owner": "secret"}, "mine": {"owner": "me"}, "any": {"all": "yes"}, "nothing": {"owner": "nobody"},
	}
	answers := map[string]int{}
	for _, spec := range kinds {
		for name, fields := range secrets {
			for _, n := range []int{3, 40, 150} {
				if n > 40 && name != "alike" {
					continue
				}
				without, with := secretWorld(spec, 0, nil), secretWorld(spec, n, fields)
				for _, allowed := range [][]string{{"gone"}, {"mine-1"}, {"mine-0", "mine-2"}} {
					for selects, labels := range selectors {
						for _, size := range []int{1, 60, 900} {
							for _, roles := range []string{"known", "unknown"} {
								if roles == "unknown" && n > v1beta1.MaxRefusals {
									continue // It gets 503: whether it may use a class is not known.
								}
								if size > 1 && (!strings.Contains(spec, "Fits") || size > 60 && (n != 3 || len(allowed) > 1)) {
									continue
								}
								for _, mode := range []Mode{{}, {Stored: true}} {
									object := map[string]any{"metadata": map[string]any{"name": "db"}, "spec": map[string]any{"n": long[:size], "size": int64(1)}}
									if labels != nil {
										object["spec"].(map[string]any)["classSelector"] = map[string]any{"matchLabels": labels}
									}
									answer := func(v *View) string {
										a := &authorizer{allowed: map[string][]string{`namespace "team"`: allowed}}
										d := Decider{Gates: []Test{a.gate()}}
										if roles == "known" {
											d.Grants = a.grants()
										}
										decision, err := d.Decide(t.Context(), v, v.Kind.Reader.Read("team", "db", object), mode)
										return fmt.Sprint(err, tellAuthor(&decision))
									}
									want, got := answer(without), answer(with)
									answers[want[:min(len(want), 60)]]++
									require.Equal(
										t, want, got, "%d classes (%s), %s, allowed %v, selecting %s, roles %s, size %d, mode %d", n, name, spec, allowed, selects,
										roles, size, mode,
									)
								}
							}
						}
					}
				}
			}
		}
	}
	t.Log(len(answers), answers)
}
